"""Sketches: their definition, that shards add up, and what they see of a difference."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from align_hooks import open_run
from align_hooks.errors import RecordError
from align_hooks.record.format.shard import Shard
from align_hooks.record.format.sketch import (
    BLOCK,
    COLUMNS,
    DEFINITION,
    PROJECTIONS,
    ROWS,
    TURNS,
    as_stored,
    blocks,
    column_signs,
    row_signs,
    signs,
    sketch,
    slab_of,
)
from rewritten import edit_rows, relisted
from synthetic import HONEST_SKETCHED, SHAPES, Synthetic, described, finished

Array = NDArray[np.float32]
FIRST_ROWS = [[-1, 1, 1, 1, 1, -1], [-1, 1, 1, -1, 1, 1], [-1, -1, 1, 1, 1, 1]]
FIRST_COLUMNS = [[1, -1, 1, -1, -1, -1], [1, 1, 1, 1, 1, 1], [1, -1, -1, -1, -1, -1]]
RANDOM = np.random.default_rng(5)
START = RANDOM.bit_generator.state


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """Every test draws from the start, whichever ran before it."""
    RANDOM.bit_generator.state = START


def whole(shape: tuple[int, ...]) -> Shard:
    return Shard("x", shape, "x", "float32")


def relative(difference: Array) -> float:
    """The estimated norm of a difference over its own."""
    sums = sketch(difference, whole(difference.shape))
    return float(np.sqrt(np.mean(np.square(sums[1:])) / sums[0]))


def test_a_sketch_is_the_sum_over_all_elements_under_the_signs_of_their_places() -> None:
    tensor = RANDOM.standard_normal((7, 5)).astype(np.float32)
    rows, columns, sums = row_signs(np.arange(7)), column_signs(np.arange(5)), np.zeros(PROJECTIONS)
    for i in range(7):
        for j in range(5):
            sums[(i + j) % PROJECTIONS] += 4.0 * tensor[i, j] * rows[i] * columns[i % TURNS, j]
    np.testing.assert_allclose(sketch(tensor, whole(tensor.shape)), [np.square(tensor.astype(np.float64)).sum(), *sums], rtol=1e-12)


def test_signs_are_those_of_every_version() -> None:
    """A record made today is compared with one made years from now: splitmix64 of the numbers that the module states."""
    assert signs(ROWS, np.arange(3))[:, :6].tolist() == FIRST_ROWS
    assert signs(COLUMNS, np.arange(3))[:, :6].tolist() == FIRST_COLUMNS
    assert row_signs(np.arange(3)).tolist() == [first[0] for first in FIRST_ROWS]
    assert column_signs(np.arange(3))[:6].T.tolist() == FIRST_COLUMNS


def test_signs_are_balanced_and_independent() -> None:
    of_rows = signs(ROWS, np.arange(1 << 16)).astype(np.float64)
    assert np.abs(of_rows.mean(axis=0)).max() < 0.02
    assert np.abs(of_rows.T @ of_rows / len(of_rows) - np.eye(PROJECTIONS)).max() < 0.02
    assert np.abs((of_rows * signs(COLUMNS, np.arange(1 << 16))).mean(axis=0)).max() < 0.02


@pytest.mark.parametrize("shape", [(12, 10), (13,), (1, 7), (4, 3, 5), ()])
def test_shards_of_any_layout_add_up(shape: tuple[int, ...]) -> None:
    tensor = RANDOM.standard_normal(shape).astype(np.float32)
    expected = sketch(tensor, whole(shape))
    for pieces in (1, 2, 3):
        bounds = np.linspace(0, tensor.size, pieces + 1).astype(int).tolist()
        parts = [sketch(tensor.reshape(-1)[a:b], Shard("x", shape, "x", "f", (), (a, b))) for a, b in pairwise(bounds)]
        np.testing.assert_allclose(sum(parts), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("axis", [0, 1])
def test_boxes_and_ranges_of_boxes_add_up(axis: int) -> None:
    tensor, total = RANDOM.standard_normal((12, 10)).astype(np.float32), np.zeros(1 + PROJECTIONS)
    for first, last in ((0, 4), (4, tensor.shape[axis])):
        box = tuple((first, last) if index == axis else (0, size) for index, size in enumerate(tensor.shape))
        part = tensor[tuple(slice(*bounds) for bounds in box)]
        for a, b in ((0, 3), (3, 17), (17, part.size)):
            total += sketch(part.reshape(-1)[a:b], Shard("x", tensor.shape, "x", "f", box, (a, b)))
    np.testing.assert_allclose(total, sketch(tensor, whole(tensor.shape)), rtol=1e-12)


@pytest.mark.parametrize("shape", [(3, BLOCK // 2), (5, 2 * BLOCK), (BLOCK + 3, 1), (1, 4)])
@pytest.mark.parametrize("part", [(0, 1), (0.1, 0.9)])
def test_blocks_hold_every_element_once_and_no_more_than_fits(shape: tuple[int, int], part: tuple[float, float]) -> None:
    first, last = (int(share * shape[0] * shape[1]) for share in part)
    at = 0
    for elements, row in blocks(slab_of(Shard("x", shape, "x", "float32", (), (first, last)))):
        assert elements.start == at and row % TURNS == 0
        assert row * shape[1] <= first + elements.start < (row + TURNS) * shape[1]
        assert elements.stop - elements.start <= max(BLOCK, TURNS * shape[1])
        at = elements.stop
    assert at == last - first


DIFFERENCES: dict[str, tuple[Callable[[], Array], float, float]] = {
    "full": (lambda: RANDOM.standard_normal((96, 64)), 0.4, 1.7),
    "a vector": (lambda: RANDOM.standard_normal(64), 0.4, 1.7),
    "an outer product": (lambda: np.outer(RANDOM.standard_normal(96), RANDOM.standard_normal(64)), 0.15, 3.0),
    "a row": (lambda: np.outer(np.eye(96)[RANDOM.integers(96)], RANDOM.standard_normal(64)), 0.3, 2.0),
    "a column": (lambda: np.outer(RANDOM.standard_normal(96), np.eye(64)[RANDOM.integers(64)]), 0.3, 2.0),
    "a column of every head": (lambda: np.outer(RANDOM.standard_normal(96), np.arange(64) % 16 == RANDOM.integers(16)), 0.15, 3.0),
    "one element": (lambda: np.eye(1, 96 * 64, int(RANDOM.integers(96 * 64))).reshape(96, 64), 0.99, 1.01),
}


@pytest.mark.parametrize(("make", "least", "most"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_the_size_of_a_difference_is_found(make: Callable[[], Array], least: float, most: float) -> None:
    sizes = [relative(make().astype(np.float32)) for _ in range(200)]
    assert least < min(sizes) and max(sizes) < most
    assert 0.8 < np.median(sizes) < 1.2
    assert np.mean([0.4 < size < 1.9 for size in sizes]) > 0.95


SAME_NORM: dict[str, Callable[[Array], Array]] = {
    "transposed": lambda tensor: tensor.T,
    "rows exchanged": lambda tensor: tensor[np.r_[1, 0, 2 : len(tensor)]],
    "halves interleaved": lambda tensor: tensor.reshape(2, -1, tensor.shape[1]).swapaxes(0, 1).reshape(tensor.shape),
    "negated": lambda tensor: -tensor,
    "two rows negated": lambda tensor: np.concatenate([-tensor[:2], tensor[2:]]),
}


@pytest.mark.parametrize("change", SAME_NORM.values(), ids=SAME_NORM)
def test_what_norms_are_blind_to_is_seen(change: Callable[[Array], Array]) -> None:
    tensor = RANDOM.standard_normal((64, 64)).astype(np.float32)
    ours, theirs = (sketch(np.ascontiguousarray(side), whole((64, 64))) for side in (tensor, change(tensor)))
    assert theirs[0] == pytest.approx(ours[0], rel=1e-12)
    assert np.sqrt(np.mean(np.square(theirs - ours)[1:]) / ours[0]) > 0.1


def test_sketches_come_back_and_are_those_of_the_tensors(tmp_path: Path) -> None:
    run = open_run(HONEST_SKETCHED.write(tmp_path / "run"))
    assert (run.sketch_steps("gradients"), run.sketch_steps("weights")) == ([0, 1, 2], [0, 1, 2, 3])
    for step in run.sketch_steps("weights"):
        for name, sums in run.sketches("weights", step).items():
            np.testing.assert_allclose(sums, sketch(HONEST_SKETCHED.weights[step][name], whole(SHAPES[name])), rtol=1e-12)


def test_where_only_tensors_were_stored_sketches_are_made_of_them(tmp_path: Path) -> None:
    stored, sketched = (open_run(run.write(tmp_path / name)) for run, name in ((Synthetic(), "stored"), (HONEST_SKETCHED, "sketched")))
    assert not (tmp_path / "stored/sketches").exists() and stored.sketch_steps("gradients") == [0, 1, 2]
    for name, sums in stored.sketches("gradients", 1).items():
        np.testing.assert_allclose(sums, sketched.sketches("gradients", 1)[name], rtol=1e-12)


def sums_of(numbers: list[float]) -> str:
    return as_stored({"": numbers})[""]


WRONG = {
    "too few": (sums_of([1.0]), r"step 0: sums\[.*copy it again"),
    "too many": (sums_of([1.0] * 18), r"step 0: sums\[.*copy it again"),
    "no base64": ("one " * 40, r"step 0: sums\[.*copy it again"),
    "a negative square": (sums_of([-1.0, *[1.0] * 16]), "no squared sum"),
    "true": (True, r"step 0: sums\[.*copy it again"),
    "digits": ([1.0] * 17, r"step 0: sums\[.*copy it again"),
    "missing": (None, r"lacks model\.embed_tokens\.weight at step 0"),
}


@pytest.mark.parametrize(("sums", "message"), WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("kind", ["gradients", "weights"])
def test_sums_that_are_none_are_refused(tmp_path: Path, kind: str, sums: object, message: str) -> None:
    run = HONEST_SKETCHED.write(tmp_path / "run")
    row = {"step": 0, "definition": DEFINITION, "sums": dict.fromkeys(SHAPES, sums) if sums else {}}
    (run / "sketches" / kind / "rank_0.jsonl").write_text(f"{json.dumps(row)}\n")
    with pytest.raises(RecordError, match=message):
        open_run(relisted(run)).sketches(kind, 0)


def test_replacing_a_run_removes_its_sketches(tmp_path: Path) -> None:
    run = HONEST_SKETCHED.write(tmp_path / "run")
    finished(described(run, range(1), run_exists="replace"), ())
    assert not list((run / "sketches").rglob("*.jsonl"))


def test_a_continued_run_makes_its_sketches_anew(tmp_path: Path) -> None:
    """Rows of steps that are made again are dropped, whether they are asked for this time or not."""
    run = HONEST_SKETCHED.write(tmp_path / "run")
    finished(described(run, range(1, 3), run_exists="continue", batches="all", local_norms="all"), ())
    continued = open_run(run)
    assert (continued.sketch_steps("gradients"), continued.sketch_steps("weights")) == ([0], [0, 1])


def test_sums_of_another_definition_are_refused(tmp_path: Path) -> None:
    run = HONEST_SKETCHED.write(tmp_path / "run")
    edit_rows(run / "sketches/weights/rank_0.jsonl", definition=DEFINITION + 1)
    with pytest.raises(RecordError, match="signed sums are of another definition"):
        open_run(relisted(run)).sketches("weights", 0)
