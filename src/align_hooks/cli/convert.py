"""``align-hooks convert``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from align_hooks.cli.application import app
from align_hooks.cli.files import place_of
from align_hooks.configuration.values import FRAMEWORKS
from align_hooks.evidence.convert import convert as convert_log
from align_hooks.report.text import plain


@app.command()
def convert(
    log: Annotated[Path, typer.Argument(help="what Megatron-LM or MindFormers printed, of every step of one run")],
    path: Annotated[Path, typer.Argument(metavar="RUN", help="the directory to write the record to")],
    names: Annotated[
        Path | None, typer.Option(help="a record of the same model by MindFormers, for the local norms that its local_norm: True logs")
    ] = None,
) -> None:
    """Make a record of a log: loss, gradient norm and learning rate of every step, each at its own step, and how fine they are.

    What compare, show and their pages say of a record they say of this one too, as far as a log goes.

    Exit codes: 0 written, 2 usage, 3 unreadable.

    Example: align-hooks convert megatron.log runs/megatron_log
    """
    log, path, names = place_of(log), place_of(path), place_of(names, "--names ") if names is not None else None
    converted, normed = convert_log(log, path, names)
    print(f"{len(converted.rows)} steps of {FRAMEWORKS[converted.side]}, {converted.rows[0]['step']} to {converted.rows[-1]['step']}")
    for note in (*converted.notes, *([f"local norms of {len(normed)} of them"] if normed else [])):
        print(f"  {note}")
    print(f"written: {plain(str(path))}")
