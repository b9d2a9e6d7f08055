"""``align-hooks``: one file for each command. Needs no framework."""

from align_hooks.cli.application import app, main

__all__ = ["app", "main"]
