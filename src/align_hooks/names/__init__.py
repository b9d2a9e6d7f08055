"""Canonical names, which are Hugging Face's, and rules from a framework's names and fused layouts to them.

The tables of rules are those of :mod:`align_hooks.families`.
"""
