"""A check as an HTML page: what differs first, the learning rate of every step, the data, and every row of the CheckList."""

from __future__ import annotations

from typing import Any

from align_hooks.checklist.judge import Outcome
from align_hooks.checklist.result import Checklist, Course, Judgement, Scheduled
from align_hooks.compare.verdict import Curve
from align_hooks.messages import message
from align_hooks.report import plots
from align_hooks.report.check_text import advised, headline, of_data, setups
from align_hooks.report.checked_rows import first_rows, other_rows
from align_hooks.report.frame import render
from align_hooks.report.page import curve_plot
from align_hooks.report.text import plain

SECTIONS = (
    ("verdict", message("page.nav_verdict")),
    ("curves", message("heading.schedules")),
    ("data", message("heading.data")),
    ("guide", message("heading.guide")),
    ("rows", message("heading.every_row")),
    ("uncovered", message("heading.not_covered")),
)
LOOKS = {Judgement.CLEAN: "aligned", Judgement.DIFFERS: "diverged", Judgement.INCONCLUSIVE: "inconclusive"}
"""The verdict of a comparison whose colours each has."""
PLOTS = {Scheduled.LEARNING_RATE: "plot-learning", Scheduled.WEIGHT_DECAY: "plot-weight"}
"""The place of each schedule on the page."""


def check_page(checklist: Checklist, version: str) -> str:
    """The whole page, as text that encodes to UTF-8; ``version`` is that of align_hooks."""
    drawn = [one for one in checklist.courses if len(one.steps) and not flat(one)]
    curves = [course_plot(one) for one in drawn]
    data = {"eps": 1, "tensors": None, "stages": [], "pictures": [], "plots": curves, "specs": {"steps": plots.steps()}}
    return render(
        "check.html",
        data,
        version=version,
        title=message("check.title", judgement=checklist.judgement),
        sections=[one for one in SECTIONS if one[0] != "data" or of_data(checklist)],
        names=[plain(side.source) for side in checklist.sides],
        frameworks=[side.framework for side in checklist.sides],
        verdict=checklist.judgement,
        colours=LOOKS[checklist.judgement],
        headline=headline(checklist),
        curves=[(PLOTS[one.name], one.name) for one in drawn],
        courses=checklist.courses,
        data_lines=[line.text for line in of_data(checklist)],
        traps=[trap for side in checklist.sides for trap in side.traps],
        gaps=checklist.gaps,
        notes=[note for side in checklist.sides for note in side.notes],
        advised=advised(checklist),
        setups=setups(checklist),
        by_hand=[(one.row.name, one.row.by_hand) for one in checklist.of(Outcome.BY_HAND)],
        uncovered=[(side.framework, side.not_covered) for side in checklist.sides],
        unlike=checklist.unlike,
        first=first_rows(checklist),
        rest=other_rows(checklist),
    )


def flat(course: Course) -> bool:
    """Whether a schedule is one number on both sides, of which a sentence says all."""
    return len(set(course.reference)) == len(set(course.candidate)) == 1 and bool(course.same)


def course_plot(course: Course) -> dict[str, Any]:
    """A schedule drawn over the steps, with what to say of it."""
    curve = Curve(course.name.value, course.steps, course.reference, course.candidate)
    return curve_plot(curve) | {"id": PLOTS[course.name], "title": course.name, "said": [course.text]}
