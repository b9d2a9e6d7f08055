"""Causes, a file for each part of a training step; :mod:`.registry` collects them."""
