"""Stands for CANN's binding to Python, of which training calls nothing."""
