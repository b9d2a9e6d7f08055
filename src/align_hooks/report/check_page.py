"""A check as an HTML page: what differs first, the learning rate of every step, the data, and every row of the CheckList."""

from __future__ import annotations

from align_hooks.checklist.judge import RowOutcome
from align_hooks.checklist.result import Checklist, CheckVerdict, Course, Scheduled
from align_hooks.comparison.verdict import Curve
from align_hooks.messages import Side, message
from align_hooks.record.format.schema import Table
from align_hooks.report import plots, to_change
from align_hooks.report.check_text import OTHERS, advised, batches, headline, not_covered_may_matter, setups, shown_rows
from align_hooks.report.console import plain
from align_hooks.report.curve_plots import curve_plot
from align_hooks.report.frame import for_script, render
from align_hooks.report.identity import Identity
from align_hooks.report.to_change import HARMLESS, MATTERING

SECTIONS = (
    ("verdict", message("page.nav_verdict")),
    ("curves", message("heading.schedules")),
    ("data", message("heading.data")),
    ("guide", message("heading.guide")),
    ("rows", message("heading.every_row")),
    ("uncovered", message("heading.not_covered")),
)
COLOURS = {CheckVerdict.CLEAN: "aligned", CheckVerdict.DIFFERS: "diverged", CheckVerdict.INCONCLUSIVE: "inconclusive"}
"""The verdict of a comparison with the same colours, as the style sheet calls it."""
PLOTS = {Scheduled.LEARNING_RATE: "plot-learning", Scheduled.WEIGHT_DECAY: "plot-weight"}
"""The place of each schedule on the page."""


def check_page(checklist: Checklist, version: str) -> str:
    """Return the page, as text that encodes to UTF-8; ``version`` is that of align_hooks."""
    varying = [each for each in checklist.courses if not (len(set(each.reference)) == len(set(each.candidate)) == 1 and each.same)]
    drawn = [course for course in varying if len(course.steps)]  # a sentence says everything of a common constant
    data_lines = [line for paragraph in batches(checklist) for line in paragraph]
    return render(
        "check.html",
        for_script([course_plot(course) for course in drawn], {"steps": plots.steps()}),
        version=version,
        title=message("check.title", judgement=checklist.judgement),
        sections=[section for section in SECTIONS if section[0] != "data" or data_lines],
        checklist=checklist,
        identities=[
            Identity(role, role, plain(side.source), plain(side.framework)) for role, side in zip(Side, checklist.sides, strict=True)
        ],
        frameworks=[side.framework for side in checklist.sides],
        colours=COLOURS[checklist.judgement],
        headline=headline(checklist),
        curves=[(PLOTS[course.name], course.name) for course in drawn],
        data_lines=data_lines,
        traps=[pitfall for side in checklist.sides for pitfall in side.pitfalls],
        notes=[note for side in checklist.sides for note in side.notes],
        advised=list(advised(checklist).values()),
        may_matter=not_covered_may_matter(checklist),
        setups=setups(checklist),
        by_hand=[(checked.row.name, checked.by_hand) for checked in checklist.of(RowOutcome.BY_HAND)],
        to_change=to_change.of_checklist(checklist) if checklist.of(RowOutcome.DIFFERENT) else None,
        mattering=shown_rows(checklist, MATTERING),
        harmless=shown_rows(checklist, HARMLESS),
        others=shown_rows(checklist, (outcome for outcome in OTHERS if outcome not in HARMLESS)),
    )


def course_plot(course: Course) -> Table:
    """Return the plot of a schedule over the steps, with its text."""
    curve = Curve(course.name.value, course.steps, course.reference, course.candidate)
    return curve_plot(curve) | {"id": PLOTS[course.name], "title": course.name, "text": course.text}
