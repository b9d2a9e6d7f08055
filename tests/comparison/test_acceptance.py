"""The guide's acceptance standard, and the command that judges by it."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert

from align_hooks.cli import app
from align_hooks.comparison.acceptance import AcceptanceOutcome, acceptance, observed, outcome
from align_hooks.errors import RecordError
from align_hooks.messages import rendered
from align_hooks.record.format.rows import ScalarRow
from invoked import Result, invoke
from synthetic import row, scalars_only
from worded import words

FINE = (1.0, 1.0)


def pairs(losses: Sequence[Any], norms: Sequence[Any] = (), **others: Any) -> list[tuple[ScalarRow, ScalarRow]]:
    norms = norms or [FINE] * len(losses)
    return [
        tuple(convert(row(step, loss=loss, grad_norm=norm, **others), ScalarRow) for loss, norm in zip(*both, strict=True))
        for step, both in enumerate(zip(losses, norms, strict=True))
    ]


@pytest.mark.parametrize(
    ("losses", "norms", "passed"),
    [
        ([FINE], [FINE], [True, True, True]),
        ([(9.0, 9.04)], [FINE], [True, True, True]),  # 0.04 absolute and 0.44 %
        ([(9.0, 9.05)], [FINE], [False, True, True]),
        ([(0.1, 0.104)], [FINE], [True, True, True]),  # 4 % and 0.004 absolute
        ([(0.1, 0.106)], [FINE], [False, True, True]),
        ([FINE, (1.0, 1.03)], [FINE, FINE], [True, False, True]),
        ([FINE], [(1.0, 1.09)], [True, True, True]),
        ([FINE], [(1.0, 1.2)], [True, True, False]),
        ([FINE], [(10.0, 11.0)], [True, True, True]),  # "no more than 10 %", where the losses are to be less
        ([(1.0, math.nan)], [(1.0, math.nan)], [False, False, False]),
        ([(None, 1.0)], [(1.0, None)], [None, None, None]),
        ([], [], [None, None, None]),
    ],
)
def test_the_guides_standard_is_judged_as_the_guide_says(losses: list[Any], norms: list[Any], passed: list[bool | None]) -> None:
    assert [criterion.passed for criterion in acceptance(pairs(losses, norms))] == passed


def test_the_standard_is_widened_to_what_the_reference_itself_differs_by() -> None:
    """As the standard's second rule says."""
    far, own = pairs([(1.0, 1.1)] * 3, [(1.0, 1.3)] * 3), pairs([(1.0, 0.88)] * 3, [(1.0, 1.2)] * 3)
    assert [criterion.passed for criterion in acceptance(far)] == [False, False, False]
    assert [criterion.passed for criterion in acceptance(far, [own])] == [True, True, False]
    assert [criterion.own is not None for criterion in acceptance(far, [own])] == [True, True, True]
    of_nothing = pairs([(1.0, math.nan)], [(1.0, math.nan)])
    assert [criterion.passed for criterion in acceptance(far, [of_nothing])] == [False, False, False]


@pytest.mark.parametrize(
    ("steps", "seconds", "passed"),
    [(5000, 0.1, True), (1000, 0.1, True), (999, 0.1, None), (100, 432.0, True), (100, 431.0, None), (0, 1.0, None)],
)
def test_how_long_a_pair_is_observed(steps: int, seconds: float, passed: bool | None) -> None:
    assert observed(pairs([FINE] * steps, seconds=seconds)).passed is passed


def test_what_the_criteria_come_to() -> None:
    fine, few = observed(pairs([FINE] * 1000)), observed(pairs([FINE] * 3))
    assert outcome([fine, *acceptance(pairs([FINE]))]) is AcceptanceOutcome.ACCEPTED
    assert outcome([few, *acceptance(pairs([FINE]))]) is AcceptanceOutcome.OPEN
    assert outcome([few, *acceptance(pairs([(1.0, 2.0)]))]) is AcceptanceOutcome.REFUSED
    assert [each.exit_code for each in (AcceptanceOutcome.ACCEPTED, AcceptanceOutcome.REFUSED, AcceptanceOutcome.OPEN)] == [0, 1, 4]


def accepted(*arguments: object) -> Result:
    return invoke(app, ["accept", *map(str, arguments)])


def test_a_pipeline_reads_the_exit_code_and_the_file(tmp_path: Path) -> None:
    reference, again, repeat = (scalars_only().write(tmp_path / name) for name in ("reference", "again", "repeat"))
    done = accepted(reference, again, "--noise", repeat, "--json", tmp_path / "accepted.json")
    text = " ".join(done.stdout.split())
    assert done.exit_code == 4
    assert text.startswith(f"{rendered(AcceptanceOutcome.OPEN)}: {words('acceptance.unknown')}")
    assert words("acceptance.repeats", count=1, needed=2) in text
    said = json.loads((tmp_path / "accepted.json").read_text())
    assert (said["outcome"], said["exit_code"]) == ("open", 4)
    passed = {each["name"]: each["passed"] for each in said["criteria"]}
    assert passed == {"steps": None, "first_loss": True, "mean_loss": True, "mean_norm": True}
    assert all(each["reference_own"] is not None for each in said["criteria"][1:])


def test_a_repeat_that_is_the_run_itself_is_refused(tmp_path: Path) -> None:
    reference, candidate = (scalars_only().write(tmp_path / name) for name in ("reference", "candidate"))
    done = accepted(reference, candidate, "--noise", reference)
    assert isinstance(done.exception, RecordError)
    assert words("noise.compared_itself") in str(done.exception)


def test_logs_and_tables_are_judged_as_they_are(tmp_path: Path) -> None:
    table = "step,loss,grad_norm\n" + "".join(f"{step},{9 - step / 1000},1.5\n" for step in range(1200))
    files = tmp_path / "reference.csv", tmp_path / "candidate.csv"
    files[0].write_text(table)
    files[1].write_text(table.replace("1100,7.9,", "1100,7.95,"))
    near = accepted(*files)
    assert near.exit_code == 0, near.output
