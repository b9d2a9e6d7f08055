"""Faults of a parallel layout, told apart by what they do to gradients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from align_hooks import open_run
from align_hooks.comparison.rank_copies import not_shared
from align_hooks.comparison.runs import compare
from align_hooks.comparison.sharding import explanation
from align_hooks.comparison.verdict import Comparison, Finding, Place, Quantity, Verdict, when
from align_hooks.messages import Joined, Message, Side, all_of, message, rendered, sentences, terms
from align_hooks.record.self_check import Contradiction, Kind
from comparison.conftest import stage
from sharded import Array, Grid, Model, write
from synthetic import NAMES, Synthetic

GRADIENTS = Model().tensors(1)
DOWN, NORM = "model.layers.1.mlp.down_proj.weight", "model.norm.weight"


def times(factor: float, wrong: int, name: str) -> Callable[[int, str, Array], Array]:
    """What bends the part of a tensor on one rank."""
    return lambda rank, each, part: part * np.float32(factor) if (rank, each) == (wrong, name) else part


def compared(path: Path, grid: Grid, gradients: Any = None, **planted: Any) -> Comparison:
    reference = write(path / "reference", Grid(), GRADIENTS)
    candidate = write(path / "candidate", grid, gradients or GRADIENTS, **planted)
    return compare(open_run(reference), open_run(candidate))


def told(found: Comparison) -> list[Message]:
    """What stages say that their findings have in common."""
    common = [stage.common for stage in found.stages]
    joined = [part for words in common if isinstance(words, Joined) for part in words.parts]
    return [words for words in (*common, *joined) if isinstance(words, Message)]


@pytest.mark.parametrize("grid", [Grid(tp=2), Grid(tp=2, dp=2, pp=2), Grid(tp=2, dp=2, distributed=True)])
def test_an_honest_layout_is_silent(tmp_path: Path, grid: Grid) -> None:
    assert told(compared(tmp_path, grid)) == []


@pytest.mark.parametrize(("factor", "origin"), [(2.0, "sharding.sums"), (0.5, "sharding.divides_once_more"), (1.37, None)])
def test_gradients_summed_instead_of_averaged_are_named(tmp_path: Path, factor: float, origin: str | None) -> None:
    outcome = compared(tmp_path, Grid(dp=2), {name: each * np.float32(factor) for name, each in GRADIENTS.items()})
    assert outcome.verdict is Verdict.DIVERGED
    assert [each.id for each in told(outcome)] == [f"sharding.scaled{'_by_own_number' if origin else ''}"] * 2
    assert [each.arguments["what"] for each in told(outcome)] == [Quantity.LOCAL_NORMS, Quantity.GRADIENTS]
    assert stage(outcome, "gradients").headline == stage(outcome, "gradients").common
    for each in told(outcome):
        assert each.arguments["factor"] == pytest.approx(factor)
        by = each.arguments.get("origin")
        if origin is not None:
            assert by == message(origin, side=Side.CANDIDATE, what=message("divisor.data_parallel_ranks", number=2))
    for result in (stage(outcome, "local norms"), stage(outcome, "gradients")):
        assert result.summary == sentences(message("same_weights.at_steps", count=41, steps=when(0)), result.common)


@pytest.mark.parametrize("factor", [0.5, 0.7])
def test_a_first_clipping_is_told_before_the_factor_that_it_makes(tmp_path: Path, factor: float) -> None:
    candidate = Synthetic()
    for row in candidate.rows:
        row["grad_norm"] = candidate.optimizer["clip_grad"]
    runs = tuple(open_run(run.write(tmp_path / name)) for name, run in (("reference", Synthetic()), ("candidate", candidate)))
    findings = [Finding(name, error=1 - factor, limit=1e-5, scale=factor, direction=0.0, name=name) for name in NAMES[:2]]
    clipped = message("sharding.clipped_before", side=Side.CANDIDATE, count=len(candidate.rows), limit=1.0)
    assert explanation(runs, Quantity.GRADIENTS, 0, findings) == clipped


def test_a_shard_that_was_dropped_is_named_with_its_rank_and_place(tmp_path: Path) -> None:
    outcome = compared(tmp_path, Grid(tp=2), bend=times(0, 1, DOWN))
    assert outcome.verdict is Verdict.DIVERGED
    where = {"place": terms(["tp 1"]), "region": terms([message("sharding.columns", first=6, last=11)])}
    assert message("sharding.rank_holds_the_error_and_zeros", name=DOWN, side=Side.CANDIDATE, rank=1, **where) in told(outcome)


def test_a_range_of_a_distributed_optimizer_that_was_dropped_is_named(tmp_path: Path) -> None:
    grid = Grid(dp=2, distributed=True)
    cut = Counter(piece for place in grid.places() for fused, _ in Model().held(place, grid) for piece in fused.pieces)
    name = next(piece for piece, ranks in cut.items() if ranks == 2)
    outcome = compared(tmp_path, grid, bend=times(0, 1, name))
    assert outcome.verdict is Verdict.DIVERGED
    (where,) = {each for each in told(outcome) if each.arguments.get("name") == name}
    assert where.id == "sharding.rank_holds_the_error_and_zeros"
    assert (where.arguments["rank"], where.arguments["place"]) == (1, terms(["dp 1"]))
    assert where.arguments["region"].id == "sharding.elements"


def test_an_error_that_several_ranks_share_is_no_ranks(tmp_path: Path) -> None:
    outcome = compared(tmp_path, Grid(tp=2), GRADIENTS | {DOWN: GRADIENTS[DOWN] * np.float32(1.1)})
    assert outcome.verdict is Verdict.DIVERGED
    assert told(outcome) == []


# ---- copies that ranks should share and do not: one rule for every layout


@pytest.mark.parametrize(("grid", "wrong", "axis"), [(Grid(tp=2), 1, "tp"), (Grid(dp=2), 1, "dp"), (Grid(tp=2, dp=2), 2, "dp")])
def test_a_gradient_that_is_not_reduced_is_named_with_its_ranks(tmp_path: Path, grid: Grid, wrong: int, axis: str) -> None:
    found = compared(tmp_path, grid, bend=times(2, wrong, NORM))
    assert (found.verdict, found.blame.place) == (Verdict.DIVERGED, Place.GRADIENTS)
    told = found.blame.suspects[0].what
    assert told.id == "rank_copies.not_reduced"
    assert (told.arguments["names"], told.arguments["axes"]) == (NORM, all_of(message(f"rank_copies.{axis}")))
    assert told == stage(found, "self-check").common
    assert "align-hooks show" in rendered(found.next)


def test_what_a_self_check_finds_beside_copies_is_no_missing_reduction(tmp_path: Path) -> None:
    run = open_run(write(tmp_path / "run", Grid(tp=2), GRADIENTS, bend=times(2, 1, NORM)))
    (copies, *_) = found = run.self_check.of_layout
    assert not_shared(run, Side.CANDIDATE, found) is not None
    assert not_shared(run, Side.CANDIDATE, [*found, Contradiction(0, Kind.BATCH, copies.first, copies.second)]) is None
    assert not_shared(run, Side.CANDIDATE, []) is None
