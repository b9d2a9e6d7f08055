"""``align-hooks watch``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.live import Live

from align_hooks._version import __version__
from align_hooks.cli.application import Option, Positional, app
from align_hooks.cli.files import place_of, report_files, run_of, written
from align_hooks.cli.output import output
from align_hooks.comparison.control_band.detector import FALSE_ALARMS
from align_hooks.comparison.control_band.watching import JobWatch
from align_hooks.comparison.metrics.noise import Noise
from align_hooks.comparison.pair import Pair
from align_hooks.errors import RecordError
from align_hooks.messages import Message, message, rendered
from align_hooks.record.format.ending import End
from align_hooks.record.read.tail import Followed
from align_hooks.record.write.atomic import json_text
from align_hooks.record.write.output import write as write_output
from align_hooks.report.console import paragraph
from align_hooks.report.machine import watch_as_json
from align_hooks.report.watch_text import alarm_words, progress_words, render, view

SAID = 100
"""Steps after which a line is printed where there is no terminal."""


@app.command()
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
    with looking(watched, console) as look:

        def shown() -> None:
            look(watched)
            kept(html, watched, candidate, every)

        finished, why = follow(watched, followed, every, patience, to_the_end, shown)
    outcome = watched.outcome(ended=finished)
    render(watched, outcome, why, console)
    about = {"align_hooks": __version__, "reference": reference, "candidate": candidate}
    written("--json", json, lambda: json_text(watch_as_json(watched, outcome, **about)))
    if html is not None:
        from align_hooks.report.watch_page import watch_page

        written("--html", html, lambda: watch_page(watched, candidate, outcome, why, __version__, 0))
    raise SystemExit(outcome.exit_code)


def follow(
    watched: JobWatch, followed: Followed, every: float, patience: float, to_the_end: bool, look: Callable[[], None]
) -> tuple[bool, Message | None]:
    """Look until the job is over, is called off, or makes no more steps: whether it finished, and else why no more is to come."""
    still = 0.0
    while True:
        rows = followed.rows()
        for row in rows:
            watched.see(row)
        look()
        still = 0.0 if rows else still + every
        endings = None if rows else followed.endings()
        unlike = next((each for each in endings or () if each.end is not End.FINISHED), None)
        if followed.last >= watched.last >= 0 or (endings is not None and unlike is None):
            return True, None
        if unlike is not None:
            return False, unlike.message
        if still > 60 * patience:
            return False, message("watch.no_step", minutes=patience)
        if watched.alarms and not to_the_end:
            return False, None
        time.sleep(every)


def kept(html: Path | None, watched: JobWatch, candidate: str, every: float) -> None:
    """Write the page of a job that runs; one that cannot be written now is written at the next look."""
    if html is None:
        return
    from align_hooks.report.watch_page import watch_page

    try:
        write_output(html, watch_page(watched, candidate, None, None, __version__, max(int(every), 1)))
    except (OSError, ValueError):
        return


@contextmanager
def looking(watched: JobWatch, console: Console) -> Iterator[Callable[[JobWatch], None]]:
    """What to call at every look: a terminal shows the state, a log gets a line at times and one for each alarm."""
    if console.is_terminal:
        with Live(view(watched), console=console, transient=True, auto_refresh=False) as live:
            yield lambda state: live.update(view(state), refresh=True)
        return
    said = {"alarms": 0, "lines": -1}

    def line(state: JobWatch) -> None:
        if state.seen // SAID > said["lines"]:
            said["lines"] = state.seen // SAID
            paragraph(console, progress_words(state), 0)
        for alarm in state.alarms[said["alarms"] :]:
            paragraph(console, alarm_words(alarm), 0)
        console.file.flush()
        said["alarms"] = len(state.alarms)

    yield line
