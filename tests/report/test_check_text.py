"""A check on a terminal of any width: what is told to be written can be copied from it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from align_hooks.checklist.judge import Outcome
from align_hooks.checklist.result import Scheduled
from align_hooks.checklist.sides import check
from align_hooks.messages import rendered
from align_hooks.report.check_text import render_check, widths
from checklist.exercises import to_change
from worded import words

LAUNCH = Path(__file__).parents[2] / "launch"
HEAD, RATES = words("heading.change"), rendered(Scheduled.LEARNING_RATE)
CHANGED = {"hidden_size: 64": "hidden_size: 128", "rms_norm_eps: 1.0e-5": "rms_norm_eps: 1.0e-6", "rope_theta": "theta_of_ropes"}


@pytest.mark.parametrize("width", [60, 80, 200])
def test_nothing_of_a_change_is_cut(width: int, tmp_path: Path) -> None:
    text = (LAUNCH / "llama.yaml").read_text()
    for before, after in CHANGED.items():
        text = text.replace(before, after)
    (tmp_path / "other.yaml").write_text(text)
    checklist, out = check(str(LAUNCH / "llama.args"), str(tmp_path / "other.yaml"), {}), io.StringIO()
    render_check(checklist, Console(width=width, file=out))
    lines = out.getvalue().splitlines()
    first = next(index for index, line in enumerate(lines) if HEAD in line)
    tables = lines[first : next(index for index, line in enumerate(lines) if line.startswith(f"  {RATES[:13]}"))]
    assert max(len(line.rstrip()) for line in tables) <= width
    last, start = "", 0
    for line in tables:
        start = line.index(HEAD) if HEAD in line else start
        last += line[start:].replace(" ", "")
    changes = [to_change(checked).replace(" ", "") for checked in checklist.of(Outcome.DIFFERENT)]
    assert len(changes) >= 2
    assert [change for change in changes if change not in last] == []


def test_widths_give_way_from_the_widest_on() -> None:
    rows = [("a" * 30, "b" * 60, "c", "d" * 80)]
    assert widths(rows, 200) == [30, 60, 1, 80]
    assert sum(widths(rows, 71)) == 71
    assert widths(rows, 71)[2] == 1
    assert widths(rows, 10) == [12, 12, 1, 24]  # none is narrower than that
