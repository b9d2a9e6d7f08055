"""Hugging Face's ``transformers`` as the third opinion: a run's own weights and batch, through their model, in fp64.

Only this package imports transformers, and only it and ``torch_side`` import torch; importing the package itself imports neither. No
training process runs it. :mod:`.library` checks the installed libraries before any other module of the package is imported.
"""
