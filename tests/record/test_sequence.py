"""Sequences that context-parallel ranks share, put back in order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from align_hooks import open_run
from align_hooks.errors import RecordError
from align_hooks.record.batch import Batch
from align_hooks.record.pieces import StepBatch
from align_hooks.record.sequence import Slices, in_order, slices_of, zigzag
from align_hooks.record.weighing import weights_of_tokens
from align_hooks.record.writer import Writer
from record.conftest import Place, of_ranks
from synthetic import row

LENGTH, ROWS = 16, 3
TOKENS = np.arange(ROWS * LENGTH).reshape(ROWS, LENGTH)


def cut(array: np.ndarray, slices: Slices, axis: int = 1) -> np.ndarray:
    return np.concatenate([array.take(range(*bounds), axis=axis) for bounds in slices], axis=axis)


def test_megatrons_zigzag_gives_a_rank_a_chunk_of_the_front_and_its_mirror_image() -> None:
    assert [zigzag(rank, 2, 16) for rank in range(2)] == [[[0, 4], [12, 16]], [[4, 8], [8, 12]]]


@given(ranks=st.integers(1, 8), chunk=st.integers(1, 5))
def test_zigzag_slices_are_put_back_in_order(ranks: int, chunk: int) -> None:
    whole = np.arange(2 * 2 * ranks * chunk).reshape(2, -1)
    slices = [zigzag(rank, ranks, whole.shape[1]) for rank in range(ranks)]
    np.testing.assert_array_equal(in_order([cut(whole, of_rank) for of_rank in slices], slices, "x"), whole)


@given(ranks=st.integers(1, 8), chunk=st.integers(1, 5))
def test_position_ids_tell_the_slices(ranks: int, chunk: int) -> None:
    length = 2 * ranks * chunk
    for rank in range(ranks):
        slices = zigzag(rank, ranks, length)
        shown = slices_of(cut(np.tile(np.arange(length), (2, 1)), slices), length)
        assert [place for bounds in shown for place in range(*bounds)] == [place for bounds in slices for place in range(*bounds)]


@pytest.mark.parametrize(
    "positions",
    [[[0, 1, 2], [0, 1, 3]], [[0, 1, 0]], [[14, 15, 16]], [[-1, 0, 1]], np.zeros((0, 3), int)],
    ids=["rows differ", "a document starts anew", "beyond the end", "before the beginning", "no rows"],
)
def test_position_ids_that_are_no_part_of_the_sequence_tell_nothing(positions: list[list[int]]) -> None:
    assert slices_of(np.asarray(positions), LENGTH) is None


def test_masks_are_put_together_along_their_queries() -> None:
    mask = ~np.tri(LENGTH, dtype=bool)[None, None]
    slices = [zigzag(rank, 2, LENGTH) for rank in range(2)]
    np.testing.assert_array_equal(in_order([cut(mask, of_rank, axis=2) for of_rank in slices], slices, "x"), mask)


@pytest.mark.parametrize("slices", [[[[0, 8]], [[4, 12]]], [[[0, 8]], [[9, 17]]], [[[0, 8]], [[8, 17]]]])
def test_slices_that_do_not_cover_the_sequence_once_are_refused(slices: list[Slices]) -> None:
    with pytest.raises(RecordError, match="do not cover 16 positions once each"):
        in_order([TOKENS[:, :8], TOKENS[:, 8:]], slices, "step 0")


def written(path: Path, places: list[Place], batches: list[dict[str, np.ndarray]], slices: list[Slices | None]) -> Path:
    """A run of one step, each rank with its own part of the batch."""

    def record(writer: Writer, rank: int) -> None:
        writer.batch(0, StepBatch(batches[rank], [ROWS] if batches[rank] else [], slices=slices[rank]))
        writer.scalars(row(0))

    return of_ranks(path, places, record, batches="all")


def test_a_record_of_context_and_pipeline_ranks_reads_back_as_one_batch(tmp_path: Path) -> None:
    """PP3·CP2: tokens from the first stage, labels from the last, nothing from the middle, positions cut in zigzag."""
    places = [{"dp": 0, "cp": cp, "pp": pp} for pp in range(3) for cp in range(2)]
    arrays = [{"tokens": TOKENS, "position_ids": np.tile(np.arange(LENGTH), (ROWS, 1))}, {}, {"labels": TOKENS + 1}]
    batches = [{name: cut(array, zigzag(place["cp"], 2, LENGTH)) for name, array in arrays[place["pp"]].items()} for place in places]
    run = open_run(written(tmp_path / "run", places, batches, [zigzag(place["cp"], 2, LENGTH) for place in places]))
    batch = run.batch(0)
    assert batch.rows == ((ROWS,),)
    np.testing.assert_array_equal(batch.tokens, TOKENS)
    np.testing.assert_array_equal(batch.labels, TOKENS + 1)
    np.testing.assert_array_equal(batch.position_ids, np.tile(np.arange(LENGTH), (ROWS, 1)))
    facts = run.batch_facts(0)
    assert (facts.sequence, facts.rows, facts.lowest, facts.highest) == (LENGTH, ROWS, 0, TOKENS.max() + 1)


def test_a_context_parallel_rank_that_recorded_less_than_the_others_is_refused(tmp_path: Path) -> None:
    places = [{"dp": 0, "cp": cp} for cp in range(2)]
    slices = [zigzag(cp, 2, LENGTH) for cp in range(2)]
    parts = [cut(TOKENS, of_rank) for of_rank in slices]
    run = open_run(written(tmp_path / "run", places, [{"tokens": parts[0], "labels": parts[0]}, {"tokens": parts[1]}], slices))
    with pytest.raises(RecordError, match="a context-parallel rank recorded other arrays than the others"):
        run.batch(0)


def test_tokens_that_two_stages_saw_are_counted_once(tmp_path: Path) -> None:
    places = [{"dp": 0, "pp": pp} for pp in range(2)]
    stages = [{"tokens": TOKENS}, {"tokens": TOKENS, "labels": TOKENS + 1}]
    facts = open_run(written(tmp_path / "run", places, stages, [None, None])).batch_facts(0)
    assert (facts.sequence, facts.rows) == (LENGTH, ROWS)


def test_tokens_of_context_parallel_ranks_weigh_by_the_rank_that_had_them() -> None:
    """Without a per-token loss each rank's chunk is a mean of its own: a masked prefix weighs the others up."""
    mask = np.ones((1, 8), np.float32)
    mask[0, :3] = 0
    plain = Batch(0, ((1,),), tokens=np.zeros((1, 8), int), loss_mask=mask)
    shared = Batch(0, ((1,),), tokens=np.zeros((1, 8), int), loss_mask=mask, slices=tuple(zigzag(rank, 2, 8) for rank in range(2)))
    whole, by_chunk, per_token = (weights_of_tokens(*asked) for asked in ((plain, False), (shared, False), (shared, True)))
    np.testing.assert_allclose(whole[0], [0, 0, 0, 0.2, 0.2, 0.2, 0.2, 0.2])
    np.testing.assert_allclose(by_chunk[0], [0, 0, 0, 1 / 6, 1 / 6, 1 / 6, 1 / 4, 1 / 4])
    np.testing.assert_allclose(per_token, whole)
