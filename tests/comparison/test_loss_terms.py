"""The terms of the loss beside the language model's: found apart from the losses of tokens, with their coefficients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from align_hooks import open_run
from align_hooks.comparison.verdict import Comparison, Place, Status, Verdict
from align_hooks.record.terms import AUXILIARY, PREDICTION
from comparison.conftest import Compared, stage
from synthetic import Synthetic

Terms = Mapping[str, float] | None
Pair = Callable[[Terms, Terms], Comparison]
"""Compares runs with these terms: the reference's, the candidate's."""


def run_with(terms: Terms) -> Synthetic:
    run = Synthetic()
    for row in run.rows:
        row["terms"] = terms  # type: ignore[assignment]
    return run


@pytest.fixture
def pair(compared: Compared) -> Pair:
    return lambda ours, theirs: compared(run_with(theirs), against=run_with(ours))


@pytest.mark.parametrize("terms", [None, {}])
def test_models_of_one_term_have_no_such_stage(pair: Pair, terms: Terms) -> None:
    comparison = pair(terms, terms)
    assert comparison.verdict is Verdict.ALIGNED
    assert "loss terms" not in {result.name for result in comparison.stages}


def test_equal_terms_are_the_same_and_part_of_the_objective(pair: Pair, tmp_path: Path) -> None:
    ours = {AUXILIARY: 0.002, PREDICTION: 1.5}
    comparison = pair(ours, ours | {AUXILIARY: 0.002 * (1 + 1e-7)})
    result = stage(comparison, "loss terms")
    assert (comparison.verdict, result.status) == (Verdict.ALIGNED, Status.SAME)
    assert {finding.name for finding in result.findings} == {AUXILIARY, PREDICTION}
    row = open_run(run_with(ours).write(tmp_path / "ours")).rows[0]
    assert row.objective_loss == pytest.approx(row.loss + 1.502, rel=1e-12)


def test_another_coefficient_is_named_although_every_token_agrees(pair: Pair) -> None:
    comparison = pair({AUXILIARY: 0.002}, {AUXILIARY: 0.02})
    assert (comparison.verdict, comparison.first.name) == (Verdict.DIVERGED, "loss terms")
    assert (comparison.blame.place, comparison.blame.suspects[0].name) == (Place.GRADIENTS, AUXILIARY)
    assert stage(comparison, "token losses").status is Status.SAME


def test_a_term_that_one_side_lacks_is_zero_there(pair: Pair) -> None:
    assert stage(pair({PREDICTION: 1.5}, {PREDICTION: 1.5, AUXILIARY: 0.0}), "loss terms").status is Status.SAME
    assert stage(pair({PREDICTION: 1.5}, {}), "loss terms").status is Status.DIFFERENT


def test_of_a_record_that_does_not_know_its_terms_the_language_models_objective_is_compared(pair: Pair) -> None:
    """As records of earlier versions do not."""
    comparison = pair(None, {AUXILIARY: 0.02})
    assert comparison.verdict is Verdict.ALIGNED
    assert stage(comparison, "loss terms").status is Status.NOT_COMPARED
    assert stage(comparison, "step-0 loss").status is Status.SAME
