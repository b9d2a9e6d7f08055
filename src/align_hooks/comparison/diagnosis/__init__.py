"""Diagnose a comparison: what shows first, where the fault is, its likely cause, what to do next."""
