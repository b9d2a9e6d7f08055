"""Where an error comes about: the first point that is further beyond its limit than all that it is made from."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest

import synthetic
from align_hooks import open_run
from align_hooks.comparison.points import backward_order, forward_order, healed, origins
from align_hooks.comparison.runs import compare
from align_hooks.comparison.stages.activation_gradients import activation_gradients
from align_hooks.comparison.stages.activations import activations
from align_hooks.comparison.verdict import Comparison, Finding, Place, StageResult, Status, Verdict, when
from align_hooks.messages import message, terms
from align_hooks.names.points import GRADIENT, LOGITS, consumers
from synthetic import ROWS, SEQUENCE, Synthetic
from worded import arguments

LAYER = "model.layers.0"
POINTS = (
    "model.embed_tokens",
    f"{LAYER}.input",
    f"{LAYER}.self_attn.o_proj",
    f"{LAYER}.residual",
    f"{LAYER}.mlp.down_proj",
    LAYER,
    "model.norm",
)


def found(excess: dict[str, float], *, backward: bool = False) -> list[str]:
    findings = {name: Finding(name, error=value, limit=1.0, name=name) for name, value in excess.items()}
    ordered, made_from = (backward_order if backward else forward_order)(list(findings))
    return [origin.finding.name for origin in origins(findings, ordered, made_from)]


def test_the_first_jump_is_the_origin_and_what_follows_is_not() -> None:
    quiet = dict.fromkeys(POINTS, 0.2)
    assert found(quiet) == []
    behind = dict.fromkeys((f"{LAYER}.self_attn.o_proj", f"{LAYER}.residual", LAYER, "model.norm"), 50.0)
    assert found(quiet | behind) == [f"{LAYER}.self_attn.o_proj"]


def test_a_second_fault_shows_where_it_is_further_beyond_than_the_first_left_it() -> None:
    errors = dict.fromkeys(POINTS, 0.2) | {
        f"{LAYER}.self_attn.o_proj": 50.0,
        f"{LAYER}.residual": 30.0,
        f"{LAYER}.mlp.down_proj": 400.0,
        LAYER: 300.0,
    }
    assert found(errors) == [f"{LAYER}.self_attn.o_proj", f"{LAYER}.mlp.down_proj"]


def test_an_error_that_grows_from_point_to_point_is_told_at_the_first_beyond_its_limit() -> None:
    growing = {name: 0.6 * 1.3**index for index, name in enumerate(POINTS)}
    assert found(growing) == [next(name for name in POINTS if growing[name] > 1)]


def otherwise(excess: dict[str, float], *, backward: bool = False) -> list[str]:
    ordered, made_from = (backward_order if backward else forward_order)(list(excess))
    return healed(excess, ordered, consumers(made_from))


def test_a_point_is_written_otherwise_where_all_that_is_made_from_it_agrees() -> None:
    quiet = dict.fromkeys(POINTS, 0.5)
    turned = f"{LAYER}.self_attn.o_proj"
    assert otherwise(quiet) == []
    assert otherwise(quiet | {turned: 50.0}) == [turned]
    assert otherwise(quiet | {turned: 50.0, f"{LAYER}.residual": 2.0}) == []  # as an error that fades
    assert otherwise(quiet | {turned: 500.0, f"{LAYER}.residual": 50.0}) == [turned, f"{LAYER}.residual"]
    assert otherwise(quiet | {f"{LAYER}.residual": 50.0, LAYER: 50.0, "model.norm": 50.0}) == []
    assert otherwise({name + GRADIENT: 0.2 for name in POINTS} | {turned + GRADIENT: 50.0}, backward=True) == [turned + GRADIENT]


def test_the_last_point_of_a_pass_and_one_that_is_not_finite_are_never_written_otherwise() -> None:
    quiet = dict.fromkeys(POINTS, 0.2)
    assert otherwise(quiet | {POINTS[-1]: 50.0}) == []
    assert otherwise(quiet | {f"{LAYER}.self_attn.o_proj": float("inf")}) == []


def test_backward_the_gradients_of_what_uses_a_point_are_its_inputs() -> None:
    errors = {name + GRADIENT: 0.1 for name in POINTS}
    behind = ("mlp.down_proj", "residual", "self_attn.o_proj", "input")
    errors |= {f"{LAYER}.{kind}{GRADIENT}": 80.0 for kind in behind} | {f"model.embed_tokens{GRADIENT}": 80.0}
    assert found(errors, backward=True) == [f"{LAYER}.mlp.down_proj{GRADIENT}"]


def run(seed: int = 0) -> Synthetic:
    """A run with points at its first step."""
    made = Synthetic()
    made.settings |= {"activations": "all"}
    random = np.random.default_rng(seed)
    made.activations[0] = {
        name + suffix: random.standard_normal((ROWS, SEQUENCE, 8)).astype(np.float32) for name in POINTS for suffix in ("", GRADIENT)
    }
    made.activations |= {1: deepcopy(made.activations[0]), 2: deepcopy(made.activations[0])}
    return made


def compared(tmp_path: Path, candidate: Synthetic) -> tuple[Comparison, dict[object, StageResult]]:
    paths = run().write(tmp_path / "reference"), candidate.write(tmp_path / "candidate")
    comparison = compare(*map(open_run, paths))
    return comparison, {result.stage: result for result in comparison.stages}


def test_equal_points_are_the_same(tmp_path: Path) -> None:
    comparison, stages = compared(tmp_path, run())
    assert comparison.verdict is Verdict.ALIGNED
    assert (stages[activations].status, stages[activation_gradients].status) == (Status.SAME, Status.SAME)
    assert len(stages[activations].findings) == len(POINTS)


@pytest.mark.parametrize("whole", [False, True])
def test_a_wrong_point_is_named_with_its_inputs_and_its_cause(tmp_path: Path, whole: bool) -> None:
    candidate = run()
    if whole:
        candidate.settings |= {"activations_tensors": "*"}
    for name in (f"{LAYER}.mlp.down_proj", LAYER, "model.norm"):
        candidate.activations[0][name] = candidate.activations[0][name] * np.float32(1.01)
    comparison, stages = compared(tmp_path, candidate)
    assert comparison.verdict is Verdict.DIVERGED and comparison.first is stages[activations]
    assert [origin.name for origin in stages[activations].origins] == [f"{LAYER}.mlp.down_proj"]
    assert stages[activations].findings[0].error == pytest.approx(0.01, rel=0.01)
    assert comparison.blame is not None and comparison.blame.suspects[0].name == f"{LAYER}.mlp.down_proj"
    assert arguments("activations.jump", stages[activations].summary)["name"] == f"{LAYER}.mlp.down_proj"
    assert comparison.headline == message("activations.differ", name=f"{LAYER}.mlp.down_proj", step=when(0))


def test_points_that_no_hook_saw_leave_the_stage_incomplete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = synthetic.points_of

    def without_one(*given: object, **options: object) -> tuple[object, ...]:
        sums, tensors, facts = whole(*given, **options)  # type: ignore[arg-type]
        return sums, tensors, facts | {"unseen": ["model.layers.0.mlp.shared_experts"]}

    monkeypatch.setattr(synthetic, "points_of", without_one)
    comparison, stages = compared(tmp_path, run())
    assert (stages[activations].status, stages[activation_gradients].status) == (Status.INCOMPLETE, Status.SAME)
    assert comparison.verdict is not Verdict.ALIGNED
    seen = arguments("activations.unseen", stages[activations].summary)
    assert seen == {"count": 1, "name": "model.layers.0.mlp.shared_experts"}


def test_a_gradient_that_one_side_lacks_is_named(tmp_path: Path) -> None:
    candidate = run()
    for step in range(3):
        del candidate.activations[step][f"{LAYER}.self_attn.o_proj{GRADIENT}"]
    comparison, stages = compared(tmp_path, candidate)
    assert comparison.first is stages[activation_gradients]
    assert [origin.name for origin in stages[activation_gradients].origins] == [f"{LAYER}.self_attn.o_proj"]


def test_points_that_one_run_alone_has_are_told(tmp_path: Path) -> None:
    candidate = run()
    for step in range(3):
        for suffix in ("", GRADIENT):
            del candidate.activations[step]["model.norm" + suffix]
    comparison, stages = compared(tmp_path, candidate)
    assert comparison.verdict is Verdict.ALIGNED
    assert arguments("activations.on_one_side", stages[activations].summary) == {"count": 1, "name": "model.norm"}


def test_only_wrong_micro_batches_are_told(tmp_path: Path) -> None:
    candidate, reference = run(), run()
    for each in (candidate, reference):
        each.micro_batches = [ROWS // 2, ROWS // 2]
    candidate.activations[0]["model.norm"][ROWS // 2 :] *= np.float32(1.5)
    paths = reference.write(tmp_path / "reference"), candidate.write(tmp_path / "candidate")
    stages = {result.stage: result for result in compare(*map(open_run, paths)).stages}
    parts = {"count": 1, "all": 2, "micro_batches": terms([1]), "ranks": terms([0])}
    assert arguments("activations.in_parts", stages[activations].summary) == parts


def test_one_run_alone_that_recorded_points_is_not_compared(tmp_path: Path) -> None:
    _, stages = compared(tmp_path, Synthetic())
    assert (stages[activations].status, stages[activation_gradients].status) == (Status.NOT_COMPARED, Status.NOT_COMPARED)


@pytest.mark.parametrize("recorded", [True, False])
def test_where_the_logits_agree_the_loss_function_is_named(tmp_path: Path, recorded: bool) -> None:
    """Without them nothing tells a forward pass that differs from a loss function that does."""
    candidate, reference = run(), run()
    for each in (candidate, reference) if recorded else ():
        for step in range(3):
            each.activations[step][LOGITS] = each.activations[step]["model.norm"]
    for scalars, arrays in zip(candidate.rows, candidate.batches.values(), strict=True):
        scalars["loss"] = scalars["objective_loss"] = 1.001 * scalars["loss"]
        del arrays["token_losses"]
    blame = compare(open_run(reference.write(tmp_path / "reference")), open_run(candidate.write(tmp_path / "candidate"))).blame
    assert blame is not None and blame.place is Place.FORWARD
    assert (("loss_function" in blame.causes), [suspect.id for suspect in blame.suspects]) == (
        recorded,
        ["blame.loss_function"] if recorded else [],
    )


def late(*, parted_weights: bool = False) -> Synthetic:
    """A candidate whose updates are apart by rounding, and whose forward pass goes wrong in layer 0 at step 1; or its weights did."""
    candidate = run().drifted()
    if parted_weights:
        candidate.weights[1]["model.norm.weight"] = candidate.weights[1]["model.norm.weight"] * np.float32(1.5)
    candidate.rows[1] |= {"loss": 9.5, "objective_loss": 9.5}
    candidate.batches[1]["token_losses"] = candidate.batches[1]["token_losses"] * np.float32(9.5 / 8.9)
    for name in (f"{LAYER}.self_attn.o_proj", f"{LAYER}.residual", LAYER, "model.norm"):
        candidate.activations[1][name] = candidate.activations[1][name] * np.float32(1.1)
    return candidate


def test_the_first_step_whose_loss_parts_on_close_weights_is_looked_at_point_by_point(tmp_path: Path) -> None:
    comparison, stages = compared(tmp_path, late())
    assert [origin.name for origin in stages[activations].origins] == [f"{LAYER}.self_attn.o_proj"]
    assert [origin.finding.step for origin in stages[activations].origins] == [1]
    assert comparison.blame is not None and comparison.blame.suspects[0].name == f"{LAYER}.self_attn.o_proj"


def test_losses_that_follow_from_other_weights_are_no_fault_of_a_point(tmp_path: Path) -> None:
    _, stages = compared(tmp_path, late(parted_weights=True))
    assert stages[activations].status is not Status.DIFFERENT
