"""Faults of a parallel layout, told apart by what they do to gradients."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from align_hooks import open_run
from align_hooks.compare.runs import compare
from align_hooks.compare.verdict import Comparison, Verdict
from sharded import Grid, Model, write

GRADIENTS = Model().tensors(1)
DOWN = "model.layers.1.mlp.down_proj.weight"


def compared(path: Path, grid: Grid, gradients: Any = None, **planted: Any) -> Comparison:
    reference = write(path / "reference", Grid(), GRADIENTS)
    candidate = write(path / "candidate", grid, gradients or GRADIENTS, **planted)
    return compare(open_run(reference), open_run(candidate))


def summaries(found: Comparison) -> str:
    return "\n".join(f"{stage.name}: {stage.summary}" for stage in found.stages)


@pytest.mark.parametrize("grid", [Grid(tp=2), Grid(tp=2, dp=2, pp=2), Grid(tp=2, dp=2, distributed=True)])
def test_an_honest_layout_is_silent(tmp_path: Path, grid: Grid) -> None:
    assert "times the reference's" not in summaries(compared(tmp_path, grid))
    assert "holds all of its error" not in summaries(compared(tmp_path / "again", grid))


@pytest.mark.parametrize(
    ("factor", "told"),
    [
        (2.0, "every {} is 2 times the reference's: the candidate has 2 data-parallel ranks, over which it sums"),
        (0.5, "every {} is 0.5 times the reference's: the candidate has 2 data-parallel ranks, by which it divides once more"),
        (1.37, "every {} is 1.37 times the reference's"),
    ],
)
def test_gradients_summed_instead_of_averaged_are_named(tmp_path: Path, factor: float, told: str) -> None:
    found = compared(tmp_path, Grid(dp=2), {name: one * np.float32(factor) for name, one in GRADIENTS.items()})
    assert found.verdict is Verdict.DIVERGED
    assert f"local norms: 41 tensors, at step 0 (iteration 1); {told.format('norm')}" in summaries(found)
    assert f"gradients: 41 tensors, at step 0 (iteration 1); {told.format('tensor')}" in summaries(found)


def test_a_shard_that_was_dropped_is_named_with_its_rank_and_place(tmp_path: Path) -> None:
    found = compared(tmp_path, Grid(tp=2), bend=lambda rank, name, part: part * np.float32(0) if (rank, name) == (1, DOWN) else part)
    assert found.verdict is Verdict.DIVERGED
    told = f"{DOWN}: the candidate's rank 1 (tp 1) holds all of its error, in columns 6 to 11, which is zero there"
    assert told in summaries(found)


def test_a_range_of_a_distributed_optimizer_that_was_dropped_is_named(tmp_path: Path) -> None:
    grid = Grid(dp=2, distributed=True)
    cut = Counter(piece for place in grid.places() for fused, _ in Model().held(place, grid) for piece in fused.pieces)
    name = next(piece for piece, ranks in cut.items() if ranks == 2)
    found = compared(tmp_path, grid, bend=lambda rank, one, part: part * np.float32(0) if (rank, one) == (1, name) else part)
    assert found.verdict is Verdict.DIVERGED
    assert f"{name}: the candidate's rank 1 (dp 1) holds all of its error, in elements " in summaries(found)
    assert "which is zero there" in summaries(found)


def test_an_error_that_several_ranks_share_is_no_ranks(tmp_path: Path) -> None:
    found = compared(tmp_path, Grid(tp=2), GRADIENTS | {DOWN: GRADIENTS[DOWN] * np.float32(1.1)})
    assert found.verdict is Verdict.DIVERGED
    assert "holds all of its error" not in summaries(found)
    assert "times the reference's" not in summaries(found)
