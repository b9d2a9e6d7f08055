"""Distances of two quantities, and the limits of honest ones."""
