"""What every version computes alike: the one definition of a local norm, and that of the digest of a step's tokens."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from align_hooks.record.format.norms import CHUNK, squared_sum
from align_hooks.record.format.token_digest import POSITIONS, ROWS, digest, multipliers, text
from synthetic import norm


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 1_000_003])
def test_it_stays_within_3e_7_of_fp64(size: int) -> None:
    array = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    assert math.sqrt(squared_sum(array)) == pytest.approx(norm(array), rel=3e-7)


def test_it_holds_where_a_plain_fp32_norm_does_not() -> None:
    array = np.full((2000, 8 * CHUNK), 1e-2, np.float32)
    assert math.sqrt(squared_sum(array)) == pytest.approx(norm(array), rel=3e-7)
    assert float(np.cumsum(np.square(array.reshape(-1)))[-1]) != pytest.approx(norm(array) ** 2, rel=4e-6)


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


BATCH = np.arange(4 * 16).reshape(4, 16) % 7


def test_equal_tokens_have_equal_digests_of_13_digits_whatever_their_type() -> None:
    assert digest(BATCH) == digest(BATCH.astype(np.int32)) == digest(BATCH.astype(np.uint16))
    assert len(digest(BATCH)) == 13 and int(digest(BATCH), 16) >= 0


@given(arrays(np.int64, (3, 5), elements=st.integers(0, 200_000)), st.integers(0, 2), st.integers(0, 4), st.integers(0, 200_000))
def test_one_other_token_makes_another_digest(batch: np.ndarray, row: int, place: int, token: int) -> None:
    other = batch.copy()
    other[row, place] = token
    assert (digest(other) == digest(batch)) == bool((other == batch).all())


PADDED = np.pad(BATCH, ((0, 0), (0, 5)))
"""With ids of 0, which pad in many vocabularies."""


MOVED = [BATCH[::-1], BATCH[:, ::-1], np.roll(BATCH, 1, 0), np.roll(BATCH, 1, 1), BATCH[:3], BATCH[:, :15]]


@pytest.mark.parametrize("moved", [PADDED, np.pad(BATCH, ((0, 2), (0, 0))), *MOVED])
def test_order_and_size_count(moved: np.ndarray) -> None:
    assert digest(moved) != digest(BATCH)


def test_no_two_multipliers_are_equal_and_all_are_odd() -> None:
    numbers = np.concatenate([multipliers(1 << 16, POSITIONS), multipliers(1 << 16, ROWS)])
    assert len(np.unique(numbers)) == len(numbers) and (numbers & 1).all()
    np.testing.assert_array_equal(multipliers(8, ROWS), multipliers(64, ROWS)[:8])


def test_a_number_of_either_sign_has_one_text() -> None:
    assert text(-1) == "f" * 13
    assert text(1) == "0" * 12 + "1"
