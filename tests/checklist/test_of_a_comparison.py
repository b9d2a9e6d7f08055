"""The check of a comparison's two records, with the batches that the comparison looked at."""

from pathlib import Path

import pytest

import align_hooks.checklist.sides as sides
from align_hooks import open_run
from align_hooks.checklist.judge import RowOutcome
from align_hooks.checklist.sides import check_runs
from align_hooks.comparison.pipeline import compare
from align_hooks.messages import Side
from checklist.test_records import facts
from synthetic import Synthetic


def test_batches_that_a_comparison_looked_at_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synthetic = Synthetic()
    synthetic.facts = {"arguments": facts("torch")["arguments"]}
    runs = tuple(open_run(synthetic.write(tmp_path / name)) for name in ("reference", "candidate"))
    statistics = compare(*runs).statistics
    assert {*statistics} == {*Side}
    anew = check_runs(*runs, {})
    monkeypatch.setattr(sides, "of_run", None)
    once = check_runs(*runs, statistics)
    assert anew is not None and once is not None
    for outcome in RowOutcome:
        assert [checked.row.id for checked in once.of(outcome)] == [checked.row.id for checked in anew.of(outcome)]
    for ours, theirs in zip(once.sides, anew.sides, strict=True):
        assert ours.statistics is not None and theirs.statistics is not None
        assert [getattr(ours.statistics, name) for name in TOLD] == [getattr(theirs.statistics, name) for name in TOLD]


TOLD = ("steps", "rows", "tokens", "counted", "smallest", "largest", "shifted", "pairs", "samples", "problems", "notes", "digests")
"""What reports tell of a look."""
