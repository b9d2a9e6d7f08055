"""``align-hooks compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from align_hooks import __version__
from align_hooks.checklist.sides import check_runs
from align_hooks.cli.application import app
from align_hooks.cli.files import place_of, report_files, written
from align_hooks.cli.output import output, progress
from align_hooks.compare.runs import compare as compare_runs
from align_hooks.record.atomic import json_text
from align_hooks.record.reader import open_run
from align_hooks.report.machine import as_json
from align_hooks.report.text import render


@app.command()
def compare(
    reference: Annotated[Path, typer.Argument(help="the run that is trusted")],
    candidate: Annotated[Path, typer.Argument(help="the run that is questioned")],
    noise: Annotated[
        list[Path] | None, typer.Option(help="the reference run again, or with ALIGN_HOOKS_PERTURB: limits are measured on it")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="write the report to this file, as a page that needs no network")] = None,
    json: Annotated[Path | None, typer.Option(help="write everything of the comparison to this file, as JSON")] = None,
    allow_missing: Annotated[list[str] | None, typer.Option(help="canonical names, with * and ?, that one side may lack")] = None,
) -> None:
    """Compare two recorded runs stage by stage and give a verdict.

    Exit codes: 0 aligned, 1 diverged, 2 usage, 3 not comparable, incomplete or unreadable, 4 inconclusive.

    Example: align-hooks compare runs/megatron runs/mindformers
    """
    html, json = report_files(html, json)
    with progress() as say:
        repeats = [open_run(place_of(path, "--noise ")) for path in noise or ()]
        runs = open_run(place_of(reference)), open_run(place_of(candidate))
        comparison = compare_runs(*runs, noise=repeats, allow_missing=allow_missing or (), progress=say)
    render(comparison, output())
    about = {"align_hooks": __version__, "reference": str(reference), "candidate": str(candidate)}
    written("--json", json, lambda: json_text(as_json(comparison, **about)))
    if html is not None:
        from align_hooks.report.page import page

        written("--html", html, lambda: page(comparison, __version__, check_runs(*runs)))
    raise typer.Exit(comparison.verdict.exit_code)
