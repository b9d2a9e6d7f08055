"""Which rows hold an error of the forward pass, by how much every token is off, and what random numbers were drawn."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from align_hooks.comparison.token_losses import Rows, Wrong, logarithm, owners, pattern, shift
from align_hooks.comparison.verdict import Verdict, when
from align_hooks.messages import Side, message, sentences, terms
from align_hooks.record.schema import Launched, Manifest
from comparison.conftest import Compared
from synthetic import STEPS, Synthetic, row
from worded import arguments, ids

ONE, TWO, FOUR = ((2, 2),), ((1, 1), (1, 1)), ((1, 1, 1, 1),)
"""Rows of two micro-batches on one data-parallel rank, and on two ranks, and of four on one."""


def of(rows: tuple[tuple[int, ...], ...]) -> Any:
    return SimpleNamespace(rows=rows)


def test_rows_stand_in_the_order_micro_batch_rank_row() -> None:
    assert owners(of(((2, 1), (1, 1)))) == [(0, 0), (0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize(
    ("wrong", "reference", "candidate", "found"),
    [
        ([1, 1, 1, 1], ONE, ONE, Wrong()),
        ([0, 0, 0, 0], ONE, ONE, Wrong()),
        ([0, 1, 0, 1], ONE, TWO, Wrong(Rows.RANK, message("wrong_rows.of_rank", side=Side.CANDIDATE, ranks=terms([1])))),
        ([1, 0, 1, 0], TWO, ONE, Wrong(Rows.RANK, message("wrong_rows.of_rank", side=Side.REFERENCE, ranks=terms([0])))),
        ([0, 0, 1, 1], ONE, ONE, Wrong(Rows.LATER, message("wrong_rows.after_the_first_micro_batch", side=Side.CANDIDATE))),
        ([0, 0, 1, 1], FOUR, FOUR, Wrong(Rows.LATER, message("wrong_rows.after_micro_batches", side=Side.CANDIDATE, last=1))),
        ([1, 1, 0, 0], ONE, ONE, Wrong(Rows.MICRO_BATCH, message("wrong_rows.of_micro_batch", number=0, side=Side.CANDIDATE))),
        ([0, 1, 0, 0], ONE, ONE, Wrong(Rows.SOME, message("wrong_rows.some", rows=terms([1]), count=4))),
        ([0, 0, 1, 1], ((4,),), ((4,),), Wrong(Rows.SOME, message("wrong_rows.some", rows=terms([2, 3]), count=4))),
        ([0, *[1] * 6], ((7,),), ((7,),), Wrong(Rows.SOME, message("wrong_rows.first", rows=terms([1, 2, 3, 4, 5]), count=7))),
    ],
)
def test_the_pattern_of_wrong_rows(wrong: list[int], reference: Any, candidate: Any, found: Wrong) -> None:
    assert pattern(np.array(wrong, bool), (of(reference), of(candidate))) == found


def on_ranks(tp: int) -> Any:
    return SimpleNamespace(manifests={0: Manifest(launch=Launched(tp), place={"tp_size": tp})})


def test_one_number_on_every_token_is_told_and_whose_logarithm_it_is() -> None:
    losses = np.random.default_rng(0).uniform(5, 9, (4, 8))
    assert shift((losses, losses + math.log(2)), 3e-6) == pytest.approx(math.log(2))
    assert shift((losses, losses * 1.1), 3e-6) is None
    assert shift((losses, losses + 1e-7), 3e-6) is None
    assert logarithm(math.log(2), [on_ranks(1), on_ranks(2)]) == (Side.CANDIDATE, 2)
    assert logarithm(-math.log(4), [on_ranks(4), on_ranks(1)]) == (Side.REFERENCE, 4)
    assert logarithm(math.log(3), [on_ranks(1), on_ranks(2)]) is None


def test_a_later_step_on_equal_weights_is_judged_by_its_token_losses(compared: Compared, candidate: Synthetic) -> None:
    """Weights of step 1 are on record and equal, and what one row is computed with is not what was recorded."""
    reference = Synthetic()
    candidate.weights, candidate.gradients, candidate.moments = reference.weights, reference.gradients, reference.moments
    candidate.batches[1]["token_losses"][1] *= np.float32(1.001)
    outcome = compared(candidate)
    assert (outcome.first.name, outcome.first.findings[0].step, outcome.blame.place) == ("token losses", 1, "state")
    rows = message("wrong_rows.some", rows=terms([1]), count=4)
    assert outcome.first.common == sentences(rows, message("token_losses.earlier_steps_agree"))
    assert outcome.blame.suspects[0].what == outcome.first.common


def test_later_micro_batches_that_alone_are_wrong_are_a_matter_of_state(compared: Compared, candidate: Synthetic) -> None:
    candidate.micro_batches = [2, 2]
    candidate.batches[0]["token_losses"][2:] *= np.float32(1.01)
    outcome = compared(candidate, against=Synthetic(micro_batches=[2, 2]))
    carried = sentences(message("wrong_rows.after_the_first_micro_batch", side=Side.CANDIDATE))
    assert (outcome.blame.place, outcome.blame.suspects[0].what) == ("state", carried)


def dropping(start: int, moved: bool = True) -> Synthetic:
    """A run that draws random numbers in every micro-batch, from another state where ``start`` is another."""
    states = [[{"torch": f"{start if step else 0}-{step}-{part}" if moved else "same"} for part in range(2)] for step in range(STEPS)]
    return Synthetic(rows=[row(step) | {"random": [states[step][0], {}, states[step][1]]} for step in range(STEPS)])


def test_other_random_states_are_the_first_suspect_where_they_are_drawn_from(compared: Compared) -> None:
    candidate = dropping(1)
    for step in range(1, STEPS):
        candidate.batches[step]["token_losses"] *= np.float32(1.01)
    outcome = compared(candidate, against=dropping(2))
    differ = message("random_states.differ", where=when(1), generators=terms(["torch"]), rank=0)
    assert (outcome.blame.place, outcome.blame.suspects[0].what, outcome.blame.causes[0]) == ("state", differ, "random_numbers")


def test_random_states_that_nothing_is_drawn_from_are_no_difference(compared: Compared) -> None:
    reference, candidate = (Synthetic(rows=[row(step) | {"random": [{"torch": name}]} for step in range(STEPS)]) for name in "ab")
    outcome = compared(candidate, against=reference)
    assert outcome.verdict is Verdict.ALIGNED
    assert "random_states.differ" not in ids(outcome.notes)


def test_random_states_that_differ_and_show_nowhere_are_a_note(compared: Compared) -> None:
    outcome = compared(dropping(1), against=dropping(2))
    assert outcome.verdict is Verdict.ALIGNED
    assert arguments("random_states.differ", outcome.notes) == {"where": when(1), "generators": terms(["torch"]), "rank": 0}


def test_rows_are_no_ranks_where_only_some_of_their_positions_are_wrong(compared: Compared, candidate: Synthetic) -> None:
    """A window of the attention shows in rows that are long enough, wherever these stand."""
    candidate.micro_batches = [2, 2]
    candidate.batches[0]["token_losses"][2:, 3:] *= np.float32(1.01)
    outcome = compared(candidate, against=Synthetic(micro_batches=[2, 2]))
    rows = sentences(message("wrong_rows.some", rows=terms([2, 3]), count=4))
    assert (outcome.blame.place, outcome.blame.suspects[0].what) == ("forward", rows)
