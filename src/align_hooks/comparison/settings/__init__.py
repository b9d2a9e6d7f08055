"""Recorded settings of both runs, side by side."""
