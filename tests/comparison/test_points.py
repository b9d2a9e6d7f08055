"""Where an error comes about: the first point that is further beyond its limit than all that it is made from."""

from copy import deepcopy

import numpy as np
import pytest

import synthetic
from align_hooks.comparison.finding import Finding, when
from align_hooks.comparison.metrics.points import healed, origins, pass_order
from align_hooks.comparison.stage_result import FaultLocation, Status
from align_hooks.comparison.stages.activation_gradients import activation_gradients
from align_hooks.comparison.stages.activations import activations
from align_hooks.comparison.verdict import Verdict
from align_hooks.messages import message, terms
from align_hooks.names.points import GRADIENT, LOGITS, consumers
from comparison.conftest import Compared, scale, stage
from synthetic import ROWS, SEQUENCE, Synthetic
from worded import arguments, ids

LAYER = "model.layers.0"
ATTENTION, RESIDUAL, MLP, NORM = f"{LAYER}.self_attn.o_proj", f"{LAYER}.residual", f"{LAYER}.mlp.down_proj", "model.norm"
FORWARD, BACKWARD = activations.name, activation_gradients.name
POINTS = ("model.embed_tokens", f"{LAYER}.input", ATTENTION, RESIDUAL, MLP, LAYER, NORM)


def found(limit_ratio: dict[str, float], *, backward: bool = False) -> list[str]:
    findings = {name: Finding(name, error=value, limit=1.0, name=name) for name, value in limit_ratio.items()}
    ordered, made_from = pass_order(list(findings), backward=backward)
    return [origin.finding.name for origin in origins(findings, ordered, made_from)]


GROWING = {name: 0.6 * 1.3**index for index, name in enumerate(POINTS)}


@pytest.mark.parametrize(
    ("beyond", "first"),
    [
        ({}, []),
        (dict.fromkeys((ATTENTION, RESIDUAL, LAYER, NORM), 50.0), [ATTENTION]),
        ({ATTENTION: 50.0, RESIDUAL: 30.0, MLP: 400.0, LAYER: 300.0}, [ATTENTION, MLP]),
        (GROWING, [next(name for name in POINTS if GROWING[name] > 1)]),
    ],
    ids=["nothing", "a jump and what follows", "a second fault, further beyond than the first left it", "from point to point"],
)
def test_the_first_points_beyond_their_limits_are_origins_and_what_follows_is_none(beyond: dict[str, float], first: list[str]) -> None:
    assert found(dict.fromkeys(POINTS, 0.2) | beyond) == first


def otherwise(limit_ratio: dict[str, float], *, backward: bool = False) -> list[str]:
    ordered, made_from = pass_order(list(limit_ratio), backward=backward)
    return healed(limit_ratio, ordered, consumers(made_from))


def test_a_point_is_written_otherwise_where_all_that_is_made_from_it_agrees() -> None:
    quiet = dict.fromkeys(POINTS, 0.5)
    assert otherwise(quiet) == []
    assert otherwise(quiet | {ATTENTION: 50.0}) == [ATTENTION]
    assert otherwise(quiet | {ATTENTION: 50.0, RESIDUAL: 2.0}) == []  # as an error that fades
    assert otherwise(quiet | {ATTENTION: 500.0, RESIDUAL: 50.0}) == [ATTENTION, RESIDUAL]
    assert otherwise(quiet | {RESIDUAL: 50.0, LAYER: 50.0, NORM: 50.0}) == []
    backward = {name + GRADIENT: 0.2 for name in POINTS} | {ATTENTION + GRADIENT: 50.0}
    assert otherwise(backward, backward=True) == [ATTENTION + GRADIENT]


def test_the_last_point_of_a_pass_and_one_that_is_not_finite_are_never_written_otherwise() -> None:
    quiet = dict.fromkeys(POINTS, 0.2)
    assert otherwise(quiet | {POINTS[-1]: 50.0}) == otherwise(quiet | {ATTENTION: float("inf")}) == []


def test_backward_the_gradients_of_what_uses_a_point_are_its_inputs() -> None:
    behind = (MLP, RESIDUAL, ATTENTION, f"{LAYER}.input", "model.embed_tokens")
    errors = {name + GRADIENT: 80.0 if name in behind else 0.1 for name in POINTS}
    assert found(errors, backward=True) == [MLP + GRADIENT]


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


@pytest.fixture
def candidate() -> Synthetic:
    return run()


def without(run: Synthetic, *points: str) -> Synthetic:
    """A run that recorded no such points."""
    for values in run.activations.values():
        for point in points:
            del values[point]
    return run


def test_equal_points_are_the_same(compared: Compared, candidate: Synthetic) -> None:
    comparison = compared(candidate, against=run())
    assert comparison.verdict is Verdict.ALIGNED
    assert stage(comparison, FORWARD).status is stage(comparison, BACKWARD).status is Status.SAME
    assert len(stage(comparison, FORWARD).findings) == len(POINTS)


@pytest.mark.parametrize("whole", [False, True])
def test_a_wrong_point_is_named_with_its_inputs_and_its_cause(compared: Compared, candidate: Synthetic, whole: bool) -> None:
    candidate.settings |= {"activations_tensors": "*"} if whole else {}
    for name in (MLP, LAYER, NORM):
        scale(candidate.activations[0], name, 1.01)
    comparison = compared(candidate, against=run())
    wrong = stage(comparison, FORWARD)
    assert comparison.verdict is Verdict.DIVERGED and comparison.first is wrong
    assert [origin.name for origin in wrong.origins] == [MLP]
    assert wrong.findings[0].error == pytest.approx(0.01, rel=0.01)
    assert comparison.blame.suspects[0].name == MLP
    assert arguments("activations.jump", wrong.summary)["name"] == MLP
    assert comparison.headline == message("activations.differ", name=MLP, step=when(0))


def test_points_that_no_hook_saw_leave_the_stage_incomplete(
    compared: Compared, candidate: Synthetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, unseen = synthetic.points_of, f"{LAYER}.mlp.shared_experts"

    def without_one(*given: object, **options: object) -> tuple[object, ...]:
        sums, tensors, facts = whole(*given, **options)  # type: ignore[arg-type]
        return sums, tensors, facts | {"unseen": [unseen]}

    monkeypatch.setattr(synthetic, "points_of", without_one)
    comparison = compared(candidate, against=run())
    assert (stage(comparison, FORWARD).status, stage(comparison, BACKWARD).status) == (Status.INCOMPLETE, Status.SAME)
    assert comparison.verdict is not Verdict.ALIGNED
    assert arguments("activations.unseen", stage(comparison, FORWARD).summary) == {"count": 1, "name": unseen}


def test_a_gradient_that_one_side_lacks_is_named(compared: Compared, candidate: Synthetic) -> None:
    comparison = compared(without(candidate, ATTENTION + GRADIENT), against=run())
    assert comparison.first is stage(comparison, BACKWARD)
    assert [origin.name for origin in comparison.first.origins] == [ATTENTION]


def test_points_that_one_run_alone_has_are_told(compared: Compared, candidate: Synthetic) -> None:
    comparison = compared(without(candidate, NORM, NORM + GRADIENT), against=run())
    assert comparison.verdict is Verdict.ALIGNED
    assert arguments("activations.on_one_side", stage(comparison, FORWARD).summary) == {"count": 1, "name": NORM}


def test_only_wrong_micro_batches_are_told(compared: Compared, candidate: Synthetic) -> None:
    reference = run()
    reference.micro_batches = candidate.micro_batches = [ROWS // 2, ROWS // 2]
    candidate.activations[0][NORM][ROWS // 2 :] *= np.float32(1.5)
    summary = stage(compared(candidate, against=reference), FORWARD).summary
    parts = {"count": 1, "all": 2, "micro_batches": terms([1]), "ranks": terms([0])}
    assert arguments("activations.in_parts", summary) == parts


def test_one_run_alone_that_recorded_points_is_not_compared(compared: Compared) -> None:
    comparison = compared(Synthetic(), against=run())
    assert stage(comparison, FORWARD).status is stage(comparison, BACKWARD).status is Status.NOT_COMPARED


@pytest.mark.parametrize("recorded", [True, False])
def test_where_the_logits_agree_the_loss_function_is_named(compared: Compared, candidate: Synthetic, recorded: bool) -> None:
    """Without them nothing tells a forward pass that differs from a loss function that does."""
    reference = run()
    for each in (candidate, reference) if recorded else ():
        for values in each.activations.values():
            values[LOGITS] = values[NORM]
    for scalars, arrays in zip(candidate.rows, candidate.batches.values(), strict=True):
        scalars["loss"] = scalars["objective_loss"] = 1.001 * scalars["loss"]
        del arrays["token_losses"]
    blame = compared(candidate, against=reference).blame
    assert blame.place is FaultLocation.FORWARD
    assert ("loss_function" in blame.causes) == recorded
    assert ids(*(suspect.what for suspect in blame.suspects)) == ["blame.loss_function"] * recorded


def late(*, parted_weights: bool = False) -> Synthetic:
    """A candidate whose updates are apart by rounding, and whose forward pass goes wrong in layer 0 at step 1; or its weights did."""
    candidate = run().drifted()
    if parted_weights:
        scale(candidate.weights[1], "model.norm.weight", 1.5)
    candidate.rows[1] |= {"loss": 9.5, "objective_loss": 9.5}
    scale(candidate.batches[1], "token_losses", 9.5 / 8.9)
    for name in (ATTENTION, RESIDUAL, LAYER, NORM):
        scale(candidate.activations[1], name, 1.1)
    return candidate


def test_the_first_step_whose_loss_parts_on_close_weights_is_looked_at_point_by_point(compared: Compared) -> None:
    comparison = compared(late(), against=run())
    assert [(origin.name, origin.finding.step) for origin in stage(comparison, FORWARD).origins] == [(ATTENTION, 1)]
    assert comparison.blame.suspects[0].name == ATTENTION


def test_losses_that_follow_from_other_weights_are_no_fault_of_a_point(compared: Compared) -> None:
    assert stage(compared(late(parted_weights=True), against=run()), FORWARD).status is not Status.DIFFERENT
