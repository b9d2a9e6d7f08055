"""What differs between two trainings: nothing of equal ones, and the first place of each kind."""

import math
from collections.abc import Callable
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from align_hooks.job.witness import Witnessed
from align_hooks.proof.difference import Difference, DifferenceKind, differences
from proving.sample import STEPS, with_loss, witnessed

PLAIN = [witnessed(0), witnessed(1)]


def test_equal_trainings_have_none() -> None:
    assert differences(PLAIN, deepcopy(PLAIN)) == []


@given(st.integers(0, STEPS - 1), st.integers(0, 1), st.floats())
def test_another_loss_is_told_by_its_step_and_size(step: int, rank: int, loss: float) -> None:
    before = float.fromhex(PLAIN[rank].steps[step].losses[0])
    found = differences(PLAIN, with_loss(step, loss, rank))
    if loss == before:
        assert found == []
        return
    apart = abs(loss - before) / before if math.isfinite(loss) else math.inf
    assert found == [Difference(DifferenceKind.LOSS, "", rank, step, 1, 2 * STEPS, apart)]


def test_a_loss_that_is_nan_in_both_is_equal() -> None:
    assert differences(with_loss(2, math.nan), with_loss(2, math.nan)) == []


def drawn(seen: Witnessed) -> None:
    for step in seen.steps[2:]:
        step.generators = {"torch": "drawn"}


def initial(seen: Witnessed) -> None:
    seen.initial["bias"] = "z"


def final(seen: Witnessed) -> None:
    seen.final |= {"weight": "z", "bias": "z"}


def grown(seen: Witnessed) -> None:
    seen.nodes["MulBackward0"] = 2


def lost(seen: Witnessed) -> None:
    del seen.final["weight"]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (drawn, Difference(DifferenceKind.RANDOM, "torch", 1, 2, 2, 2 * STEPS)),
        (initial, Difference(DifferenceKind.INITIAL, "bias", 1, None, 1, 4)),
        (final, Difference(DifferenceKind.FINAL, "weight", 1, None, 2, 4)),
        (grown, Difference(DifferenceKind.GRAPH, "MulBackward0", 1, None, 2, 6)),
        (lost, Difference(DifferenceKind.FINAL, "weight", 1, None, 1, 4)),
    ],
)
def test_each_kind_is_told_by_its_first_place(change: Callable[[Witnessed], None], found: Difference) -> None:
    other = deepcopy(PLAIN)
    change(other[1])
    assert differences(PLAIN, other) == [found]


def test_what_hooks_add_to_a_training_cell_is_no_difference() -> None:
    other = deepcopy(PLAIN)
    other[0].final["buffer of a hook"] = "z"
    assert differences(PLAIN, other) == []
