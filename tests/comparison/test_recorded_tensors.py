"""Tensors of two records measured as they are read: any cut of either side gives what the whole tensors give, or the same refusal."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from align_hooks import open_run
from align_hooks.comparison.metrics import measures
from align_hooks.comparison.metrics.measures import BLOCK, Moved, Task, aligned, distances, measure, norm_of, of_blocks
from align_hooks.comparison.pipeline import compare
from align_hooks.errors import RecordError
from align_hooks.messages import message, sentences
from align_hooks.record.format.shard import Shard
from align_hooks.record.format.stored_tensor import StoredTensor
from align_hooks.record.read.tensors import Tensors, Whole
from align_hooks.record.write.step_files import write_tensors
from comparison.conftest import HONEST, stage
from sharded import part_of

SHAPE, FILE = (6, 4), "step_0/rank_0/gradients.safetensors"
Cut = list[tuple[tuple[tuple[int, int], ...], tuple[int, int] | None]]


@st.composite
def cuts(draw: st.DrawFn) -> Cut:
    """A tensor cut along one axis or none, and each box, or not, into ranges: tensor parallelism and a distributed optimizer."""
    axis, pieces = draw(st.sampled_from([(0, 1), (0, 2), (0, 3), (1, 2), (1, 4)]))
    edges = np.linspace(0, SHAPE[axis], pieces + 1).astype(int).tolist()
    boxes = [tuple((low, high) if each == axis else (0, SHAPE[each]) for each in range(2)) for low, high in pairwise(edges)]
    cut: Cut = []
    for box in boxes:
        size = (box[0][1] - box[0][0]) * (box[1][1] - box[1][0])
        ends = sorted(draw(st.sets(st.integers(1, size - 1), max_size=3)) | {0, size})
        cut += [(box, None)] if len(ends) == 2 else [(box, bounds) for bounds in pairwise(ends)]
    return draw(st.permutations(cut))


def whole(folder: Path, tensor: np.ndarray, cut: Cut | None = None) -> Whole:
    """A tensor written by as many ranks as its cut has parts, or by one."""
    files, tables = {}, {}
    for rank, (box, flat) in enumerate(cut or [(tuple((0, size) for size in tensor.shape), None)]):
        shard = Shard("w", tensor.shape, "w", "float32", box=box, flat=flat)
        write_tensors(folder, 0, rank, "gradients.safetensors", {"w": part_of(tensor, shard)})
        files[rank] = [(folder / f"step_0/rank_{rank}/gradients.safetensors", None)]
        tables[rank] = [shard]
    return Tensors(files, tables).whole("w")


@settings(max_examples=60)
@given(ours=cuts(), theirs=cuts())
def test_any_two_cuts_measure_what_the_whole_tensors_do(ours: Cut, theirs: Cut, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("cuts")
    one = np.arange(24, dtype=np.float32).reshape(SHAPE)
    other = one + np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    reference, candidate = whole(folder / "one", one, ours), whole(folder / "other", other, theirs)
    assert np.array_equal(reference.read(), one)
    found = measure(Task(reference, candidate))
    assert (found.difference, found.reference, found.candidate) == pytest.approx(distances(one, other))
    moved = measure(Task(Moved(reference, candidate), Moved(candidate, reference)))
    assert moved.difference == pytest.approx(2 * found.difference)
    assert moved.reference == pytest.approx(found.difference)
    assert norm_of(reference) == pytest.approx(found.reference)


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 17])
def test_blocks_end_anywhere(size: int) -> None:
    one, other = (np.random.default_rng(seed).standard_normal(size).astype(np.float32) for seed in (0, 1))
    exact = [float(np.sqrt(np.square(each.astype(np.float64)).sum())) for each in (other.astype(np.float64) - one, one, other)]
    assert distances(one, other) == pytest.approx(exact, rel=1e-14)
    cut = (iter(np.array_split(each, parts)) for each, parts in ((one, 1 + size // 1000), (other, 1 + size // 7777)))
    assert of_blocks(aligned(*cut)) == pytest.approx(exact, rel=1e-14)


def test_two_orders_of_one_cut_are_read_block_by_block_and_two_cuts_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = np.ones(SHAPE, np.float32)
    in_columns: Cut = [(((0, 6), (0, 2)), None), (((0, 6), (2, 4)), None)]
    in_rows: Cut = [(((0, 3), (0, 4)), None), (((3, 6), (0, 4)), None)]
    columns, more = (whole(tmp_path / str(add), tensor + add, in_columns) for add in (0, 1))
    rows, alone = whole(tmp_path / "rows", tensor + 2, in_rows), whole(tmp_path / "alone", tensor)
    monkeypatch.setattr(Whole, "read", lambda self: pytest.fail("a tensor was put together"))
    assert measure(Task(columns, more)).difference == pytest.approx(np.sqrt(24))
    assert measure(Task(rows, alone)).difference == pytest.approx(np.sqrt(4 * 24))
    with pytest.raises(pytest.fail.Exception, match="put together"):
        measure(Task(columns, rows))


def test_what_is_equal_by_its_digests_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = np.full(SHAPE, 2.0, np.float32)
    reference, candidate = whole(tmp_path / "one", tensor), whole(tmp_path / "other", tensor)
    read: list[StoredTensor] = []
    original = StoredTensor.blocks
    monkeypatch.setattr(StoredTensor, "blocks", lambda self: read.append(self) or original(self))
    assert measure(Task(reference, candidate, norm=9.5)) == measures.Measured(0.0, 9.5, 9.5, by_digest=True)
    assert not read
    assert measure(Task(reference, candidate)).reference == pytest.approx(np.sqrt(96))
    assert [part.path for part in read] == [tmp_path / "one" / FILE]
    assert not measure(Task(reference, whole(tmp_path / "changed", tensor * 2), norm=9.5)).by_digest


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_equal_and_not_finite_is_not_equal(tmp_path: Path, value: float) -> None:
    tensor = np.full(SHAPE, value, np.float32)
    assert np.isnan(measure(Task(whole(tmp_path / "one", tensor), whole(tmp_path / "other", tensor), norm=value)).difference)


@pytest.mark.parametrize(
    ("cut", "why"),
    [
        ([(((0, 3), (0, 4)), None)], "some of its elements are on no rank"),
        ([(((0, 6), (0, 4)), (0, 14)), (((0, 6), (0, 4)), (10, 24))], "elements of rank 1 are on an earlier rank too"),
        ([(((0, 6), (0, 3)), None), (((0, 6), (2, 4)), None)], "elements of rank 1 are on an earlier rank too"),
        ([(((0, 6), (0, 2)), (0, 12)), (((0, 6), (2, 4)), None), (((0, 6), (0, 2)), (6, 12))], "elements of rank 2 are on"),
    ],
)
def test_an_element_is_held_once(tmp_path: Path, cut: Cut, why: str) -> None:
    lacking = whole(tmp_path / "one", np.ones(SHAPE, np.float32), cut)
    for reading in (lacking.read, lambda: list(lacking.blocks()), lambda: measure(Task(lacking, lacking, norm=1.0))):
        with pytest.raises(RecordError, match=f"w is not whole: {why}"):
            reading()


def test_a_byte_that_changed_or_a_file_that_was_replaced_is_refused_in_blocks_too(tmp_path: Path) -> None:
    tensor = np.arange(24, dtype=np.float32).reshape(SHAPE)
    reference, candidate = whole(tmp_path / "one", tensor), whole(tmp_path / "other", tensor + 1)
    path = tmp_path / "other" / FILE
    content = bytearray(path.read_bytes())
    path.write_bytes(content)
    with pytest.raises(RecordError, match="was replaced while it was being read"):
        measure(Task(reference, candidate))
    content[-1] ^= 1
    path.write_bytes(content)
    (held,), facts = candidate.held, path.stat()
    known = replace(held.part, known=(facts.st_ino, facts.st_size, facts.st_mtime_ns))  # what is known of the file now
    with pytest.raises(RecordError, match="was changed since it was recorded"):
        measure(Task(reference, replace(candidate, held=(replace(held, part=known),))))


def test_a_summary_says_how_many_are_equal_by_digest(tmp_path: Path) -> None:
    runs: list[Any] = [open_run(HONEST.write(tmp_path / name)) for name in ("reference", "candidate")]
    summary = stage(compare(*runs), "initial weights").summary
    assert summary == sentences(message("same_weights.to_the_bit", count=4), message("same_weights.equal_by_digest", count=4))
