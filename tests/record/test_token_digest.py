"""The digest of a step's tokens: of what they are and where they stand, and the same however they are cut into micro-batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from align_hooks.record.token_digest import POSITIONS, ROWS, digest, multipliers, text

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


@pytest.mark.parametrize(
    "moved",
    [
        PADDED,
        np.pad(BATCH, ((0, 2), (0, 0))),
        BATCH[::-1],
        BATCH[:, ::-1],
        np.roll(BATCH, 1, 0),
        np.roll(BATCH, 1, 1),
        BATCH[:3],
        BATCH[:, :15],
    ],
)
def test_order_and_size_count(moved: np.ndarray) -> None:
    assert digest(moved) != digest(BATCH)


def test_no_two_multipliers_are_equal_and_all_are_odd() -> None:
    numbers = np.concatenate([multipliers(1 << 16, POSITIONS), multipliers(1 << 16, ROWS)])
    assert len(np.unique(numbers)) == len(numbers) and (numbers & 1).all()
    np.testing.assert_array_equal(multipliers(8, ROWS), multipliers(64, ROWS)[:8])


def test_a_number_of_either_sign_has_one_text() -> None:
    assert text(-1) == "f" * 13
    assert text(1) == "0" * 12 + "1"
