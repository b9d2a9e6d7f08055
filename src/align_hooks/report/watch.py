"""A watch as a document: the progress of the job, its distance from the reference, and alarms."""

from __future__ import annotations

from collections.abc import Iterator

from align_hooks.comparison.control_band.watching import Alarm, JobWatch, Sign, Watched
from align_hooks.comparison.finding import when
from align_hooks.comparison.verdict import relative
from align_hooks.messages import Message, Side, message
from align_hooks.report import identity
from align_hooks.report.blocks import Cell, DocumentBlock, Items, Medium, Paragraph, Plots, Section, Special, Table
from align_hooks.report.console import plain
from align_hooks.report.curve_plots import TITLES, curve_plot
from align_hooks.report.document import Document, Identity
from align_hooks.report.json import Shape, encoded

BLOCKS = 20
"""Columns of the bar of evidence."""
MOST = 1000
"""The most steps of a curve that are drawn: the columns of a screen."""


def document(watch: JobWatch, candidate: str, outcome: Watched | None, why: Message | None = None, every: int = 0) -> Document:
    """Return the report on a watch; while ``outcome`` is None, a browser reloads the page after ``every`` seconds.

    ``why`` is the reason why the watch stopped before the job ended.
    """
    result = outcome or (Watched.LEFT if watch.alarms else None)
    return Document(
        result,
        progress_words(watch),
        [*state(watch, why)],
        sections=[curves(watch)] if any(watch.shown.values()) else [],
        title=f"align_hooks: {candidate}",
        sides=[identity.of_run(Side.REFERENCE, Side.REFERENCE, watch.trusted), Identity(Side.CANDIDATE, Side.CANDIDATE, plain(candidate))],
        chip=None if result else message("watch.running"),
        every=0 if outcome else every,
    )


def state(watch: JobWatch, why: Message | None) -> Iterator[DocumentBlock]:
    """Yield alarms, the distance of each number, and the limits."""
    yield Items([alarm_words(alarm) for alarm in watch.alarms])
    if why is not None:
        yield Paragraph(why)
    yield table(watch)
    yield Paragraph(judged_by(watch), "dim")


def curves(watch: JobWatch) -> Section:
    """Return the plots of a page."""
    blocks = [Special("key", lambda: {"noise": True}), Plots(lambda: [*map(curve_plot, watch.curves(MOST))])]
    return Section("curves", message("page.nav_curves"), message("page.curves"), blocks, on=Medium.PAGE)


def alarm_words(alarm: Alarm) -> Message:
    """Return an alarm in a line."""
    name = TITLES[alarm.number]
    if alarm.sign is Sign.NOT_FINITE:
        return message("watch.not_finite", what=name, step=when(alarm.step))
    id = "watch.beyond_guide" if alarm.sign is Sign.BEYOND_GUIDE else "watch.left"
    return message(id, what=name, start=when(alarm.start), step=when(alarm.step))


def judged_by(watch: JobWatch) -> Message:
    """Return the limits that a job's numbers are compared with."""
    if watch.lacks_loss:
        return message("watch.no_loss")
    if not watch.has_bands:
        return message("watch.by_guide")
    return message("watch.by_repeats", count=len(watch.repeats), percent=100 * watch.false_alarms)


def progress_words(watch: JobWatch) -> Message:
    """Return the progress of the job."""
    steps = [step for name in watch.shown if (step := watch.latest(name)) is not None]
    return message("watch.progress", step=when(max(steps)), last=watch.last) if steps else message("watch.waiting")


def table(watch: JobWatch) -> Table:
    """Return a table with a line for each number: both values at its last step, their difference, the evidence for an alarm."""
    heads = ("watch.number", "side.reference", "side.candidate", "page.relative_difference", "watch.evidence")
    off = {alarm.number for alarm in watch.alarms}
    rows = []
    for name, number in watch.numbers.items():
        step = watch.latest(name)
        if step is None:
            continue
        ours, theirs, part = number.reference[step], watch.shown[name][step], 1.0 if name in off else min(number.evidence, 1.0)
        filled = round(BLOCKS * part)
        bar = Cell("█" * filled + "·" * (BLOCKS - filled), "red" if name in off else "")
        rows.append((TITLES[name], f"{ours:.6g}", f"{theirs:.6g}", f"{relative(ours, theirs):+.2e}", bar))
    return Table([*map(message, heads)], rows, numbers=(1, 2, 3), on=Medium.TERMINAL)


def view(watch: JobWatch) -> list[Paragraph | Table]:
    """Return the view of a terminal while a job runs."""
    lines = [Paragraph(progress_words(watch)), *(Paragraph(alarm_words(alarm), "red") for alarm in watch.alarms)]
    return [*lines, table(watch)]


def as_json(watch: JobWatch, outcome: Watched, **about: str) -> dict[str, object]:
    """Return the outcome of a watch: its alarms, and the evidence of each number."""
    return {
        "format": 1,
        **about,
        "outcome": outcome.text,
        "exit_code": outcome.exit_code,
        "steps": watch.seen,
        "repeats": len(watch.repeats) if watch.has_bands else 0,
        "false_alarms": watch.false_alarms if watch.has_bands else None,
        "alarms": encoded(watch.alarms, {Alarm: Shape("number sign since=start seen=step words", words=alarm_words)}),
        "numbers": {name: {"last_step": watch.latest(name), "evidence": number.evidence} for name, number in watch.numbers.items()},
    }
