"""``align-hooks run`` for the list of commands and its help; :mod:`align_hooks.__main__` runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from align_hooks.cli.application import Option, Positional, app
from align_hooks.job.run import main as run_command


@app.command
def run(
    command: Annotated[list[str], Positional(help="what to run, with its arguments")],
    arguments_only: Annotated[
        bool, Option("--arguments-only", help="end every process where the framework has parsed its arguments, and write these")
    ] = False,
    out: Annotated[Path | None, Option(help="where --arguments-only writes them: arguments.json unless said")] = None,
) -> None:
    """Attach to every training process that a command starts.

    It attaches as the ALIGN_HOOKS_* variables ask. With --arguments-only each process ends where the framework has parsed its arguments,
    and these are written for check.

    Exit codes: the command's own; 3 when that is 0 and something asked for did not happen; 2 usage or settings.

    Example: ALIGN_HOOKS_RUN=runs/megatron align-hooks run -- bash pretrain.sh
    """
    options = ["--arguments-only"] * arguments_only + [f"--out={out}"] * (out is not None)
    raise SystemExit(run_command([*options, "--", *command]))
