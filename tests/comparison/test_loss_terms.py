"""The terms of the loss beside the language model's: found apart from the losses of tokens, with their coefficients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from align_hooks import open_run
from align_hooks.comparison.runs import compare
from align_hooks.comparison.verdict import Comparison, Place, Status, Verdict
from align_hooks.record.terms import AUXILIARY, PREDICTION
from comparison.conftest import stage
from synthetic import Synthetic

Terms = Mapping[str, float] | None


@pytest.fixture(autouse=True)
def unsynced() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        yield


def run_with(terms: Terms) -> Synthetic:
    run = Synthetic()
    for row in run.rows:
        row["terms"] = terms  # type: ignore[assignment]
    return run


def pair(tmp_path: Path, ours: Terms, theirs: Terms) -> Comparison:
    return compare(*(open_run(run_with(terms).write(tmp_path / name)) for name, terms in {"ours": ours, "theirs": theirs}.items()))


@pytest.mark.parametrize("terms", [None, {}])
def test_models_of_one_term_have_no_such_stage(tmp_path: Path, terms: Terms) -> None:
    comparison = pair(tmp_path, terms, terms)
    assert comparison.verdict is Verdict.ALIGNED
    assert "loss terms" not in {result.name for result in comparison.stages}


def test_equal_terms_are_the_same_and_part_of_the_objective(tmp_path: Path) -> None:
    comparison = pair(tmp_path, {AUXILIARY: 0.002, PREDICTION: 1.5}, {AUXILIARY: 0.002 * (1 + 1e-7), PREDICTION: 1.5})
    assert comparison.verdict is Verdict.ALIGNED
    result = stage(comparison, "loss terms")
    assert result.status is Status.SAME
    assert {finding.name for finding in result.findings} == {AUXILIARY, PREDICTION}
    row = open_run(tmp_path / "ours").rows[0]
    assert row.loss is not None
    assert row.objective_loss == pytest.approx(row.loss + 1.502, rel=1e-12)


def test_another_coefficient_is_named_although_every_token_agrees(tmp_path: Path) -> None:
    comparison = pair(tmp_path, {AUXILIARY: 0.002}, {AUXILIARY: 0.02})
    assert comparison.verdict is Verdict.DIVERGED
    assert comparison.first is not None and comparison.first.name == "loss terms"
    assert comparison.blame is not None
    assert comparison.blame.place is Place.GRADIENTS
    assert comparison.blame.suspects[0].name == AUXILIARY
    assert stage(comparison, "token losses").status is Status.SAME


def test_a_term_that_one_side_lacks_is_zero_there(tmp_path: Path) -> None:
    result = stage(pair(tmp_path, {PREDICTION: 1.5}, {PREDICTION: 1.5, AUXILIARY: 0.0}), "loss terms")
    assert result.status is Status.SAME
    (tmp_path / "again").mkdir()
    assert stage(pair(tmp_path / "again", {PREDICTION: 1.5}, {}), "loss terms").status is Status.DIFFERENT


def test_of_a_record_that_does_not_know_its_terms_the_language_models_objective_is_compared(tmp_path: Path) -> None:
    """As records of earlier versions do not."""
    comparison = pair(tmp_path, None, {AUXILIARY: 0.02})
    assert comparison.verdict is Verdict.ALIGNED
    assert stage(comparison, "loss terms").status is Status.NOT_COMPARED
    assert stage(comparison, "step-0 loss").status is Status.SAME
