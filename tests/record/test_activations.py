"""Sums of points add up over micro-batches and ranks, and what is not whole is refused."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from align_hooks import open_run
from align_hooks.errors import RecordError
from align_hooks.names.blocks import Array
from align_hooks.names.points import GRADIENT
from align_hooks.record.format import digests
from align_hooks.record.format.files import DIGESTS
from align_hooks.record.read.activations import NUMBERS, Summary, added, column_signs, measured, places, row_signs
from align_hooks.record.write.step_files import StepActivations
from align_hooks.record.write.writer import Writer
from record.conftest import of_ranks
from rewritten import cut, relisted
from synthetic import Synthetic, points_of, row

POINT, ROWS, LENGTH, WIDTH = "model.layers.0.self_attn.core", 4, 6, 10


def value(seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((ROWS, LENGTH, WIDTH)).astype(np.float32)


def numbers(part: Array, rows: range, positions: Array, columns: tuple[int, int]) -> Array:
    """Those of a part ``[positions, rows, columns]``, as Megatron has it."""
    return measured(part.reshape(-1, part.shape[2]), row_signs(places(rows, positions, LENGTH)), column_signs(columns))


def numbers_of(whole: Array) -> Array:
    return numbers(whole.transpose(1, 0, 2), range(ROWS), np.arange(LENGTH), (0, WIDTH))


@given(st.integers(1, LENGTH - 1), st.integers(1, WIDTH - 1), st.integers(0, 2**16))
def test_numbers_of_parts_add_up_to_those_of_the_whole(position: int, column: int, seed: int) -> None:
    whole, parts = value(seed), []
    halves = (range(2), range(2, 4)), (np.arange(position), np.arange(position, LENGTH)), ((0, column), (column, WIDTH))
    for rows, positions, columns in product(*halves):
        part = whole[rows.start : rows.stop][:, positions][:, :, slice(*columns)].transpose(1, 0, 2)
        parts.append(numbers(part, rows, positions, columns))
    together, alone = Summary.of(added(parts)), Summary.of(numbers_of(whole))
    assert np.allclose(together.sketch, alone.sketch, rtol=1e-12, atol=1e-12)
    assert (together.elements, together.minimum, together.maximum) == (alone.elements, whole.min(), whole.max())
    assert alone.elements == whole.size


def test_what_is_not_finite_is_counted() -> None:
    spoilt = value()
    spoilt[0, 0, :3] = np.nan, np.inf, -np.inf
    summary = Summary.of(numbers_of(spoilt))
    finite = spoilt[np.isfinite(spoilt)]
    assert (summary.not_finite, summary.minimum, summary.maximum) == (3, finite.min(), finite.max())
    assert not np.isfinite(summary.norm)


def written(where: Path, *, leave_out: int | None = None) -> Path:
    """A run of two data-parallel ranks of two rows each, and of tensor-parallel ranks that each hold half of the columns."""
    whole = {POINT: value(1), POINT + GRADIENT: value(2)}
    places = [{"dp": dp, "dp_size": 2, "tp": tp, "tp_size": 2} for dp in (0, 1) for tp in (0, 1)]

    def record(writer: Writer, rank: int) -> None:
        data, tensor = divmod(rank, 2)
        columns, rows = (tensor * WIDTH // 2, (tensor + 1) * WIDTH // 2), range(data * 2, data * 2 + 2)
        parts = {name: array[rows.start : rows.stop][:, :, slice(*columns)].copy() for name, array in whole.items()}
        sums = {name: numbers(part.transpose(1, 0, 2), rows, np.arange(LENGTH), columns)[None] for name, part in parts.items()}
        extents = [{"width": WIDTH, "columns": list(columns), "slices": None, "counted": True}]
        points = {"rows": [2], "length": LENGTH, "extents": extents, "extent_of": {POINT: 0}, "scale": 0.25, "by_tokens": False}
        writer.activations(0, StepActivations(*(({}, {}) if rank == leave_out else (sums, parts)), points))
        writer.scalars(row(0))

    return of_ranks(where, places, record, activations="all", activations_tensors="*")


def test_ranks_are_put_together(tmp_path: Path) -> None:
    recorded = open_run(written(tmp_path / "run")).activations(0)
    assert list(recorded) == [POINT, POINT + GRADIENT] and recorded.points == [POINT]
    assert recorded.size == (ROWS, LENGTH) and recorded.width(POINT) == WIDTH
    assert np.array_equal(recorded.tensor(POINT), value(1))
    assert np.allclose(recorded.tensor(POINT + GRADIENT), 0.25 * value(2))
    expected = Summary.of(numbers_of(value(2)), 0.25)
    assert np.allclose(recorded[POINT + GRADIENT].sketch, expected.sketch, rtol=1e-12, atol=1e-12)
    assert recorded[POINT + GRADIENT].maximum == pytest.approx(0.25 * value(2).max())
    assert sorted(recorded.by_micro_batch(POINT)) == [(0, 0), (0, 1)]


def test_elements_of_a_rank_that_has_none_are_missed(tmp_path: Path) -> None:
    recorded = open_run(written(tmp_path / "run", leave_out=1)).activations(0)
    with pytest.raises(RecordError, match=f"{POINT} has 60 elements of micro-batch 0 on all ranks, where there are 120; copy every rank"):
        _ = recorded[POINT]
    with pytest.raises(RecordError, match="has columns on no rank, or on two"):
        recorded.tensor(POINT)


@pytest.mark.parametrize(
    ("key", "said", "why"),
    [
        ("extents", "[", "cannot be read"),
        ("extents", '[{"width": 4, "columns": [0, 9]}]', "no part of the width"),
        ("extent_of", f'{{"{POINT}": 7}}', "names extents that it does not have"),
        ("extent_of", "{}", "does not say what part"),
        ("scale", "0", "scale"),
        ("rows", '["many"]', "rows"),
        ("length", str(10**12), "length"),
    ],
)
def test_a_header_that_makes_no_sense_is_refused(key: str, said: str, why: str, tmp_path: Path) -> None:
    where = Synthetic(settings={"activations": "all"}).write(tmp_path / "run")
    sums, _, facts = points_of({POINT: value()})
    path = where / "step_0/rank_0/activations/sums.safetensors"
    metadata = {name: json.dumps(fact) for name, fact in facts.items()} | {key: said}
    save_file(sums, path, metadata=metadata | {DIGESTS: json.dumps({name: digests.xxh3(tensor) for name, tensor in sums.items()})})
    with pytest.raises(RecordError, match=why):
        open_run(relisted(where)).activations(0)


def test_a_file_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    where = written(tmp_path / "run")
    cut(where / "step_0/rank_1/activations/sums.safetensors", 8)
    with pytest.raises(RecordError, match=r"rank_1/activations/sums\.safetensors is not a whole safetensors file"):
        open_run(where).activations(0)


def test_there_are_as_many_numbers_as_the_format_says() -> None:
    assert numbers_of(value()).shape == (NUMBERS,) == (22,)
