"""Where along the sequence and in which rows two runs' token losses part, by how much, and what random numbers were drawn."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from align_hooks.comparison.data.token_losses import (
    AffectedRows,
    Where,
    Wrong,
    behind_boundaries,
    by_document,
    compared,
    finding,
    half_type,
    logarithm,
    owners,
    pattern,
    positions,
    shift,
)
from align_hooks.comparison.finding import Metric, when
from align_hooks.comparison.verdict import Verdict
from align_hooks.messages import Message, Side, message, sentences, terms
from align_hooks.record.format.schema import Launched, Manifest
from comparison.conftest import Compared
from synthetic import STEPS, Synthetic, row
from worded import arguments, ids

LOSSES = np.random.default_rng(0).uniform(4, 8, (3, 40)).astype(np.float32)


def wrong(where: slice) -> NDArray[np.float32]:
    candidate = LOSSES.copy()
    candidate[:, where] *= 1 + 1e-3 * np.random.default_rng(1).standard_normal(candidate[:, where].shape).astype(np.float32)
    return candidate


def changed(rows: object, columns: object, factor: float) -> NDArray[np.float32]:
    """The losses, some of them multiplied."""
    candidate = LOSSES.copy()
    candidate[rows, columns] *= np.float32(factor)
    return candidate


@pytest.mark.parametrize(
    ("where", "told", "first"),
    [
        (slice(0, 0), Where.NOWHERE, 0),
        (slice(None), Where.EVERYWHERE, 0),
        (slice(1, None), Where.AFTER_THE_FIRST, 1),
        (slice(16, None), Where.FROM_ONE_ON, 16),
        (slice(5, 9), Where.HERE_AND_THERE, 5),
        (slice(39, None), Where.HERE_AND_THERE, 39),  # a column alone is no pattern
    ],
)
def test_a_pattern_is_told(where: slice, told: Where, first: int) -> None:
    assert positions((LOSSES, wrong(where)), 1e-5) == (told, first)


def test_a_finding_says_what_the_pattern_means() -> None:
    outcome = finding((LOSSES, wrong(slice(16, None))), 2, 1e-5)
    assert isinstance(outcome.what, Message)
    assert (outcome.what.id, outcome.what.arguments["position"]) == ("token_losses.from_one_on", 16)
    assert (outcome.step, outcome.quantity) == (2, Metric.TOKEN_LOSSES)
    assert outcome.limit_ratio > 10
    assert finding((LOSSES, LOSSES), 0, 1e-5).what == message("token_losses.of", step=when(0))


def test_a_loss_that_is_not_finite_is_out() -> None:
    outcome = finding((LOSSES, changed(1, 3, math.nan)), 0, 1e-5)
    assert outcome.limit_ratio == float("inf")
    assert math.isnan(outcome.candidate)


@pytest.mark.parametrize("mask", [np.ones(LOSSES.shape), np.arange(40) < 30, None])
def test_only_tokens_that_count_are_compared(mask: NDArray[np.float32] | None) -> None:
    candidate = SimpleNamespace(token_losses=changed(slice(None), slice(30, None), math.nan), loss_mask=None)
    masks = None if mask is None else np.broadcast_to(mask, LOSSES.shape).astype(np.float32)
    outcome = compared(SimpleNamespace(token_losses=LOSSES, loss_mask=masks), candidate)
    assert (finding(outcome, 0, 1e-5).limit_ratio > 1) == (mask is None or bool(mask.all()))


def documents(*ends: int) -> SimpleNamespace:
    """A batch whose rows each have one document, or two where the second begins at one of ``ends``."""
    positions = np.stack([np.concatenate([np.arange(end), np.arange(40 - end)]) for end in ends])
    return SimpleNamespace(position_ids=positions, attention_mask=None, causal=True, tokens=positions, documents=None)


def masked(*ends: int) -> SimpleNamespace:
    """The same by a mask alone, ``[rows, 1, sequence, sequence]``, True where attention is forbidden."""
    of = np.stack([np.arange(40) >= end for end in ends])
    mask = (of[:, :, None] != of[:, None, :]) | ~np.tri(40, dtype=bool)
    positions = np.tile(np.arange(40), (len(ends), 1))
    return SimpleNamespace(position_ids=positions, attention_mask=mask[:, None], causal=False, tokens=of, documents=None)


def packed(*ends: int) -> SimpleNamespace:
    """The same by packed samples."""
    of = np.stack([np.arange(40) >= end for end in ends]).astype(np.int32)
    return SimpleNamespace(position_ids=None, attention_mask=None, causal=True, tokens=of, documents=of)


@pytest.mark.parametrize("batch", [documents(20, 40, 10), masked(20, 40, 10), packed(20, 40, 10)], ids=["positions", "mask", "packed"])
def test_tokens_behind_a_documents_end_are_told_by_it(batch: SimpleNamespace) -> None:
    candidate = LOSSES.copy()
    candidate[0, 20:] *= 1.001
    candidate[2, 10:] *= 1.001
    found = behind_boundaries((LOSSES, candidate), [batch, batch], 1e-5)  # type: ignore[list-item]
    assert found == Wrong(AffectedRows.DOCUMENTS, message("wrong_rows.behind_documents", count=2, all=3))


@pytest.mark.parametrize("theirs", [masked(20, 40, 10), packed(20, 40, 10)], ids=["mask", "packed"])
def test_the_first_document_that_differs_is_named(theirs: SimpleNamespace) -> None:
    candidate = LOSSES.copy()
    candidate[0, 25:] *= 1.001
    candidate[2, 12] *= 1.1
    sides = packed(20, 40, 10), theirs
    first = by_document((LOSSES, candidate), sides, 1e-5)  # type: ignore[arg-type]
    assert first == message("token_losses.by_document", count=2, all=5, document=1, row=0, token=20)
    assert by_document((LOSSES, LOSSES), sides, 1e-5) is None  # type: ignore[arg-type]
    assert by_document((LOSSES, candidate), (packed(20, 40, 11), theirs), 1e-5) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(("row", "first"), [(0, 19), (1, 0), (2, 30)], ids=["before the end", "a row of one document", "one row of two"])
def test_other_tokens_are_not(row: int, first: int) -> None:
    losses = LOSSES, changed(row, slice(first, None), 1.001)
    assert behind_boundaries(losses, [documents(20, 40, 10)], 1e-5) is None  # type: ignore[list-item]
    assert behind_boundaries(losses, [documents(40, 40, 40)], 1e-5) is None  # type: ignore[list-item]


# ---- rows

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
        ([0, 1, 0, 1], ONE, TWO, Wrong(AffectedRows.RANK, message("wrong_rows.of_rank", side=Side.CANDIDATE, ranks=terms([1])))),
        ([1, 0, 1, 0], TWO, ONE, Wrong(AffectedRows.RANK, message("wrong_rows.of_rank", side=Side.REFERENCE, ranks=terms([0])))),
        ([0, 0, 1, 1], ONE, ONE, Wrong(AffectedRows.LATER, message("wrong_rows.after_the_first_micro_batch", side=Side.CANDIDATE))),
        ([0, 0, 1, 1], FOUR, FOUR, Wrong(AffectedRows.LATER, message("wrong_rows.after_micro_batches", side=Side.CANDIDATE, last=1))),
        ([1, 1, 0, 0], ONE, ONE, Wrong(AffectedRows.MICRO_BATCH, message("wrong_rows.of_micro_batch", number=0, side=Side.CANDIDATE))),
        ([0, 1, 0, 0], ONE, ONE, Wrong(AffectedRows.SOME, message("wrong_rows.some", rows=terms([1]), count=4))),
        ([0, 0, 1, 1], ((4,),), ((4,),), Wrong(AffectedRows.SOME, message("wrong_rows.some", rows=terms([2, 3]), count=4))),
        ([0, *[1] * 6], ((7,),), ((7,),), Wrong(AffectedRows.SOME, message("wrong_rows.first", rows=terms([1, 2, 3, 4, 5]), count=7))),
    ],
)
def test_the_pattern_of_wrong_rows(wrong: list[int], reference: Any, candidate: Any, found: Wrong) -> None:
    assert pattern(np.array(wrong, bool), (of(reference), of(candidate))) == found


def in_type(losses: NDArray[np.float32], kind: str) -> NDArray[np.float32]:
    bits = losses.view(np.uint32) & np.uint32(0xFFFF0000)
    return bits.view(np.float32) if kind == "bfloat16" else losses.astype(np.float16).astype(np.float32)


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_losses_of_a_half_type_on_one_side_are_told(kind: str) -> None:
    half = in_type(LOSSES, kind)
    assert half_type((LOSSES, half)) == (Side.CANDIDATE, kind) and half_type((half, LOSSES)) == (Side.REFERENCE, kind)
    masked = half.copy()
    masked[:, ::2] = 0  # of tokens that do not count
    assert half_type((LOSSES, masked)) == (Side.CANDIDATE, kind)
    one_wide = half.copy()
    one_wide[1, 1] = LOSSES[1, 1]
    odd = np.full_like(half, np.inf)
    for pair in ((LOSSES, LOSSES), (half, half), (LOSSES, one_wide), (LOSSES[:, :3], half[:, :3]), (LOSSES, odd), (LOSSES, 0 * half)):
        assert half_type(pair) is None


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


WINDOW = message("wrong_rows.some", rows=terms([2, 3]), count=4)


@pytest.mark.parametrize(
    ("columns", "place", "told"),
    [
        (slice(None), "state", message("wrong_rows.after_the_first_micro_batch", side=Side.CANDIDATE)),
        (slice(3, None), "forward", WINDOW),  # an attention's window shows in rows that are long enough, wherever these stand
    ],
    ids=["all positions", "some positions"],
)
def test_later_micro_batches_that_alone_are_wrong_are_a_matter_of_state_where_all_of_a_row_is(
    compared: Compared, candidate: Synthetic, columns: slice, place: str, told: Message
) -> None:
    candidate.micro_batches = [2, 2]
    candidate.batches[0]["token_losses"][2:, columns] *= np.float32(1.01)
    blame = compared(candidate, against=Synthetic(micro_batches=[2, 2])).blame
    assert (blame.place, blame.suspects[0].what) == (place, sentences(told))


def dropping(start: int) -> Synthetic:
    """A run that draws random numbers in every micro-batch, from another state where ``start`` is another."""
    states = [[{"torch": f"{start if step else 0}-{step}-{part}"} for part in range(2)] for step in range(STEPS)]
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
