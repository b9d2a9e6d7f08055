"""Advice that was tried: what a check tells to write is written as printed, and the check is run again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from align_hooks.checklist.change import Action, Edit, Form
from align_hooks.checklist.judge import Checked, Outcome
from align_hooks.checklist.mend import applied
from align_hooks.checklist.result import Checklist, check
from align_hooks.configuration.values import MINDFORMERS, Configuration
from align_hooks.messages import rendered
from checklist.exercises import EXERCISES, Exercise, flags, megatron, mindformers


@dataclass(frozen=True)
class Planted:
    """A difference: the row that is planted, and both sides."""

    row: str
    reference: Configuration
    candidate: Configuration


def planted() -> Iterator[Planted]:
    """Every exercise's difference, with either framework as the candidate."""
    for exercise in EXERCISES:
        sides = both(exercise, exercise.other)
        yield Planted(exercise.row, *sides)
        yield Planted(exercise.row, *sides[::-1])


def both(exercise: Exercise, keys: dict[str, Any]) -> tuple[Configuration, Configuration]:
    """Both sides, the flags those of the keys where these bring their own."""
    others = {key: value for key, value in keys.items() if key != "FLAGS"}
    return megatron(exercise.style, flags(keys["FLAGS"]) if "FLAGS" in keys else exercise.flags), mindformers(exercise.style, others)


def printed(edit: Edit) -> tuple[str, Any]:
    """A setting and its value as a reader of the report would write them."""
    if edit.framework == MINDFORMERS:
        key, _, value = rendered(edit.words).partition(": ")
        assert edit.key.endswith(key)
        return edit.key, yaml.safe_load(value)
    value = edit.value if edit.form is not Form.LEAVE_OUT else None
    return edit.key, value


def told(rows: Iterator[Checked] | list[Checked]) -> dict[str, Any]:
    """All that rows tell to write."""
    return dict(printed(edit) for row in rows if row.change is not None and row.change.keeps for edit in row.change.edits)


def differing(checklist: Checklist) -> set[str]:
    return {one.row.id for one in checklist.of(Outcome.DIFFERENT)}


def without_advice(checklist: Checklist) -> set[str]:
    """Rows that differ and for which nothing can be written."""
    rows = checklist.of(Outcome.DIFFERENT)
    return {one.row.id for one in rows if one.change is not None and not one.change.keeps and one.change.action is not Action.FOLLOWS}


ALL = list(planted())


@pytest.mark.parametrize("case", ALL, ids=[f"{at}-{case.row}" for at, case in enumerate(ALL)])
def test_what_is_told_mends_what_it_is_told_of(case: Planted) -> None:
    before = check(case.reference, case.candidate)
    edits = told([one for one in before.checked if one.outcome is Outcome.DIFFERENT])
    after = check(case.reference, applied(case.candidate, edits))
    assert differing(after) <= without_advice(before)
    if not without_advice(before) and not before.unlike:
        assert [course.name for course in after.courses if course.same is False] == []


@pytest.mark.parametrize("case", ALL, ids=[f"{at}-{case.row}" for at, case in enumerate(ALL)])
def test_what_is_told_of_rounding_mends_it_and_parts_nothing(case: Planted) -> None:
    before = check(case.reference, case.candidate)
    main = told([one for one in before.checked if one.outcome is Outcome.DIFFERENT])
    for one in before.of(Outcome.ROUNDING):
        if one.change is None or not one.change.keeps:
            continue
        after = check(case.reference, applied(case.candidate, {**main, **told([one])}))
        again = next(row for row in after.checked if row.row.id == one.row.id)
        assert again.outcome not in (Outcome.ROUNDING, Outcome.DIFFERENT)
        assert differing(after) <= without_advice(before)
