"""``align-hooks``: one file a command, which reads records and says what they mean. Needs the ``cli`` extra, and no framework."""
# ruff: noqa: I001  the order of the commands is that of the help

from __future__ import annotations

import sys

try:
    import rich  # noqa: F401
    import typer  # noqa: F401
except ModuleNotFoundError as error:
    sys.exit(f"align_hooks: {error.name} is not installed; pip install 'align-hooks[cli]'")

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
