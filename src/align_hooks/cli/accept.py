"""``align-hooks accept``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from align_hooks._version import __version__
from align_hooks.cli.application import Option, Positional, app
from align_hooks.cli.files import output, report_files, written
from align_hooks.cli.runs import run_of
from align_hooks.comparison.acceptance import REPEATS, acceptance, observed, outcome, outcome_words
from align_hooks.comparison.noise import Noise
from align_hooks.comparison.pair import Pair
from align_hooks.errors import RecordError
from align_hooks.messages import message, rendered
from align_hooks.report.acceptance import document
from align_hooks.report.console import print_document
from align_hooks.report.json import SHAPES, encoded


@app.command
def accept(
    reference: Annotated[str, Positional(help="the run that is trusted: a record, a log, TensorBoard's events or a table")],
    candidate: Annotated[str, Positional(help="the run that was migrated, the same")],
    noise: Annotated[list[str] | None, Option(help="the reference again, with determinism off; the standard asks for two")] = None,
    json: Annotated[Path | None, Option(help="write all of it to this file, as JSON")] = None,
) -> None:
    """Judge a migrated run by the guide's acceptance standard.

    The standard is that of MindFormers r2.6.

    Exit codes: 0 accepted, 1 not accepted, 2 usage, 3 unreadable, 4 open: too few steps, or no loss or norm on record.

    Example: align-hooks accept runs/megatron runs/mindformers --noise runs/megatron_again --noise runs/megatron_third
    """
    _, json = report_files(None, json)
    pair = Pair(run_of(reference), run_of(candidate))
    own = Noise(pair, [run_of(path, "--noise ") for path in noise or ()])
    if own.problem:
        raise RecordError(rendered(own.problem))
    judged = (observed(pair.rows), *acceptance(pair.rows, own.rows()))
    found = outcome(judged)
    notes = message("acceptance.repeats", count=len(own.repeats), needed=REPEATS), message("acceptance.stricter")
    print_document(document(found, outcome_words(judged), judged, notes), output())
    about = {"align_hooks": __version__, "reference": reference, "candidate": candidate, "outcome": found.text}
    table = {"format": 1, **about, "exit_code": found.exit_code, "criteria": encoded(judged, SHAPES)}
    written("--json", json, lambda: table)
    raise SystemExit(found.exit_code)
