"""``align-hooks``: one file a command, which reads records and says what they mean. Needs no framework."""
# ruff: noqa: I001  the order of the commands is that of the help

from __future__ import annotations

from align_hooks.cli.application import app, main
from align_hooks.cli import (
    compare,
    accept,
    frozen,
    watch,
    ladder,
    arbitrate,
    check,
    show,
    distill,
    convert,
    dump_config,
    run,
    doctor,
    demo,
    env,
)

__all__ = [
    "accept",
    "app",
    "arbitrate",
    "check",
    "compare",
    "convert",
    "demo",
    "distill",
    "doctor",
    "dump_config",
    "env",
    "frozen",
    "ladder",
    "main",
    "run",
    "show",
    "watch",
]
