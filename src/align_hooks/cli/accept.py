"""``align-hooks accept``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from align_hooks import __version__
from align_hooks.cli.application import app
from align_hooks.cli.files import report_files, run_of, written
from align_hooks.cli.output import output
from align_hooks.compare.acceptance import REPEATS, acceptance, observed, outcome
from align_hooks.compare.noise import Noise
from align_hooks.compare.pair import Pair
from align_hooks.errors import RecordError
from align_hooks.messages import message, rendered
from align_hooks.messages.render import id_of
from align_hooks.record.atomic import json_text
from align_hooks.report.machine import criterion_as_json
from align_hooks.report.text import criteria, escape


@app.command()
def accept(
    reference: Annotated[str, typer.Argument(help="the run that is trusted: a directory, or s3://bucket/run and the like")],
    candidate: Annotated[str, typer.Argument(help="the run that was migrated")],
    noise: Annotated[list[str] | None, typer.Option(help="the reference again, with determinism off; the standard asks for two")] = None,
    json: Annotated[Path | None, typer.Option(help="write all of it to this file, as JSON")] = None,
) -> None:
    """Hold a migrated run against the guide's acceptance standard (MindFormers r2.6), and say whether it is met.

    Exit codes: 0 accepted, 1 not accepted, 2 usage, 3 unreadable, 4 open: too few steps, or no loss or norm on record.

    Example: align-hooks accept runs/megatron runs/mindformers --noise runs/megatron_again --noise runs/megatron_third
    """
    _, json = report_files(None, json)
    pair = Pair(run_of(reference), run_of(candidate))
    own = Noise(pair, [run_of(path, "--noise ") for path in noise or ()])
    if own.problem:
        raise RecordError(rendered(own.problem))
    judged = (observed(pair.rows), *acceptance(pair.rows, own.rows()))
    found, console = outcome(judged), output()
    console.print(escape(message(id_of(found))))
    criteria(judged, console)
    for note in (message("acceptance.repeats", count=len(own.repeats), needed=REPEATS), message("acceptance.stricter")):
        console.print(f"  [dim]{escape(note)}[/]")
    about = {"align_hooks": __version__, "reference": reference, "candidate": candidate, "outcome": found.text}
    table = {"format": 1, **about, "exit_code": found.exit_code, "criteria": list(map(criterion_as_json, judged))}
    written("--json", json, lambda: json_text(table))
    raise typer.Exit(found.exit_code)
