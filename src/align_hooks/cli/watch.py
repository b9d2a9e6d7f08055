"""``align-hooks watch``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.live import Live

from align_hooks._version import __version__
from align_hooks.cli.application import Option, Positional, app
from align_hooks.cli.files import output, page_of, place_of, report_files, written
from align_hooks.cli.runs import run_of
from align_hooks.comparison.control_band.noise_model import FALSE_ALARMS
from align_hooks.comparison.control_band.watching import JobWatch
from align_hooks.comparison.noise import Noise
from align_hooks.comparison.pair import Pair
from align_hooks.errors import RecordError
from align_hooks.messages import Message, message, rendered
from align_hooks.record.format.ending import End
from align_hooks.record.tail import Followed
from align_hooks.record.write.output import write as write_output
from align_hooks.report.console import live as live_view
from align_hooks.report.console import paragraph, print_document
from align_hooks.report.watch import alarm_words, as_json, document, progress_words, view

PRINTED = 100
"""Steps after which a line is printed where there is no terminal."""


@app.command
def watch(
    reference: Annotated[str, Positional(help="the run that is trusted, finished")],
    candidate: Annotated[str, Positional(help="the ALIGN_HOOKS_RUN of a job that runs, or is about to")],
    noise: Annotated[list[str] | None, Option(help="the reference again: honest differences are measured on it")] = None,
    html: Annotated[Path | None, Option(help="keep a page in this file, which a browser reads again by itself")] = None,
    json: Annotated[Path | None, Option(help="write how it ended to this file, as JSON")] = None,
    every: Annotated[float, Option(min=0.1, help="seconds between two looks")] = 10.0,
    patience: Annotated[float, Option(min=0.0, help="minutes without a new step after which the job is taken for dead")] = 60.0,
    false_alarms: Annotated[float, Option(min=1e-9, max=0.5, help="share of honest jobs that may be called off")] = FALSE_ALARMS,
    to_the_end: Annotated[bool, Option("--to-the-end", help="go on after an alarm")] = False,
) -> None:
    """Follow a running job, and say when it leaves the reference.

    How far honest runs are apart is measured on repeats of the reference.

    Exit codes: 0 the job ended in the band, 1 it left it, 2 usage, 3 it stopped early or cannot be read, 4 nothing could be judged.

    Example: align-hooks watch runs/megatron runs/mindformers --noise runs/megatron_again || scancel $JOB
    """
    html, json = report_files(html, json)
    trusted, repeats = run_of(reference), [run_of(path, "--noise ") for path in noise or ()]
    if problem := Noise(Pair(trusted, trusted), repeats).problem:
        raise RecordError(rendered(problem))
    watched, followed = JobWatch(trusted, repeats, false_alarms), Followed(place_of(candidate))
    console = output()

    with display(watched, console) as show:

        def update() -> None:
            show(watched)
            if html is not None:
                with suppress(OSError, ValueError):  # the next update writes it
                    write_output(html, page_of(document(watched, candidate, None, every=max(int(every), 1))))

        finished, why = follow(watched, followed, every, patience, to_the_end, update)
    outcome = watched.outcome(ended=finished)
    print_document(document(watched, candidate, outcome, why), console)
    about = {"align_hooks": __version__, "reference": reference, "candidate": candidate}
    written("--json", json, lambda: as_json(watched, outcome, **about))
    written("--html", html, lambda: page_of(document(watched, candidate, outcome, why)))
    raise SystemExit(outcome.exit_code)


def follow(
    watched: JobWatch, followed: Followed, every: float, patience: float, to_the_end: bool, update: Callable[[], None]
) -> tuple[bool, Message | None]:
    """Follow a job until it ends, raises an alarm or makes no more steps; return whether it finished, and else the reason why not."""
    idle = 0.0
    while True:
        rows = followed.rows()
        for row in rows:
            watched.see(row)
        update()
        idle = 0.0 if rows else idle + every
        endings = None if rows else followed.endings()
        failed = next((each for each in endings or () if each.end is not End.FINISHED), None)
        if followed.last >= watched.last >= 0 or (endings is not None and failed is None):
            return True, None
        if failed is not None:
            return False, failed.message
        if idle > 60 * patience:
            return False, message("watch.no_step", minutes=patience)
        if watched.alarms and not to_the_end:
            return False, None
        time.sleep(every)


@contextmanager
def display(watched: JobWatch, console: Console) -> Iterator[Callable[[JobWatch], None]]:
    """Provide a function that shows the state on a terminal, or prints new alarms and now and then the progress to a log."""
    if console.is_terminal:
        with Live(live_view(view(watched)), console=console, transient=True, auto_refresh=False) as live:
            yield lambda state: live.update(live_view(view(state)), refresh=True)
        return
    printed = {"alarms": 0, "lines": -1}

    def line(state: JobWatch) -> None:
        if state.seen // PRINTED > printed["lines"]:
            printed["lines"] = state.seen // PRINTED
            paragraph(console, progress_words(state), 0)
        for alarm in state.alarms[printed["alarms"] :]:
            paragraph(console, alarm_words(alarm), 0)
        console.file.flush()
        printed["alarms"] = len(state.alarms)

    yield line
