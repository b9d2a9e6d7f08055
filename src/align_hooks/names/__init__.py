"""Canonical names: Hugging Face's, and the way to them from each framework's own names and fused layouts.

Tables are plain data, read with no framework present. A new family is one table a side.
"""
