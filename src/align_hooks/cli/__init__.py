"""``align-hooks``: one file a command, which reads records and says what they mean. Needs no framework."""

from __future__ import annotations

from align_hooks.cli.application import app, main

__all__ = ["app", "main"]
