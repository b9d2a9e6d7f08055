"""``align-hooks run``; ``python -m align_hooks run`` does it without the ``cli`` extra."""

from __future__ import annotations

from typing import Annotated

import typer

from align_hooks.cli.application import app
from align_hooks.job.run import main as run_command


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def run(command: Annotated[list[str], typer.Argument(help="what to run, with its arguments")]) -> None:
    """Attach to every training process that a command starts, as the ALIGN_HOOKS_* variables ask.

    Exit codes: the command's own; 3 when that is 0 and something asked for did not happen; 2 usage or settings.

    Example: ALIGN_HOOKS_RUN=runs/megatron align-hooks run -- bash pretrain.sh
    """
    raise typer.Exit(run_command(command))
