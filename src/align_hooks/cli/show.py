"""``align-hooks show``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from align_hooks._version import __version__
from align_hooks.cli.application import Option, Positional, app
from align_hooks.cli.files import output, page_of, progress, report_files, written
from align_hooks.cli.runs import run_of
from align_hooks.comparison.health import health
from align_hooks.messages import message
from align_hooks.process.executors import ENGINES, executor_of
from align_hooks.process.work import WorkPool
from align_hooks.record.inventory import inventory, not_whole
from align_hooks.record.read.problems import distinct
from align_hooks.record.verify import summary
from align_hooks.record.verify import verify as verify_all
from align_hooks.report.console import print_document
from align_hooks.report.json import as_json
from align_hooks.report.run import JSON, document


@app.command
def show(
    path: Annotated[str, Positional(metavar="RUN", help="a recorded run: a directory, or s3://bucket/run and the like")],
    html: Annotated[Path | None, Option(help="write it to this file, as a page that needs no network")] = None,
    json: Annotated[Path | None, Option(help="write everything of it to this file, as JSON")] = None,
    verify: Annotated[bool, Option("--verify", help="read all of it, and check every byte by its digest")] = False,
    executor: Annotated[str, Option(help=f"who reads a large record: {ENGINES}")] = "none",
) -> None:
    """Show what a run holds, how it ended, and its health.

    Whether the record agrees with itself is checked too, and --html draws its curves.

    Exit codes: 0 clean, 1 contradicts itself or holds numbers that are not finite, 2 usage, 3 incomplete or unreadable.

    Example: align-hooks show runs/megatron --html megatron.html
    """
    html, json = report_files(html, json)
    with progress() as say, executor_of(executor) as workers:
        say(message("progress.reading", path=str(path)))
        run = run_of(path)
        run.read_ahead(WorkPool(say, workers))
        checked = verify_all(run, say, workers) if verify else None
        wrong = distinct([*not_whole(run), *(checked.wrong if checked else ())])
        state = health(run, inventory(run), wrong, None if checked is None else summary(checked))
    print_document(document(state), output())
    written("--json", json, lambda: as_json(state, JSON, align_hooks=__version__, run=str(path)))
    written("--html", html, lambda: page_of(document(state)))
    raise SystemExit(state.exit_code)
