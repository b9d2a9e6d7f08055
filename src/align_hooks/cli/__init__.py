"""``align-hooks``: one file a command, which reads records and says what they mean. Needs no framework."""
# ruff: noqa: F401, I001  a command adds itself when it is imported, and their order is that of the help

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

__all__ = ["app", "main"]
