"""``align-hooks doctor``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from msgspec import to_builtins

from align_hooks._version import __version__
from align_hooks.cli.application import Option, Positional, app
from align_hooks.cli.files import output, progress, report_files, written
from align_hooks.doctor.examination import examine
from align_hooks.messages import message
from align_hooks.report.console import print_blocks
from align_hooks.report.examination import report


@app.command
def doctor(
    target: Annotated[
        str | None, Positional(metavar="FILE", help="what is to be run: a training script, a launch script, a YAML file; or a recorded run")
    ] = None,
    python: Annotated[str | None, Option(help="the interpreter that will train, where it is not this one")] = None,
    everything: Annotated[bool, Option("--all", help="list every hook and its patch point")] = False,
    json: Annotated[Path | None, Option(help="write everything of it to this file, as JSON")] = None,
) -> None:
    """Say whether a run would start here, and why not.

    The ALIGN_HOOKS_* variables count as they are set. The framework that the file names is imported, or both where none is given, each in
    a process of its own; nothing is trained.

    Exit codes: 0 ready, 1 not ready, 2 usage, 3 unreadable.

    Example: ALIGN_HOOKS_RUN=runs/megatron ALIGN_HOOKS_BATCHES=all align-hooks doctor pretrain_llama.sh
    """
    _, json = report_files(None, json)
    with progress() as say:
        say(message("progress.importing"))
        examination = examine(target, os.environ, python=python)
    print_blocks(report(examination, everything=everything), output())
    written("--json", json, lambda: {"align_hooks": __version__, "exit_code": examination.exit_code, **to_builtins(examination)})
    raise SystemExit(examination.exit_code)
