"""A watch on a terminal: the progress of the job, its distance from the reference, and alarms."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from align_hooks.comparison.control_band.watching import Alarm, JobWatch, Sign, Watched
from align_hooks.comparison.finding import when
from align_hooks.comparison.verdict import relative
from align_hooks.messages import Message, message, rendered
from align_hooks.report.console import Trimmed, grid, paragraph, style_of, verdict
from align_hooks.report.curve_plots import TITLES

BLOCKS = 20
"""Columns of the bar of evidence."""


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
    made = grid(*map(message, heads), numbers=(1, 2, 3))
    off = {alarm.number for alarm in watch.alarms}
    for name, number in watch.numbers.items():
        step = watch.latest(name)
        if step is None:
            continue
        ours, theirs, part = number.reference[step], watch.shown[name][step], 1.0 if name in off else min(number.evidence, 1.0)
        filled = round(BLOCKS * part)
        bar = Text("█" * filled + "·" * (BLOCKS - filled), style="red" if name in off else "")
        values = (rendered(TITLES[name]), f"{ours:.6g}", f"{theirs:.6g}", f"{relative(ours, theirs):+.2e}")
        made.add_row(*map(Text, values), bar)
    return made


def view(watch: JobWatch) -> RenderableType:
    """Return the view of a terminal while a job runs."""
    lines = [Text(rendered(progress_words(watch))), *(Text(rendered(alarm_words(alarm)), "red") for alarm in watch.alarms)]
    return Group(*lines, table(watch))


def render(watch: JobWatch, outcome: Watched, why: Message | None, console: Console) -> None:
    """Print the outcome of a watch; ``why`` is the reason why it stopped before the job ended."""
    verdict(console, outcome, style_of(outcome), progress_words(watch))
    for alarm in watch.alarms:
        paragraph(console, alarm_words(alarm))
    if why is not None:
        paragraph(console, why)
    console.print(Trimmed(table(watch)))
    paragraph(console, judged_by(watch), style="dim")
