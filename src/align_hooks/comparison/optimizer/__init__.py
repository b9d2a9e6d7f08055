"""Recorded updates beside the optimizer's formula."""
