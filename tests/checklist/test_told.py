"""What a check tells of a pair: every case of ``told.txt``. Nothing else differs in it, and it is clean once what is told is written."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from align_hooks.checklist.edits import Form
from align_hooks.checklist.fix import fixed
from align_hooks.checklist.judge import RowOutcome
from align_hooks.checklist.result import CLEAN, Checklist, check
from align_hooks.configuration.mindformers import read_yaml
from align_hooks.configuration.values import Configuration
from align_hooks.data_file import sections
from align_hooks.messages import rendered
from align_hooks.record.write.atomic import json_text
from align_hooks.report.check import JSON
from align_hooks.report.json import as_json
from checklist.exercises import flags, keys, megatron, mindformers, mindformers_tree, row, to_change
from checklist.test_closed_loop import differing, without_advice


@dataclass(frozen=True)
class Told:
    """A case: both sides on one base, and row to outcome and change, as text."""

    name: str
    style: str
    flags: dict[str, Any]
    keys: dict[str, Any]
    rows: dict[str, str]

    def check(self, candidate: Configuration | None = None) -> Checklist:
        return check(megatron(self.style, self.flags), candidate or mindformers(self.style, self.keys))


def told() -> list[Told]:
    """The cases of the table."""
    cases = []
    for name, (base, *rest) in sections(Path(__file__).with_name("told.txt")).items():
        style, _, words = base.partition(":")
        of_yaml = rest.pop(0).removeprefix("yaml: ") if rest[0].startswith("yaml: ") else ""
        cases.append(Told(name, style, flags(words), keys(of_yaml), dict(line.split(": ", 1) for line in rest)))
    return cases


CASES = pytest.mark.parametrize("case", told(), ids=lambda case: case.name)


@CASES
def test_a_pair_is_told_as_the_table_says(case: Told) -> None:
    checklist = case.check()
    named = {one.row.id for one in checklist.of(RowOutcome.DIFFERENT)} | case.rows.keys()
    ones = [row(checklist, name) for name in sorted(named)]
    by_hand = {one.row.id: rendered(one.by_hand) for one in ones if one.outcome is RowOutcome.BY_HAND}
    told = {one.row.id: (one.outcome.value, by_hand.get(one.row.id) or to_change(one)) for one in ones}
    assert {name: ": ".join(filter(None, parts)) for name, parts in told.items()} == case.rows
    assert json.loads(json_text(as_json(checklist, JSON, align_hooks="1")))["rows"]


@CASES
def test_what_is_told_is_clean_once_it_is_written(case: Told, tmp_path: Path) -> None:
    before, file = case.check(), tmp_path / f"{case.style}.yaml"
    file.write_text(yaml.safe_dump(mindformers_tree(case.style, case.keys)), encoding="utf-8")
    leaves_out = any(edit.form is Form.LEAVE_OUT for edit in before.edits)  # which no file does that stands over another
    assert (before.base == "") is leaves_out
    pasted = [] if leaves_out or not before.edits else [read_yaml(before.block, "mended.yaml", tmp_path)]
    for after in map(case.check, (fixed(str(file), before).configuration, *pasted)):
        assert differing(after) <= without_advice(before)
        untold = before.of(RowOutcome.UNKNOWN) or before.uncovered or None in [course.same for course in after.courses]
        if not (untold or without_advice(before)):
            assert (after.of(RowOutcome.UNKNOWN), after.exit_code) == ((), CLEAN)
