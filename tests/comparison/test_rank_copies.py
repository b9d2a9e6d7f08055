"""Copies that ranks should share and do not: named with the ranks and what did not happen, by one rule for every layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from align_hooks import open_run
from align_hooks.comparison.rank_copies import not_shared
from align_hooks.comparison.runs import compare
from align_hooks.comparison.verdict import Place, Verdict
from align_hooks.messages import Message, Side, all_of, message, rendered
from align_hooks.record.self_check import Contradiction, Kind
from comparison.conftest import stage
from sharded import Array, Grid, Model, write

GRADIENTS = Model().tensors(1)
NORM = "model.norm.weight"


def doubled(wrong: int, name: str = NORM) -> object:
    """What bends the copy of a tensor on one rank."""

    def bend(rank: int, each: str, part: Array) -> Array:
        return part * np.float32(2) if (rank, each) == (wrong, name) else part

    return bend


@pytest.mark.parametrize(("grid", "wrong", "axis"), [(Grid(tp=2), 1, "tp"), (Grid(dp=2), 1, "dp"), (Grid(tp=2, dp=2), 2, "dp")])
def test_a_gradient_that_is_not_reduced_is_named_with_its_ranks(tmp_path: Path, grid: Grid, wrong: int, axis: str) -> None:
    reference = write(tmp_path / "reference", Grid(), GRADIENTS)
    candidate = write(tmp_path / "candidate", grid, GRADIENTS, bend=doubled(wrong))
    found = compare(open_run(reference), open_run(candidate))
    assert found.verdict is Verdict.DIVERGED
    assert found.blame is not None and found.blame.place is Place.GRADIENTS
    told = found.blame.suspects[0].what
    assert isinstance(told, Message) and told.id == "rank_copies.not_reduced"
    assert (told.arguments["names"], told.arguments["axes"]) == (NORM, all_of(message(f"rank_copies.{axis}")))
    assert told == stage(found, "self-check").common
    assert found.next is not None and "align-hooks show" in rendered(found.next)


def test_what_a_self_check_finds_beside_copies_is_no_missing_reduction(tmp_path: Path) -> None:
    run = open_run(write(tmp_path / "run", Grid(tp=2), GRADIENTS, bend=doubled(1)))
    (copies, *_) = found = run.self_check.of_layout
    assert not_shared(run, Side.CANDIDATE, found) is not None
    assert not_shared(run, Side.CANDIDATE, [*found, Contradiction(0, Kind.BATCH, copies.first, copies.second)]) is None
    assert not_shared(run, Side.CANDIDATE, []) is None
