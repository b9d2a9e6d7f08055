"""The one definition of a local norm."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from align_hooks.record.norms import CHUNK, squared_sum


def exact(array: np.ndarray) -> float:
    return float(np.square(array.astype(np.float64)).sum())


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 1_000_003])
def test_it_stays_within_3e_7_of_fp64(size: int) -> None:
    array = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    assert math.sqrt(squared_sum(array)) == pytest.approx(math.sqrt(exact(array)), rel=3e-7)


def test_it_holds_where_a_plain_fp32_norm_does_not() -> None:
    array = np.full((2000, 8 * CHUNK), 1e-2, np.float32)
    assert math.sqrt(squared_sum(array)) == pytest.approx(math.sqrt(exact(array)), rel=3e-7)
    assert float(np.cumsum(np.square(array.reshape(-1)))[-1]) != pytest.approx(exact(array), rel=4e-6)


@settings(max_examples=30)
@given(st.lists(st.integers(0, 4 * CHUNK), max_size=3))
def test_shards_add_up_to_the_whole(cuts: list[int]) -> None:
    array = np.random.default_rng(1).standard_normal(4 * CHUNK).astype(np.float32)
    assert sum(squared_sum(part) for part in np.split(array, sorted(cuts))) == pytest.approx(squared_sum(array), rel=1e-6)


def test_order_is_row_major_whatever_the_memory_layout() -> None:
    array = np.random.default_rng(2).standard_normal((300, 200)).astype(np.float32)
    assert squared_sum(np.asfortranarray(array)) == squared_sum(array)
    assert squared_sum(array[::2]) == squared_sum(array[::2].copy())


@pytest.mark.parametrize("place", [0, CHUNK, CHUNK + 5])
def test_nan_anywhere_is_seen(place: int) -> None:
    array = np.zeros(CHUNK + 10, np.float32)
    array[place] = np.nan
    assert math.isnan(squared_sum(array))


def test_half_precision_is_squared_as_fp32() -> None:
    assert squared_sum(np.full(4, 1e4, np.float16)) == pytest.approx(4e8)


def test_nothing_is_left_out() -> None:
    assert squared_sum(np.ones((3, CHUNK + 1), np.float32)) == 3 * (CHUNK + 1)
