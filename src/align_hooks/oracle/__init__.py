"""Hugging Face's ``transformers`` as the third opinion: a run's own weights and batch, through their model, in fp64.

Only this room imports transformers, and beside ``torch_side`` only it imports torch; importing it imports neither. Nothing of it runs in a
training process. :mod:`.library` says whether the libraries are there, before any other module of the room is imported.
"""
