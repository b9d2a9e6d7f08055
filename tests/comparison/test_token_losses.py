"""Where along the sequence two runs' token losses part."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.typing import NDArray

from align_hooks.comparison.token_losses import Rows, Where, Wrong, behind_boundaries, compared, finding, positions
from align_hooks.comparison.verdict import Quantity, when
from align_hooks.messages import Message, message

LOSSES = np.random.default_rng(0).uniform(4, 8, (3, 40)).astype(np.float32)


def wrong(where: slice) -> NDArray[np.float32]:
    candidate = LOSSES.copy()
    candidate[:, where] *= 1 + 1e-3 * np.random.default_rng(1).standard_normal(candidate[:, where].shape).astype(np.float32)
    return candidate


@pytest.mark.parametrize(
    ("where", "told", "first"),
    [
        (slice(0, 0), Where.NOWHERE, 0),
        (slice(None), Where.EVERYWHERE, 0),
        (slice(1, None), Where.AFTER_THE_FIRST, 1),
        (slice(16, None), Where.FROM_ONE_ON, 16),
        (slice(5, 9), Where.HERE_AND_THERE, 5),
    ],
)
def test_a_pattern_is_told(where: slice, told: Where, first: int) -> None:
    assert positions((LOSSES, wrong(where)), 1e-5) == (told, first)


def test_a_finding_says_what_the_pattern_means() -> None:
    outcome = finding((LOSSES, wrong(slice(16, None))), 2, 1e-5)
    assert isinstance(outcome.what, Message)
    assert (outcome.what.id, outcome.what.arguments["position"]) == ("token_losses.from_one_on", 16)
    assert (outcome.step, outcome.quantity) == (2, Quantity.TOKEN_LOSSES)
    assert outcome.excess > 10
    assert finding((LOSSES, LOSSES), 0, 1e-5).what == message("token_losses.of", step=when(0))


def test_a_loss_that_is_not_finite_is_out() -> None:
    candidate = LOSSES.copy()
    candidate[1, 3] = np.nan
    outcome = finding((LOSSES, candidate), 0, 1e-5)
    assert outcome.excess == float("inf")
    assert isinstance(outcome.candidate, float)
    assert math.isnan(outcome.candidate)


@pytest.mark.parametrize("mask", [np.ones(LOSSES.shape), np.arange(40) < 30, None])
def test_only_tokens_that_count_are_compared(mask: NDArray[np.float32] | None) -> None:
    candidate = LOSSES.copy()
    candidate[:, 30:] = np.nan
    masks = None if mask is None else np.broadcast_to(mask, LOSSES.shape).astype(np.float32)
    outcome = compared(SimpleNamespace(token_losses=LOSSES, loss_mask=masks), SimpleNamespace(token_losses=candidate, loss_mask=None))
    assert (finding(outcome, 0, 1e-5).excess > 1) == (mask is None or bool(mask.all()))


def test_a_column_alone_is_no_pattern() -> None:
    assert positions((LOSSES, wrong(slice(39, None))), 1e-5) == (Where.HERE_AND_THERE, 39)


def documents(*ends: int) -> SimpleNamespace:
    """A batch whose rows each have one document, or two where the second begins at one of ``ends``."""
    positions = np.stack([np.concatenate([np.arange(end), np.arange(40 - end)]) for end in ends])
    return SimpleNamespace(position_ids=positions, attention_mask=None, causal=True, tokens=positions)


def masked(*ends: int) -> SimpleNamespace:
    """The same by a mask alone, ``[rows, 1, sequence, sequence]``, True where attention is forbidden."""
    of = np.stack([np.arange(40) >= end for end in ends])
    mask = (of[:, :, None] != of[:, None, :]) | ~np.tri(40, dtype=bool)
    return SimpleNamespace(position_ids=np.tile(np.arange(40), (len(ends), 1)), attention_mask=mask[:, None], causal=False, tokens=of)


@pytest.mark.parametrize("batch", [documents(20, 40, 10), masked(20, 40, 10)], ids=["positions", "mask"])
def test_tokens_behind_a_documents_end_are_told_by_it(batch: SimpleNamespace) -> None:
    candidate = LOSSES.copy()
    candidate[0, 20:] *= 1.001
    candidate[2, 10:] *= 1.001
    found = behind_boundaries((LOSSES, candidate), [batch, batch], 1e-5)  # type: ignore[list-item]
    assert found == Wrong(Rows.DOCUMENTS, message("wrong_rows.behind_documents", count=2, all=3))


@pytest.mark.parametrize(("row", "first"), [(0, 19), (1, 0), (2, 30)], ids=["before the end", "a row of one document", "one row of two"])
def test_other_tokens_are_not(row: int, first: int) -> None:
    candidate = LOSSES.copy()
    candidate[row, first:] *= 1.001
    assert behind_boundaries((LOSSES, candidate), [documents(20, 40, 10)], 1e-5) is None  # type: ignore[list-item]
    assert behind_boundaries((LOSSES, candidate), [documents(40, 40, 40)], 1e-5) is None  # type: ignore[list-item]
