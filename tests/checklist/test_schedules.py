"""How two schedules are held against each other; their formulas are held against the frameworks in ``tests/real/test_checklist.py``."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from align_hooks.checklist.schedule import FIRST, MOST, RATE, Schedule, differences, sampled


def constant(rate: float, steps: int | None = None) -> Schedule:
    """The same rate at every step."""
    return Schedule(lambda at: np.full(at.shape, rate), steps, "")


@pytest.mark.parametrize(("rate", "apart"), [(1e-3, 0.0), (0.0, 1.0), (2e-3, 0.5), (float("nan"), np.inf), (float("inf"), np.inf)])
def test_a_rate_that_is_no_number_is_never_the_same(rate: float, apart: float) -> None:
    steps, found = differences(constant(1e-3, 10), constant(rate, 8))
    assert steps.tolist() == list(range(8))
    assert found.tolist() == pytest.approx([apart] * 8)
    both_odd = differences(constant(rate, 8), constant(rate, 8))[1]
    assert bool((both_odd > RATE).any()) is not np.isfinite(rate)


def test_nothing_against_nothing_is_the_same() -> None:
    assert differences(constant(0.0), constant(0.0))[1].max() == 0.0


def test_a_formula_that_divides_by_zero_warns_nobody() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not np.isfinite(Schedule(lambda at: at / 0.0, 3, "").at(np.arange(3))).any()


def test_of_a_long_run_the_beginning_and_the_end_are_among_the_steps_that_are_compared() -> None:
    steps = sampled(10_000_000)
    assert len(steps) <= MOST
    assert steps[:FIRST].tolist() == list(range(FIRST))
    assert steps[-1] == 9_999_999
    assert sampled(MOST).tolist() == list(range(MOST))
