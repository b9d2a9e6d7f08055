"""Hooks as data, their attachment to a framework, and the log of patches. The only importer of wrapt."""
