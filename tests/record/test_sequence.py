"""What ranks share out, put back in order: sequences of context-parallel ranks, and the experts of each token."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from align_hooks import Run, open_run
from align_hooks.errors import RecordError
from align_hooks.record.format.schema import Training
from align_hooks.record.format.sequence import Slices, in_order, part_of, positions_of, slices_of, zigzag
from align_hooks.record.read.batch import Batch
from align_hooks.record.read.loss_weights import weights_of_tokens
from align_hooks.record.write.step_files import StepBatch, StepChoices
from align_hooks.record.write.writer import Writer
from record.conftest import DP2, Place, of_ranks
from rewritten import flip
from synthetic import begun, row

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
    asked = ((plain, {}), (shared, {}), (shared, {"per_token_loss": True}), (shared, {"mean_over_sequence": True}))
    whole, by_chunk, per_token, over_sequence = (weights_of_tokens(batch, Training(**said)) for batch, said in asked)
    np.testing.assert_allclose(whole[0], [0, 0, 0, 0.2, 0.2, 0.2, 0.2, 0.2])
    np.testing.assert_allclose(by_chunk[0], [0, 0, 0, 1 / 6, 1 / 6, 1 / 6, 1 / 4, 1 / 4])
    np.testing.assert_allclose(per_token, whole)
    np.testing.assert_array_equal(over_sequence, whole)


EXPERTS, CHOSEN = 8, 3
LAYERS = ("model.layers.2.mlp.gate", "model.layers.10.mlp.gate")
"""Their order by number is not that of their letters."""


def experts(seed: int, rows: int) -> np.ndarray:
    """Experts of tokens, int16 ``[rows, LENGTH, CHOSEN]``, ascending."""
    random = np.random.default_rng(seed)
    chosen = random.permuted(np.tile(np.arange(EXPERTS), (rows, LENGTH, 1)), axis=2)[:, :, :CHOSEN]
    return np.sort(chosen, axis=2).astype(np.int16)


def counts(chosen: np.ndarray) -> list[int]:
    return np.bincount(chosen[chosen >= 0], minlength=EXPERTS).tolist()


def write(writer: Writer, parts: dict[str, np.ndarray], rows: list[int], slices: Slices | None = None) -> None:
    """One step of a rank that routed these tokens."""
    writer.batch(0, StepBatch({}, [], experts={name: counts(part) for name, part in parts.items()}))
    writer.routing(0, StepChoices(parts, rows, slices))
    writer.scalars(row(0))


def routed(path: Path, places: Sequence[Place], record: Callable[[Writer, int], object]) -> Run:
    return open_run(of_ranks(path, places, record, batches="0", routing="0"))


@given(ranks=st.integers(1, 4), cut=st.integers(1, 4), chunk=st.integers(1, 3))
def test_sequence_parallel_parts_cover_what_a_context_parallel_rank_has(ranks: int, cut: int, chunk: int) -> None:
    length = 2 * ranks * cut * chunk
    parts = [part_of(zigzag(rank, ranks, length), index, cut) for rank in range(ranks) for index in range(cut)]
    positions = np.concatenate([positions_of(part) for part in parts])
    assert sorted(positions.tolist()) == list(range(length))
    assert {len(positions_of(part)) for part in parts} == {length // ranks // cut}
    whole = [positions_of(zigzag(rank, ranks, length)).tolist() for rank in range(ranks)]
    assert positions.tolist() == [place for of_rank in whole for place in of_rank]


def test_ranks_of_every_kind_are_put_together(tmp_path: Path) -> None:
    """Two data-parallel, two context-parallel and two sequence-parallel ranks, and a layer a pipeline stage."""
    whole = {name: [experts(10 * dp + layer, 2 * ROWS) for dp in (0, 1)] for layer, name in enumerate(LAYERS)}
    places = [{"dp": dp, "cp": cp, "tp": tp, "pp": pp} for pp in (0, 1) for dp in (0, 1) for cp in (0, 1) for tp in (0, 1)]

    def record(writer: Writer, rank: int) -> None:
        place = places[rank]
        slices = part_of(zigzag(place["cp"], 2, LENGTH), place["tp"], 2)
        name = LAYERS[place["pp"]]
        write(writer, {name: whole[name][place["dp"]][:, positions_of(slices)]}, [ROWS, ROWS], slices)

    run = routed(tmp_path / "run", places, record)
    routing = run.routing(0)
    assert list(routing) == list(LAYERS)
    for name, (first, second) in whole.items():
        expected = np.concatenate([first[:ROWS], second[:ROWS], first[ROWS:], second[ROWS:]])
        np.testing.assert_array_equal(routing[name], expected, strict=True)
        assert routing.shape(name) == (CHOSEN, 4 * ROWS * LENGTH)
        assert run.expert_counts(0)[name].tolist() == counts(expected)
    assert list(run.expert_counts(0)) == list(LAYERS)


def test_a_rank_without_a_router_writes_an_empty_file(tmp_path: Path) -> None:
    chosen = experts(0, ROWS)
    parts = ({}, []), ({LAYERS[0]: chosen}, [ROWS])
    routing = routed(tmp_path / "run", [{"pp": 0}, {"pp": 1}], lambda writer, rank: write(writer, *parts[rank])).routing(0)
    np.testing.assert_array_equal(routing[LAYERS[0]], chosen)
    assert "model.layers.3.mlp.gate" not in routing


def test_fewer_experts_are_read_and_a_changed_file_or_another_type_is_refused(tmp_path: Path) -> None:
    chosen = experts(0, ROWS)
    chosen[0, 0] = (-1, -1, 4)
    run = routed(tmp_path / "run", [{}], lambda writer, rank: write(writer, {LAYERS[0]: chosen}, [ROWS]))
    np.testing.assert_array_equal(run.routing(0)[LAYERS[0]], chosen)
    flip(tmp_path / "run/step_0/rank_0/routing.safetensors")
    with pytest.raises(RecordError, match="was changed since it was recorded"):
        _ = open_run(tmp_path / "run").routing(0)[LAYERS[0]]
    with pytest.raises(RecordError, match=r"routing\.safetensors: .* is int64, a record keeps int16"):
        begun(tmp_path / "other", routing="0").routing(0, StepChoices({LAYERS[0]: chosen.astype(int)}, [ROWS]))


FIRST, SECOND = HALVES = [zigzag(rank, 2, LENGTH) for rank in (0, 1)]
MISFITS: dict[str, tuple[list[tuple[np.ndarray, list[int], Slices | None]], str]] = {
    "the same positions twice": ([(cut(experts(0, ROWS), FIRST), [ROWS], FIRST)] * 2, "do not cover 16 positions once each"),
    "other rows": (
        [(cut(experts(0, rows), half), [rows], half) for rows, half in zip((ROWS, ROWS + 1), HALVES, strict=True)],
        "has parts of other rows than the others",
    ),
    "rows that its file denies": ([(experts(0, ROWS), [ROWS + 1], None)] * 2, "is not of the rows that its file says"),
    "no positions": ([(experts(0, ROWS).reshape(-1, CHOSEN), [ROWS], None)] * 2, "holds no experts of tokens"),
}


@pytest.mark.parametrize(("parts", "refusal"), MISFITS.values(), ids=MISFITS)
def test_experts_that_do_not_fit_together_are_refused(tmp_path: Path, parts: list[tuple[Any, Any, Any]], refusal: str) -> None:
    """Of context-parallel ranks."""

    def record(writer: Writer, rank: int) -> None:
        chosen, rows, slices = parts[rank]
        write(writer, {LAYERS[0]: chosen}, rows, slices)

    run = routed(tmp_path / "run", [{"cp": 0}, {"cp": 1}], record)
    with pytest.raises(RecordError, match=refusal):
        _ = run.routing(0)[LAYERS[0]]


def test_ranks_that_count_other_experts_are_refused(tmp_path: Path) -> None:
    def record(writer: Writer, rank: int) -> None:
        writer.batch(0, StepBatch({}, [], experts={LAYERS[0]: [1] * (4 + rank)}))
        writer.scalars(row(0))

    run = routed(tmp_path / "run", DP2, record)
    with pytest.raises(RecordError, match="ranks count the tokens of different experts"):
        run.expert_counts(0)


@pytest.mark.parametrize("dimensions", [0, 1, 2])
def test_tensors_of_any_rank_have_three_dimensions(tmp_path: Path, dimensions: int) -> None:
    def record(writer: Writer, rank: int) -> None:
        whole = experts(0, ROWS)
        writer.routing(0, StepChoices(dict.fromkeys(LAYERS, whole[(0,) * (3 - dimensions)] if rank else whole), [ROWS]))
        writer.scalars(row(0))

    run = open_run(of_ranks(tmp_path / "run", [place | {"dp_size": 2} for place in DP2], record))
    with pytest.raises(RecordError, match="holds no experts of tokens"):
        run.routing(0)
