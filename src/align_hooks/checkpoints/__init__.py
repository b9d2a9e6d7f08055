"""Weights from one form into another: a record, a Hugging Face directory, Megatron-LM's checkpoints, MindFormers'. One file a form.

Whatever the form, a checkpoint is read as canonical names to tensors that nobody has read yet, and written one tensor after the other. So a
conversion takes the memory of the largest tensor. Names and layouts are the families'; no framework is imported, and nothing that a file
holds is ever called.
"""
