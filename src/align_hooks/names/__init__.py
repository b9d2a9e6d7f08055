"""Canonical names: Hugging Face's, and the way to them from each framework's own names and fused layouts.

The lowest room: what a fused parameter is, and a table of rules for one framework. The tables themselves are the families'
(:mod:`align_hooks.families`).
"""
