"""Records of many ranks held against themselves: honest ones hold, and each way to lose or repeat a shard is named."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from align_hooks import Run, open_run
from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.stage_result import Status
from align_hooks.errors import RecordError
from align_hooks.record.check.contradictions import Contradiction, ContradictionKind, Statement, Weighing, Witness
from align_hooks.record.format.shard import Shard
from align_hooks.record.read.problems import ProblemKind
from rewritten import bend, bend_rows, edit_rows, relisted
from sharded import Grid, Model, write
from synthetic import ROWS, SEQUENCE, Synthetic, batch, row
from worded import arguments

GRIDS = {
    "one rank": Grid(),
    "TP2": Grid(tp=2),
    "DP2": Grid(dp=2),
    "DP3 with a distributed optimizer": Grid(dp=3, distributed=True),
    "TP2 DP2 PP2": Grid(tp=2, dp=2, pp=2),
    "TP2 DP2 PP4 with a distributed optimizer": Grid(tp=2, dp=2, pp=4, distributed=True),
}
GRADIENTS = Model().tensors(1)
NORM = "model.norm.weight"
DOWN = "model.layers.1.mlp.down_proj.weight"


def held_against_itself(run: Run) -> tuple[object, object, object]:
    """Which steps were checked and which not, and what contradicts itself."""
    return run.self_check.steps, run.self_check.unchecked, run.self_check.contradictions


def entry(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    """A manifest's entry of a tensor."""
    return next(parameter for parameter in manifest["parameters"] if parameter["name"] == name)


def only(path: Path) -> Contradiction:
    """The one contradiction of a run."""
    (contradiction,) = open_run(path).self_check.contradictions
    return contradiction


@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS.keys())
def test_honest_ranks_hold_every_element_once(tmp_path: Path, grid: Grid) -> None:
    run = open_run(write(tmp_path / "run", grid, GRADIENTS))
    assert held_against_itself(run) == ((0,), (), ())
    assert run.self_check.inexact == pytest.approx(0, abs=1e-12)
    gradients, norms = run.gradients(0), run.local_norms(0)
    assert set(gradients) == set(norms) == set(GRADIENTS)
    for name, whole in GRADIENTS.items():
        np.testing.assert_array_equal(gradients[name], whole)
        assert norms[name] == pytest.approx(np.linalg.norm(whole.astype(np.float64)), rel=1e-6)


@pytest.mark.parametrize(("grid", "copies"), [(Grid(tp=2), 9), (Grid(dp=2), 41), (Grid(tp=2, dp=2), 3 * 9 + 2 * 30 + 2), (Grid(pp=2), 0)])
def test_copies_are_counted(tmp_path: Path, grid: Grid, copies: int) -> None:
    """Nine norms stand on every tensor-parallel rank, the two paddings on the last alone; data-parallel ranks have a copy of each part."""
    assert open_run(write(tmp_path / "run", grid, GRADIENTS)).self_check.copies == copies


def test_a_shard_that_a_table_lacks_is_named(tmp_path: Path) -> None:
    lost = only(write(tmp_path / "run", Grid(tp=2), GRADIENTS, lose=lambda rank, shard: rank == 1 and shard.name == DOWN))
    assert lost.kind is ContradictionKind.ELEMENTS  # nothing names the rank
    assert (lost.first.witness, lost.second.witness) == (Witness.COUNTED_GRADIENTS, Witness.RECORDED_NORMS)


def test_a_copy_that_counts_twice_is_named_with_the_rank_that_holds_it(tmp_path: Path) -> None:
    """The framework leaves a tensor-parallel copy out of its norm; a table that counts it is wrong, and it counts once all the same."""
    path = write(tmp_path / "run", Grid(tp=2), GRADIENTS)
    bend(path / "manifest" / "rank_1.json", lambda manifest: entry(manifest, NORM).update(counted=True))
    (held,) = open_run(path).self_check.contradictions
    assert (held.kind, held.name, held.rank) == (ContradictionKind.HELD_TWICE, NORM, 1)


@pytest.mark.parametrize(
    ("native", "layer"), [("decoder.layers.1.mlp.linear_fc2.weight", 1), ("decoder.layers.*.mlp.linear_fc2.weight", None)]
)
def test_what_a_norm_leaves_out_of_a_rank_is_named_one_tensor_or_all_of_a_kind(tmp_path: Path, native: str, layer: int | None) -> None:
    def left_out(rank: int, shard: Shard) -> bool:
        return rank == 1 and shard.name.endswith("mlp.down_proj.weight") and (layer is None or f".{layer}." in shard.name)

    missed = only(write(tmp_path / "run", Grid(tp=2), GRADIENTS, left_out=left_out))
    assert (missed.kind, missed.name, missed.rank) == (ContradictionKind.LEFT_OUT, native, 1)


@pytest.mark.parametrize(("grid", "ranks"), [(Grid(tp=2), [1]), (Grid(tp=2, dp=2, distributed=True), [1, 3]), (Grid(tp=2, pp=2), [1, 3])])
def test_all_that_a_norm_leaves_out_of_ranks_is_named(tmp_path: Path, grid: Grid, ranks: list[int]) -> None:
    path = write(tmp_path / "run", grid, GRADIENTS, left_out=lambda rank, shard: rank in ranks)
    found = open_run(path).self_check.contradictions
    assert [(each.kind, each.name, each.rank) for each in found] == [(ContradictionKind.RANK_LEFT_OUT, "", rank) for rank in ranks]


@pytest.mark.parametrize(("name", "kind"), [("", ContradictionKind.COPIES_COUNTED), (NORM, ContradictionKind.COUNTED_ALONE)])
def test_copies_that_a_norm_counts_are_named_with_their_rank(tmp_path: Path, name: str, kind: ContradictionKind) -> None:
    counted = only(write(tmp_path / "run", Grid(tp=2), GRADIENTS, again=lambda rank, shard: not shard.counted and name in shard.name))
    assert (counted.kind, bool(counted.name), counted.rank) == (kind, bool(name), 1)


@pytest.mark.parametrize("grid", [Grid(tp=2), Grid(dp=2)], ids=["tensor parallel", "data parallel"])
def test_a_replicated_gradient_that_one_rank_did_not_reduce_is_named(tmp_path: Path, grid: Grid) -> None:
    def halved(rank: int, name: str, part: Any) -> Any:
        return part * np.float32(0.5) if (rank, name) == (1, NORM) else part

    copy = only(write(tmp_path / "run", grid, GRADIENTS, bend=halved))
    assert (copy.kind, copy.name, copy.rank) == (ContradictionKind.GRADIENT_COPIES, NORM, 1)
    assert (copy.first.rank, copy.second.rank) == (0, 1)
    assert copy.first.value == pytest.approx(2 * copy.second.value)


@pytest.mark.parametrize(
    ("grid", "odd"), [(Grid(dp=2, distributed=True), [1]), (Grid(tp=2, dp=2), [2, 3]), (Grid(tp=2), []), (Grid(pp=2), [])]
)
def test_weights_that_data_parallel_ranks_compute_with_and_that_differ_are_named(tmp_path: Path, grid: Grid, odd: list[int]) -> None:
    """Tensor- and pipeline-parallel ranks may have other parts of a weight."""
    path = write(tmp_path / "run", grid, GRADIENTS, weights=lambda rank: {NORM: 4.0, DOWN: 9.0 if rank < 2 - bool(grid.tp == 1) else 9.1})
    found = open_run(path).self_check.contradictions
    assert [(each.kind, each.name, each.rank) for each in found] == [(ContradictionKind.COMPUTED_COPIES, DOWN, rank) for rank in odd]
    assert all(each.first.value == 3.0 for each in found)


def test_weights_that_one_rank_alone_recorded_contradict_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "run", Grid(dp=2), GRADIENTS, weights=lambda rank: {DOWN: 9.0} if rank else {})
    assert open_run(path).self_check.contradictions == ()


def test_a_rank_that_clipped_by_another_norm_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "run", Grid(dp=2), GRADIENTS)
    honest = open_run(path).rank_rows(0)[0].grad_norm
    edit_rows(path / "scalars" / "rank_1.jsonl", grad_norm=3.25)
    assert only(path) == Contradiction(
        0, ContradictionKind.GRAD_NORM, Statement(Witness.RANK, honest, 0), Statement(Witness.RANK, 3.25, 1), rank=1
    )


@pytest.mark.parametrize(
    ("per_token", "shares", "weighing"),
    [
        (True, [[20.0, 10, 20.0], [6.0, 2, 6.0]], None),
        (False, [[20.0, 10, 1.0], [6.0, 2, 1.5]], None),
        (False, [[20.0, 10, 1.0], [30.0, 10, 1.5]], None),
        (True, [[20.0, 10, 1.0], [6.0, 2, 1.5]], Weighing.BY_MICRO_BATCH),
        (False, [[20.0, 10, 20.0], [6.0, 2, 6.0]], Weighing.ALIKE),
        (True, [[20.0, 10, 20.0], [6.0, 2, 7.0]], Weighing.NEITHER),
        (True, [[20.0, 10, -20.0], [6.0, 2, 6.0]], Weighing.NEITHER),
        (True, [[20.0, 10, "nan"], [6.0, 2, 6.0]], Weighing.NEITHER),
    ],
)
def test_tokens_that_weigh_otherwise_than_the_settings_say_are_named(
    tmp_path: Path, per_token: bool, shares: list[list[Any]], weighing: Weighing | None
) -> None:
    path = write(tmp_path / "run", Grid(), GRADIENTS, micro_batches=shares)
    bend(path / "run.json", lambda facts: facts["training"].update(per_token_loss=per_token))
    contradictions = open_run(path).self_check.contradictions
    named = [(each.first.value, each.second.value) for each in contradictions if each.kind is ContradictionKind.WEIGHTS_OF_TOKENS]
    assert named == ([] if weighing is None else [(Weighing.ALIKE if per_token else Weighing.BY_MICRO_BATCH, weighing)])


def test_a_run_of_which_the_framework_took_no_norm_is_unchecked_and_copies_alone_prove_nothing_of_lost_shards(tmp_path: Path) -> None:
    path = write(tmp_path / "run", Grid(tp=2), GRADIENTS)
    for rows in (path / "local_norms").iterdir():
        bend_rows(rows, lambda row: row.pop("taken"))
    run = open_run(relisted(path))
    assert held_against_itself(run) == ((), (0,), ())
    stage = next(stage for stage in compare(run, run).stages if stage.name == "self-check")
    assert stage.status is Status.NOT_COMPARED
    assert arguments("copies.alike", stage.summary)["count"] == 18


def test_of_a_run_that_lacks_a_rank_nothing_is_said_to_be_lost_and_no_loss_is_known(tmp_path: Path) -> None:
    path = write(tmp_path / "run", Grid(dp=2, distributed=True), GRADIENTS)
    assert open_run(path).scalars()[0]["loss"] == 9.0
    (path / "manifest" / "rank_1.json").unlink()
    run = open_run(path)
    assert held_against_itself(run) == ((), (0,), ())
    assert [run.scalars()[0][key] for key in ("loss", "objective_loss", "valid_tokens")] == [None, None, None]
    assert [problem.kind for problem in run.problems] == [ProblemKind.RANKS_MISSING]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("shape", "[10000000000, 100000000000]"),
        ("shape", "[-1, 8]"),
        ("shape", '["8", 12]'),
        ("box", "[[0, 9], [0, 12]]"),
        ("box", "[[0, 8]]"),
        ("box", '[["0", 8], [0, 12]]'),
        ("flat", "[0, 97]"),
        ("flat", "[5, 4]"),
        ("flat", '"x"'),
    ],
)
def test_a_parameter_table_that_says_what_cannot_be_is_refused(tmp_path: Path, key: str, value: str) -> None:
    path = write(tmp_path / "run", Grid(), GRADIENTS)
    bend(path / "manifest" / "rank_0.json", lambda manifest: entry(manifest, DOWN).update({key: json.loads(value)}))
    with pytest.raises(RecordError, match=r"rank_0.json: parameters\[.*copy it again"):
        open_run(path)


@pytest.mark.parametrize("value", ["-1.0", '"-inf"', "[1]", "1e300", "null", '"x"', "true"])
def test_a_squared_sum_that_is_none_is_refused(tmp_path: Path, value: str) -> None:
    path = write(tmp_path / "run", Grid(), GRADIENTS)
    bend_rows(path / "local_norms/rank_0.jsonl", lambda row: row["squared"].update({NORM: json.loads(value)}))
    with pytest.raises(RecordError, match=r"step 0: (squared|.* no squared sum).*copy it again"):
        _ = open_run(relisted(path)).self_check


def weighed(path: Path, mask: Any, loss: float, tokens: int | None, losses: Any = 2, micro_batches: tuple[int, ...] = (ROWS,)) -> Run:
    """A run of one step whose tokens have these losses, under a mask."""
    synthetic = Synthetic(settings={"batches": "all"}, rows=[row(0)], gradients={}, norms={}, micro_batches=[*micro_batches])
    synthetic.batches = {0: batch(0) | {"token_losses": np.full((ROWS, SEQUENCE), losses, np.float32)}}
    if mask is None:
        del synthetic.batches[0]["loss_mask"]
    else:
        synthetic.batches[0]["loss_mask"] = np.full((ROWS, SEQUENCE), mask, np.float32)
    synthetic.rows[0] |= {"loss": loss, "objective_loss": loss, "valid_tokens": tokens}
    return open_run(synthetic.write(path))


@pytest.mark.parametrize(
    ("mask", "loss", "tokens", "accused"),
    [
        (1, 2.0, 20, False),
        (1, 2.001, 20, True),
        (0.25, 2.0, 5, False),
        (0.3, 2.0, 6, False),
        (0.26, 2 * 5.2 / 5, 5, False),  # counted in whole tokens, as Megatron does
        (0.26, 2.2, 5, True),
        (None, 3.0, 20, False),  # which tokens count is not on record
    ],
)
def test_a_loss_is_held_against_its_token_losses(tmp_path: Path, mask: Any, loss: float, tokens: int, accused: bool) -> None:
    assert bool(weighed(tmp_path / "run", mask, loss, tokens).self_check.of_losses) is accused


@pytest.mark.parametrize(("loss", "accused"), [(3.0, False), (2.5, True)])
def test_a_loss_of_no_number_of_tokens_is_the_mean_of_its_micro_batches(tmp_path: Path, loss: float, accused: bool) -> None:
    """Three rows count in the first micro-batch, whose losses are 2, and one in the second, whose losses are 4."""
    run = weighed(tmp_path / "run", 1, loss, None, [[2]] * (ROWS - 1) + [[4]], (ROWS - 1, 1))
    assert bool(run.self_check.of_losses) is accused


@pytest.mark.parametrize(
    ("mask", "tokens", "agrees"),
    [
        (1, 20, True),
        (1, 2, False),  # a sum that is said to be a mean
        (0.5, 10, True),
        (0.5, 20, True),  # tokens that count, whatever they weigh
        (0.26, 5, True),  # in whole numbers of each micro-batch
        (0.26, 7, False),
        (-1, 20, False),  # labels, or another array, taken for the mask
        (None, 3, True),  # no mask is on record
    ],
)
def test_the_tokens_that_a_loss_function_counts_are_held_against_the_mask(tmp_path: Path, mask: Any, tokens: int, agrees: bool) -> None:
    check = weighed(tmp_path / "run", mask, 2.0, tokens).self_check
    counts = [contradiction for contradiction in check.contradictions if contradiction.kind is ContradictionKind.COUNT]
    assert (not counts, check.of_layout) == (agrees, [])
    if counts:
        assert [(claim.witness, claim.value) for claim in (counts[0].first, counts[0].second)] == [
            (Witness.LOSS_FUNCTION, tokens),
            (Witness.MASK, pytest.approx(20 * mask)),
        ]
