"""The experts of each token, written by ranks that route different tokens and read as one batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from align_hooks import open_run
from align_hooks.errors import RecordError
from align_hooks.record.pieces import StepBatch, StepChoices
from align_hooks.record.sequence import Slices, part_of, positions_of, zigzag
from align_hooks.record.writer import Writer
from record.conftest import of_ranks
from synthetic import row

LENGTH, ROWS, EXPERTS, CHOSEN = 16, 2, 8, 3
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

    run = open_run(of_ranks(tmp_path / "run", places, record, batches="0", routing="0"))
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

    def record(writer: Writer, rank: int) -> None:
        write(writer, {LAYERS[0]: chosen} if rank else {}, [ROWS] if rank else [])

    run = open_run(of_ranks(tmp_path / "run", [{"pp": 0}, {"pp": 1}], record, batches="0", routing="0"))
    np.testing.assert_array_equal(run.routing(0)[LAYERS[0]], chosen)
    assert "model.layers.3.mlp.gate" not in run.routing(0)


def test_fewer_experts_and_other_types_are_told(tmp_path: Path) -> None:
    chosen = experts(0, ROWS)
    chosen[0, 0] = (-1, -1, 4)
    run = open_run(
        of_ranks(tmp_path / "run", [{}], lambda writer, rank: write(writer, {LAYERS[0]: chosen}, [ROWS]), batches="0", routing="0")
    )
    np.testing.assert_array_equal(run.routing(0)[LAYERS[0]], chosen)
    with pytest.raises(RecordError, match=r"routing\.safetensors: .* is int64, a record keeps int16"):
        of_ranks(
            tmp_path / "other",
            [{}],
            lambda writer, rank: writer.routing(0, StepChoices({LAYERS[0]: chosen.astype(int)}, [ROWS])),
            routing="0",
        )


def missing_rank(writer: Writer, rank: int) -> None:
    """Context-parallel ranks that have the same positions."""
    slices = zigzag(0, 2, LENGTH)
    write(writer, {LAYERS[0]: experts(0, ROWS)[:, positions_of(slices)]}, [ROWS], slices)


def other_rows(writer: Writer, rank: int) -> None:
    slices = zigzag(rank, 2, LENGTH)
    write(writer, {LAYERS[0]: experts(0, ROWS + rank)[:, positions_of(slices)]}, [ROWS + rank], slices)


def wrong_rows(writer: Writer, rank: int) -> None:
    write(writer, {LAYERS[0]: experts(0, ROWS)}, [ROWS + 1])


def flat(writer: Writer, rank: int) -> None:
    write(writer, {LAYERS[0]: experts(0, ROWS).reshape(-1, CHOSEN)}, [ROWS])


@pytest.mark.parametrize(
    ("record", "refusal"),
    [
        (missing_rank, "do not cover 16 positions once each"),
        (other_rows, "has parts of other rows than the others"),
        (wrong_rows, "is not of the rows that its file says"),
        (flat, "holds no experts of tokens"),
    ],
)
def test_what_does_not_fit_together_is_refused(tmp_path: Path, record: Callable[[Writer, int], None], refusal: str) -> None:
    run = open_run(of_ranks(tmp_path / "run", [{"cp": 0}, {"cp": 1}], record, batches="0", routing="0"))
    with pytest.raises(RecordError, match=refusal):
        _ = run.routing(0)[LAYERS[0]]


def test_ranks_that_count_other_experts_are_refused(tmp_path: Path) -> None:
    def record(writer: Writer, rank: int) -> None:
        writer.batch(0, StepBatch({}, [], experts={LAYERS[0]: [1] * (4 + rank)}))
        writer.scalars(row(0))

    run = open_run(of_ranks(tmp_path / "run", [{"dp": 0}, {"dp": 1}], record, batches="0"))
    with pytest.raises(RecordError, match="ranks count the tokens of different experts"):
        run.expert_counts(0)


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    path = of_ranks(
        tmp_path / "run", [{}], lambda writer, rank: write(writer, {LAYERS[0]: experts(0, ROWS)}, [ROWS]), batches="0", routing="0"
    )
    file = path / "step_0" / "rank_0" / "routing.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(RecordError, match="was changed since it was recorded"):
        _ = open_run(path).routing(0)[LAYERS[0]]


@pytest.mark.parametrize("dimensions", [0, 1, 2])
def test_tensors_of_any_rank_have_three_dimensions(tmp_path: Path, dimensions: int) -> None:
    def record(writer: Writer, rank: int) -> None:
        whole = experts(0, ROWS)
        writer.routing(0, StepChoices(dict.fromkeys(LAYERS, whole[(0,) * (3 - dimensions)] if rank else whole), [ROWS]))
        writer.scalars(row(0))

    run = open_run(of_ranks(tmp_path / "run", [{"dp": 0, "dp_size": 2}, {"dp": 1, "dp_size": 2}], record))
    with pytest.raises(RecordError, match="holds no experts of tokens"):
        run.routing(0)
