"""What the batches of some steps have in common, and others have not."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace as Of
from typing import Any

import numpy as np
import pytest

from align_hooks.comparison.shared_ids import Shared, shared_ids

STEPS = 100
ODD = 500
"""An id that no batch holds by itself."""


def run(odd: Mapping[int, int], size: int = 512) -> Any:
    """Batches of 200 ids that any may hold; ``odd`` are others, by step."""
    random = np.random.default_rng(0)
    tokens = {step: random.integers(0, 200, (4, size // 4)) for step in range(STEPS)}
    for step, id in odd.items():
        tokens[step][1, 7] = id
    return Of(batch=lambda step, names=("tokens",): Of(tokens=tokens[step]))


def others(*steps: int) -> list[int]:
    return [step for step in range(STEPS) if step not in steps]


def test_an_id_that_these_steps_alone_hold_is_found() -> None:
    steps = [3, 40, 41, 77]
    assert shared_ids(run(dict.fromkeys(steps, ODD)), steps, others(*steps)) == [Shared(ODD, 4, 0)]


def test_one_that_few_others_hold_is_found_with_their_number() -> None:
    steps = [3, 40, 41, 77]
    assert shared_ids(run(dict.fromkeys([*steps, 50], ODD)), steps, others(*steps)) == [Shared(ODD, 4, 1)]


@pytest.mark.parametrize("steps", [[], [3], [3, 40]], ids=len)
def test_of_few_steps_nothing_is_said(steps: list[int]) -> None:
    assert shared_ids(run(dict.fromkeys(steps, ODD)), steps, others(*steps)) == []


def test_ids_that_are_in_common_by_chance_are_not_told() -> None:
    """Every batch of 100 of 200 ids holds two fifths of them: four have some in common."""
    found = [shared_ids(run({}, 100), steps, others(*steps)) for steps in ([3, 40, 41, 77], [0, 1, 2], [90, 5, 17])]
    assert found == [[], [], []]


def test_where_many_ids_fit_none_is_told() -> None:
    steps = [3, 40, 41, 77]
    made = run({})
    for step in steps:
        made.batch(step).tokens[0, :8] = range(ODD, ODD + 8)
    assert shared_ids(made, steps, others(*steps)) == []
