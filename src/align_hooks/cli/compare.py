"""``align-hooks compare``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

from align_hooks._version import __version__
from align_hooks.checklist.batches import tokenizer as open_tokenizer
from align_hooks.checklist.sides import check_runs
from align_hooks.cli.application import Option, Positional, app
from align_hooks.cli.files import output, progress, report_file, report_files, written
from align_hooks.cli.runs import run_of
from align_hooks.comparison.control_band.signed_drift import drifts
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.pipeline import compare as compare_runs
from align_hooks.process.executors import ENGINES, executor_of
from align_hooks.report.comparison import document
from align_hooks.report.console import print_document
from align_hooks.report.json import as_json
from align_hooks.report.junit import junit as as_junit
from align_hooks.report.markdown import markdown as as_markdown
from align_hooks.scenarios.bisect import plan_text

WORTH = 1 << 31
"""Bytes above which other processes read too: for this many, one process took as long as two (docs/scale.md)."""


@app.command
def compare(
    reference: Annotated[str, Positional(help="the run that is trusted: a directory, or s3://bucket/run and the like")],
    candidate: Annotated[str, Positional(help="the run that is questioned")],
    noise: Annotated[
        list[str] | None, Option(help="the reference run again, or with ALIGN_HOOKS_PERTURB: limits are measured on it")
    ] = None,
    html: Annotated[Path | None, Option(help="write the report to this file, as a page that needs no network")] = None,
    json: Annotated[Path | None, Option(help="write everything of the comparison to this file, as JSON")] = None,
    junit: Annotated[Path | None, Option(help="write it to this file as JUnit XML, a test case a stage (docs/ci.md)")] = None,
    markdown: Annotated[Path | None, Option(help="write it to this file in short, as a comment on a pull request")] = None,
    plan: Annotated[Path | None, Option(help="write a ladder to this file that narrows the difference down (docs/ladder.md)")] = None,
    allow_missing: Annotated[list[str] | None, Option(help="canonical names, with * and ?, that one side may lack")] = None,
    tokenizer: Annotated[str | None, Option(help="a tokenizer.json, or its directory: decode the batch where a long run departs")] = None,
    brief: Annotated[bool, Option(help="print what differs, where and what to do next, without the stages")] = False,
    executor: Annotated[str | None, Option(help=f"who reads large records: {ENGINES}; by default processes where that is worth it")] = None,
) -> None:
    """Compare two recorded runs stage by stage and give a verdict.

    Exit codes: 0 aligned, 1 diverged, 2 usage, 3 not comparable, incomplete or unreadable, 4 inconclusive.

    Example: align-hooks compare runs/megatron runs/mindformers
    """
    html, json = report_files(html, json)
    plan, junit, markdown = report_file("--plan", plan), report_file("--junit", junit), report_file("--markdown", markdown)
    decode = open_tokenizer(tokenizer) if tokenizer is not None else None
    with progress() as say:
        repeats = [run_of(path, "--noise ") for path in noise or ()]
        runs = run_of(reference), run_of(candidate)
        with executor_of(executor or "processes") as workers:
            least = 0 if executor else WORTH
            comparison = compare_runs(
                *runs, noise=repeats, allow_missing=allow_missing or (), progress=say, executor=workers, least=least, decode=decode
            )
    print_document(document(comparison, brief=brief), output())
    about = {"align_hooks": __version__, "reference": str(reference), "candidate": str(candidate)}
    written("--json", json, lambda: as_json(comparison, **about))
    repeated = [word for path in noise or () for word in ("--noise", path)]
    command = shlex.join(map(str, ("align-hooks", "compare", reference, candidate, *repeated)))
    written("--junit", junit, lambda: as_junit(comparison, command))
    written("--markdown", markdown, lambda: as_markdown(document(comparison, drifts=drifts(*runs, comparison.eps), command=command)))
    written("--plan", plan, lambda: plan_text(Pair(*runs)))
    if html is not None:
        from align_hooks.report.comparison_page import comparison_page

        written("--html", html, lambda: comparison_page(comparison, __version__, check_runs(*runs, comparison.statistics)))
    raise SystemExit(comparison.verdict.exit_code)
