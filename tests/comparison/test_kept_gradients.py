"""Gradients that have those of the step before in them."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from align_hooks.comparison.finding import when
from align_hooks.comparison.patterns.kept_gradients import kept_gradients, shared_factor
from align_hooks.messages import Side, message

Tensors = dict[str, np.ndarray]


def drawn(seed: int, tensors: int = 4) -> Tensors:
    random = np.random.default_rng(seed)
    return {f"model.layers.{index}.weight": random.standard_normal((3, 5)).astype(np.float32) for index in range(tensors)}


def plus(one: Tensors, factor: float, other: Tensors) -> Tensors:
    return {name: one[name] + np.float32(factor) * other[name] for name in one}


def run(*steps: Tensors | None) -> Any:
    """A run with these gradients by step; None in a step without any."""
    return SimpleNamespace(has=lambda kind, step: steps[step] is not None, gradients=lambda step: steps[step])


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("factor", [1.0, 0.173])
def test_what_is_left_is_named_with_its_side_and_number(side: Side, factor: float) -> None:
    """1, or what clipping made of it; at the first step that shows it."""
    first, second, third = map(drawn, range(3))
    honest, wrong = run(first, second, third), run(first, plus(second, factor, first), plus(third, factor, second))
    runs = (wrong, honest) if side is Side.REFERENCE else (honest, wrong)
    words = message("free_running.kept_gradients", side=side, step=when(1), before=when(0), factor=pytest.approx(factor, rel=1e-5))
    assert kept_gradients(runs, [1, 2]) == words
    assert kept_gradients((run(None, second, third), run(None, plus(second, factor, first), third)), [1]) is None


@given(st.integers(0, 2**31), st.sampled_from([0.0, -1.0, 1e-3, 0.3]))
def test_another_difference_is_none(seed: int, factor: float) -> None:
    """Noise, the earlier gradients the other way round, and them with as much noise beside."""
    before, other, noise = (drawn(seed + index) for index in range(3))
    assert shared_factor(plus(plus(other, factor, before), 0.5, noise), other, before) is None
    assert factor > 0 or shared_factor(plus(other, factor, before), other, before) is None


def test_numbers_of_tensors_that_differ_are_no_pattern() -> None:
    before, other = drawn(0), drawn(1)
    mixed = {name: other[name] + np.float32(index + 1) * before[name] for index, name in enumerate(other)}
    assert shared_factor(mixed, other, before) is None
    assert shared_factor({name: mixed[name] for name in list(mixed)[:1]}, other, before) is None
    assert shared_factor({}, {}, {}) is None
