"""Faults of a parallel layout, told apart by what they do to gradients; and where an error comes into the backward pass."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from align_hooks import open_run
from align_hooks.comparison.diagnosis.backward_boundary import BackwardBoundary, backward_boundary
from align_hooks.comparison.finding import Finding, Metric, Pattern, when
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.patterns.rank_copies import explained, norm_by_a_factor, not_marked, not_shared, ranks_in_words
from align_hooks.comparison.patterns.sharding import explanation, sides, spans, unused
from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.stage_result import FaultLocation
from align_hooks.comparison.verdict import ComparisonResult, Verdict
from align_hooks.messages import Joined, Message, Side, all_of, message, rendered, sentences, terms
from align_hooks.record.check.contradictions import Contradiction, ContradictionKind, Statement, Witness
from comparison.conftest import stage
from sharded import Array, Grid, Model, write
from synthetic import NAMES, Synthetic

GRADIENTS = Model().tensors(1)
DOWN, NORM = "model.layers.1.mlp.down_proj.weight", "model.norm.weight"


def times(factor: float, wrong: int, name: str) -> Callable[[int, str, Array], Array]:
    """What bends the part of a tensor on one rank."""
    return lambda rank, each, part: part * np.float32(factor) if (rank, each) == (wrong, name) else part


def compared(path: Path, grid: Grid, gradients: Any = None, **planted: Any) -> ComparisonResult:
    reference = write(path / "reference", Grid(), GRADIENTS)
    candidate = write(path / "candidate", grid, gradients or GRADIENTS, **planted)
    return compare(open_run(reference), open_run(candidate))


def told(found: ComparisonResult) -> list[Message]:
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
    assert [each.arguments["what"] for each in told(outcome)] == [Metric.LOCAL_NORMS, Metric.GRADIENTS]
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
    assert explanation(runs, Metric.GRADIENTS, 0, findings) == (clipped, Pattern.CLIPPED_BEFORE)


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
    assert (found.verdict, found.blame.place) == (Verdict.DIVERGED, FaultLocation.GRADIENTS)
    told = found.blame.suspects[0].what
    assert told.id == "rank_copies.not_reduced"
    assert (told.arguments["names"], told.arguments["axes"]) == (NORM, all_of(message(f"rank_copies.{axis}")))
    assert told == stage(found, "self-check").common
    assert "align-hooks show" in rendered(found.next)


def norms_off(*factors: float, kind: ContradictionKind = ContradictionKind.NORM_TAKEN_AGAIN) -> list[Contradiction]:
    """A framework's norms of some steps, each off by a factor."""
    claims = [(Statement(Witness.FRAMEWORK, 3.0 * factor), Statement(Witness.SAME_GRADIENTS, 3.0)) for factor in factors]
    return [Contradiction(step, kind, *each) for step, each in enumerate(claims)]


def of_ranks(kind: ContradictionKind, *names: str, step: int = 0) -> list[Contradiction]:
    """What ranks 0 and 1 say of some tensors."""
    claims = (Statement(Witness.COPY, 3.0, 0), Statement(Witness.COPY, 2.0, 1))
    return [Contradiction(step, kind, *claims, name=name, rank=1) for name in names]


HELD, APART, LEFT_OUT = ContradictionKind.HELD_TWICE, ContradictionKind.GRADIENT_COPIES, ContradictionKind.LEFT_OUT
COMPUTED = ContradictionKind.COMPUTED_COPIES
AGAIN, OF_RANK, COPIES = ContradictionKind.COUNTED_ALONE, ContradictionKind.RANK_LEFT_OUT, ContradictionKind.COPIES_COUNTED


@pytest.mark.parametrize(
    ("found", "id", "pattern", "place"),
    [
        (of_ranks(HELD, DOWN), "rank_copies.counted_twice", Pattern.NORM_MISCOUNTS, FaultLocation.CLIPPING),
        ([*of_ranks(HELD, DOWN), *norms_off(1.1)], "rank_copies.counted_twice", Pattern.NORM_MISCOUNTS, FaultLocation.CLIPPING),
        ([*of_ranks(HELD, DOWN), *of_ranks(APART, DOWN)], "rank_copies.named_alike", Pattern.NAMED_ALIKE, FaultLocation.WEIGHTS),
        (of_ranks(LEFT_OUT, DOWN) * 2, "rank_copies.left_out", Pattern.NORM_MISCOUNTS, FaultLocation.SELF_CHECK),
        (of_ranks(COMPUTED, DOWN), "rank_copies.start_apart", Pattern.RANKS_DIFFER, FaultLocation.WEIGHTS),
        (of_ranks(COMPUTED, DOWN, step=1), "rank_copies.computed_apart", Pattern.RANKS_DIFFER, FaultLocation.OPTIMIZER),
        (of_ranks(AGAIN, DOWN), "rank_copies.counted_alone", Pattern.NORM_MISCOUNTS, FaultLocation.CLIPPING),
        (of_ranks(OF_RANK, ""), "rank_copies.rank_left_out", Pattern.NORM_MISCOUNTS, FaultLocation.CLIPPING),
        (of_ranks(COPIES, ""), "rank_copies.copies_counted", Pattern.NORM_MISCOUNTS, FaultLocation.CLIPPING),
        (of_ranks(LEFT_OUT, DOWN, NORM), None, None, None),
        ([*of_ranks(OF_RANK, ""), *of_ranks(COPIES, "")], None, None, None),
    ],
)
def test_what_a_norm_does_not_count_once_is_told(
    tmp_path: Path, found: list[Contradiction], id: str | None, pattern: Pattern | None, place: FaultLocation | None
) -> None:
    run = open_run(write(tmp_path / "run", Grid(dp=2), GRADIENTS))
    told = explained(Pair(run, open_run(Synthetic().write(tmp_path / "other"))), run, Side.REFERENCE, found)
    assert (told and (told[0].id, *told[1:])) == (id and (id, pattern, place))


@pytest.mark.parametrize(("ranks", "told"), [([1, 3], "tensor-parallel rank 1"), ([2, 3], "data-parallel rank 1"), ([1], "rank 1")])
def test_ranks_are_named_by_the_coordinate_that_they_alone_have(tmp_path: Path, ranks: list[int], told: str) -> None:
    assert rendered(ranks_in_words(open_run(write(tmp_path / "run", Grid(tp=2, dp=2), GRADIENTS)), ranks)) == told


@pytest.mark.parametrize(("rows", "marked"), [(2, False), (1, True), (3, True)])
def test_parts_that_a_framework_takes_for_copies_are_told_by_the_other_runs_shapes(tmp_path: Path, rows: int, marked: bool) -> None:
    other = Synthetic()
    run = open_run(write(tmp_path / "run", Grid(tp=2), GRADIENTS))
    shape = Pair(run, run).pieces(run)[DOWN]
    other.shapes[DOWN] = (shape[0] * rows, *shape[1:])
    pair = Pair(run, open_run(other.write(tmp_path / "other")))
    told = not_marked(pair, run, Side.REFERENCE, of_ranks(ContradictionKind.WEIGHT_COPIES, DOWN))
    assert (told is None) == marked
    if told is not None:
        assert (told[0].arguments["names"], told[0].arguments["count"]) == (DOWN, 2)


@pytest.mark.parametrize(
    ("factors", "id"),
    [
        ((2**0.5, 2**0.5), "rank_copies.norm_added_again"),
        ((0.5, 0.5), "rank_copies.norm_by_a_factor"),
        ((2.0,), "rank_copies.norm_by_a_factor"),
        ((2**0.5, 2.0), None),
        ((), None),
    ],
)
def test_norms_that_are_off_by_one_factor_are_told_with_the_ranks_whose_root_it_is(
    tmp_path: Path, factors: tuple[float, ...], id: str | None
) -> None:
    run = open_run(write(tmp_path / "run", Grid(dp=2), GRADIENTS))
    found = norms_off(*factors)
    told = norm_by_a_factor(run, Side.CANDIDATE, found)
    assert told == norm_by_a_factor(run, Side.CANDIDATE, norms_off(*factors, kind=ContradictionKind.ELEMENTS))
    assert (told and (told[0].id, told[2])) == (id and (id, FaultLocation.CLIPPING))
    if told is not None:
        assert told[0].arguments["factor"] == pytest.approx(factors[0])
        assert told[0].arguments.get("axes") == (all_of(message("rank_copies.dp")) if "added" in told[0].id else None)
        other = Contradiction(0, ContradictionKind.BATCH, found[0].first, found[0].second)
        assert norm_by_a_factor(run, Side.CANDIDATE, [*found, other]) is None


def test_what_a_self_check_finds_beside_copies_is_no_missing_reduction(tmp_path: Path) -> None:
    run = open_run(write(tmp_path / "run", Grid(tp=2), GRADIENTS, bend=times(2, 1, NORM)))
    (copies, *_) = found = run.self_check.of_layout
    assert not_shared(run, Side.CANDIDATE, found) is not None
    assert not_shared(run, Side.CANDIDATE, [*found, Contradiction(0, ContradictionKind.BATCH, copies.first, copies.second)]) is None
    assert not_shared(run, Side.CANDIDATE, []) is None


# ---- where an error comes into the backward pass, and rows that get no gradient

QKV, MLP = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
LAYER = ("input_layernorm", *QKV, "self_attn.o_proj", "post_attention_layernorm", *MLP)
IN_ORDER = [
    "model.embed_tokens.weight",
    *(f"model.layers.{layer}.{kind}.weight" for layer in range(3) for kind in LAYER),
    "model.norm.weight",
    "lm_head.weight",
]


def findings(*wrong: str, step: int = 0) -> list[Finding]:
    return [Finding(name, error=1.0 if name in wrong else 0.0, limit=0.1, name=name, step=step) for name in IN_ORDER]


def below(name: str) -> list[str]:
    """Everything that a forward pass meets before ``name``."""
    return IN_ORDER[: IN_ORDER.index(name)]


def at(layer: int, *kinds: str) -> tuple[str, ...]:
    return tuple(f"model.layers.{layer}.{kind}.weight" for kind in kinds)


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        (below("model.layers.1.input_layernorm.weight"), BackwardBoundary(at(1, "input_layernorm"), at(0, "mlp.down_proj"))),
        (below("model.layers.2.mlp.down_proj.weight"), BackwardBoundary(at(2, "mlp.down_proj"), at(2, "mlp.gate_proj", "mlp.up_proj"))),
        ([*below("model.layers.1.self_attn.q_proj.weight"), *at(1, QKV[1])], BackwardBoundary(at(1, "self_attn.o_proj"), at(1, QKV[1]))),
        (IN_ORDER, BackwardBoundary((), ("lm_head.weight",))),
        (below("lm_head.weight"), BackwardBoundary(("lm_head.weight",), ("model.norm.weight",))),
        ([], None),
        (["model.layers.1.mlp.up_proj.weight"], None),
        (["model.embed_tokens.weight"], None),
        ([f"model.layers.{layer}.input_layernorm.weight" for layer in range(3)], None),
    ],
)
def test_the_boundary_of_an_error(wrong: list[str], found: BackwardBoundary | None) -> None:
    assert backward_boundary(findings(*wrong)) == found


def test_it_is_looked_for_in_the_first_step_that_differs() -> None:
    wrong = below("model.layers.1.input_layernorm.weight")
    outcome = backward_boundary([*findings(step=0), *findings(*wrong, step=1), *findings(*IN_ORDER, step=2)])
    assert outcome == BackwardBoundary(at(1, "input_layernorm"), at(0, "mlp.down_proj"))
    above, below_it = "model.layers.1.input_layernorm.weight", "model.layers.0.mlp.down_proj.weight"
    assert outcome.words == message("backward_boundary.boundary", above=above, below=below_it)


def test_rows_and_columns_without_a_gradient_are_told_with_their_side() -> None:
    name = "model.layers.0.self_attn.k_proj.weight"
    ours, theirs = np.ones((32, 8)), np.ones((32, 8))
    theirs[16:] = 0
    wrong = [Finding(name, error=1.0, limit=0.1, name=name)]
    span = message("unused.span", first=16, last=31)
    rows = {side: message("unused.rows", name=name, places=all_of(span), side=side) for side in Side}
    assert unused([{name: ours}, {name: theirs}], wrong) == sentences(rows[Side.CANDIDATE])
    assert unused([{name: theirs}, {name: ours}], wrong) == sentences(rows[Side.REFERENCE])
    assert list(sides(name, ours.T, theirs.T)) == [message("unused.columns", name=name, places=all_of(span), side=Side.CANDIDATE)]
    assert list(sides(name, ours, np.zeros_like(ours))) == []  # nothing of it is used: that is no part of it
    assert list(sides(name, ours, ours)) == []
    assert unused([{name: ours}, {name: theirs}], [Finding(name, error=0.0, limit=0.1, name=name)]) is None


def test_places_in_a_row_are_joined() -> None:
    assert spans(np.array([3])) == all_of(3)
    rows = [message("unused.span", first=first, last=last) for first, last in ((0, 2), (8, 9))]
    assert spans(np.array([0, 1, 2, 8, 9, 12])) == message("unused.and_further", places=all_of(*rows))
