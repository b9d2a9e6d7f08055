"""Every stage of the ladder and every verdict, on small runs made with the real Writer."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from align_hooks import open_run
from align_hooks.compare.verdict import Comparison, Quantity, Reason, StageResult, Status, Verdict, at_step
from align_hooks.errors import RecordError
from align_hooks.messages import Argument, Message, Side, message, terms
from synthetic import CAUSAL, NAMES, ROWS, STEPS, Synthetic, batch, by_hand, grown, row, scalars_only
from worded import arguments, ids, result

Compared = Callable[..., Comparison]
Q = NAMES[1]


def stage(comparison: Comparison, name: str) -> StageResult:
    (found,) = (one for one in comparison.stages if one.name == name)
    return found


def scale_row(run: Synthetic, step: int, key: str, factor: float) -> None:
    run.rows[step][key] *= factor


def scale(named: dict[str, Any], name: str, factor: float) -> None:
    named[name] = (named[name] * np.float32(factor)) if isinstance(named[name], np.ndarray) else named[name] * factor


def retrained(run: Synthetic, step: int, factor: float) -> None:
    """One gradient is other than it was, and everything that follows from it."""
    scale(run.gradients[step], Q, factor)
    run.train(ulps=1)


def change_id(run: Synthetic, name: str, step: int) -> None:
    run.batches[step][name][1, 2] += 1


LADDER = ["match", "self-check", "hyper-parameters", "batches", "initial weights", "initial optimizer state", "token losses", "step-0 loss"]
LADDER += ["local norms", "gradients", "clipping", "weights after an update", "first updates"]
LADDER += ["later losses", "curve", "free-running steps", "model settings"]

Culprit = tuple[Quantity, str, int | None]
FAULTS: dict[str, tuple[Callable[[Synthetic], Any], str, Culprit]] = {
    "betas": (
        lambda run: run.optimizer["groups"][0].update(betas=[0.9, 0.999]),
        "hyper-parameters",
        (Quantity.HYPER_PARAMETER, "betas", None),
    ),
    "eps": (lambda run: run.optimizer["groups"][1].update(eps=1e-6), "hyper-parameters", (Quantity.HYPER_PARAMETER, "eps", None)),
    "decay": (
        lambda run: run.optimizer["groups"][1].update(weight_decay=0.1),
        "hyper-parameters",
        (Quantity.HYPER_PARAMETER, "weight_decay", None),
    ),
    "clip": (lambda run: run.optimizer.update(clip_grad=None), "hyper-parameters", (Quantity.HYPER_PARAMETER, "clip_grad", None)),
    "schedule": (lambda run: scale_row(run, 2, "learning_rate", 0.9), "hyper-parameters", (Quantity.LEARNING_RATE, "learning rate", 2)),
    "tokens": (lambda run: change_id(run, "tokens", 1), "batches", (Quantity.BATCHES, "tokens", 1)),
    "labels": (lambda run: change_id(run, "labels", 2), "batches", (Quantity.BATCHES, "labels", 2)),
    "position ids": (lambda run: change_id(run, "position_ids", 0), "batches", (Quantity.BATCHES, "position_ids", 0)),
    "loss mask": (lambda run: change_id(run, "loss_mask", 0), "batches", (Quantity.BATCHES, "loss_mask", 0)),
    "rows": (lambda run: run.batches.update({1: batch(1, rows=ROWS + 1)}), "batches", (Quantity.BATCHES, "tokens", 1)),
    "valid tokens": (lambda run: run.rows[1].update(valid_tokens=19), "batches", (Quantity.VALID_TOKENS, "", 1)),
    "attention mask": (lambda run: run.batches[1].update(attention_mask=~CAUSAL), "batches", (Quantity.BATCHES, "attention_mask", 1)),
    "initial weights": (lambda run: scale(run.weights[0], Q, 1 + 2**-22), "initial weights", (Quantity.WEIGHTS, Q, 0)),
    "token": (lambda run: scale(run.batches[0], "token_losses", 1.01), "token losses", (Quantity.TOKEN_LOSSES, "", 0)),
    "first loss": (lambda run: scale_row(run, 0, "loss", 1 + 1e-5), "step-0 loss", (Quantity.LOSS, "loss", 0)),
    "objective": (lambda run: scale_row(run, 0, "objective_loss", 1.001), "step-0 loss", (Quantity.LOSS, "objective_loss", 0)),
    "norm": (lambda run: scale(run.norms[0], Q, 1.001), "local norms", (Quantity.LOCAL_NORMS, Q, 0)),
    "gradient": (lambda run: scale(run.gradients[0], Q, 1.0001), "gradients", (Quantity.GRADIENTS, Q, 0)),
    "sign": (lambda run: scale(run.gradients[0], "model.norm.weight", -1), "gradients", (Quantity.GRADIENTS, "model.norm.weight", 0)),
    "layout": (lambda run: run.gradients[0].update({Q: run.gradients[0][Q][::-1].copy()}), "gradients", (Quantity.GRADIENTS, Q, 0)),
    "later loss": (lambda run: scale_row(run, 2, "loss", 1.001), "later losses", (Quantity.LOSS, "loss", 2)),
    "later objective": (lambda run: scale_row(run, 1, "objective_loss", 1.001), "later losses", (Quantity.LOSS, "objective_loss", 1)),
    "skipped": (lambda run: run.rows[1].update(skipped=True), "clipping", (Quantity.SKIPPED, "", 1)),
    "later norm": (lambda run: scale(run.norms[1], Q, 1.2), "free-running steps", (Quantity.LOCAL_NORMS, Q, 1)),
    "later gradient": (lambda run: retrained(run, 2, 1.1), "free-running steps", (Quantity.GRADIENTS, Q, 2)),
    "update": (lambda run: scale(run.weights[1], Q, 1.1), "weights after an update", (Quantity.UPDATES, Q, None)),
    "last update": (
        lambda run: scale(run.weights[STEPS], Q, 1.1),
        "weights after an update",
        (Quantity.UPDATES, Q, None),
    ),
}
IN_ORDER = ["initial weights", "first loss", "norm", "gradient", "betas", "tokens", "later loss", "later gradient"]
"""Of training, not of the ladder: betas act with the first update, and the tokens are those of step 1."""


def test_a_run_is_aligned_with_itself(compared: Compared, reference: Path) -> None:
    found = compared(reference)
    assert found.verdict is Verdict.ALIGNED
    assert found.first is None
    assert found.agreement == message("comparison.itself")
    assert ids(found.next)[0] == "next.two_runs"


def test_a_copy_of_a_run_is_the_run_itself(compared: Compared, reference: Path, tmp_path: Path) -> None:
    shutil.copytree(reference, tmp_path / "copy")
    assert compared(tmp_path / "copy").itself
    assert not compared(Synthetic()).itself


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_compute_types_that_differ_are_never_aligned(compared: Compared, candidate: Synthetic, kind: str) -> None:
    candidate.compute_type = kind
    found = compared(candidate)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.first is not None
    compute_type = message("settings.compute_type")
    assert [(one.what, one.reference, one.candidate) for one in found.first.findings] == [(compute_type, "float32", kind)]
    assert arguments("notes.compute_types", found.notes)["coarser"] == kind
    assert arguments("next.set_alike", found.next)["setting"] == compute_type


def test_an_input_that_no_record_has_is_noted_and_not_ruled_out(compared: Compared, candidate: Synthetic) -> None:
    candidate.rows[0]["unrecorded_inputs"] = ["decoder_input"]
    found = compared(candidate)
    assert found.verdict is Verdict.ALIGNED
    assert message("notes.unrecorded_inputs", side=Side.CANDIDATE, names=terms(["decoder_input"])) in found.notes
    candidate.batches[0]["token_losses"] *= 1.01
    found = compared(candidate)
    assert found.blame is not None
    assert found.blame.likely[0] == message("blame.unrecorded_inputs", names=terms(["decoder_input"]))


def test_a_loss_that_is_not_the_mean_of_its_tokens_is_no_fault_of_the_layout(compared: Compared, candidate: Synthetic) -> None:
    """Both sides' scripts may weigh tokens in a way of their own."""
    one, other = Synthetic(), candidate
    for run in (one, other):
        for loss in run.rows:
            loss["loss"] = loss["objective_loss"] = 1.01 * loss["loss"]
    assert compared(other, against=one).verdict is Verdict.ALIGNED
    found = compared(other)
    assert found.blame is not None
    assert found.blame.place == "loss normalisation"
    assert arguments("first_loss.not_the_mean", found.blame.suspects[0].what)["loss"] == pytest.approx(9.09)


def test_an_honest_pair_is_aligned_in_every_stage(compared: Compared, candidate: Synthetic) -> None:
    found = compared(candidate)
    assert found.verdict is Verdict.ALIGNED
    assert [one.name for one in found.stages] == LADDER
    assert {one.status for one in found.stages if one.name != "curve"} == {Status.SAME}
    assert stage(found, "curve").summary == message("curve.too_few", count=3, needed=10)


def test_a_ladder_says_how_much_was_laid_side_by_side(compared: Compared, candidate: Synthetic) -> None:
    said = arguments("match.laid_out", stage(compared(candidate), "match").summary)
    assert said == {"steps": 3, "expected": 3, "names": 4, "all": 4, "elements": 108, "total": 108}


@pytest.mark.parametrize(("bend", "name", "culprit"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_named_first_in_its_own_stage(compared: Compared, candidate: Synthetic, bend: Any, name: str, culprit: Culprit) -> None:
    bend(candidate)
    found = compared(candidate)
    assert found.verdict is Verdict.DIVERGED
    assert found.first is not None
    assert found.first.name == name
    worst = found.first.findings[0]
    assert (worst.quantity, worst.name, worst.step) == culprit
    before = found.stages[: LADDER.index(name)]
    assert {one.status for one in before if one.name != "curve"} == {Status.SAME}


@pytest.mark.parametrize("fault", IN_ORDER)
def test_of_several_faults_the_earliest_stage_is_named(compared: Compared, candidate: Synthetic, fault: str) -> None:
    for later in IN_ORDER[IN_ORDER.index(fault) :]:
        FAULTS[later][0](candidate)
    found = compared(candidate)
    assert found.first is not None
    assert found.first.name == FAULTS[fault][1]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_whichever_run_has_it(compared: Compared, reference: Path, candidate: Synthetic, fault: str) -> None:
    FAULTS[fault][0](candidate)
    assert compared(reference, against=candidate).verdict is Verdict.DIVERGED


def test_a_label_that_does_not_count_may_be_anything(compared: Compared) -> None:
    one, other = Synthetic(), Synthetic()
    for run in (one, other):
        run.batches[0]["loss_mask"][1, 2] = 0
    change_id(other, "labels", 0)
    assert compared(other, against=one).verdict is Verdict.ALIGNED


def test_a_skipped_first_update_on_one_side_is_never_aligned(compared: Compared, candidate: Synthetic) -> None:
    candidate.rows[0]["skipped"] = True
    assert compared(candidate).verdict is not Verdict.ALIGNED


def test_gradient_norms_far_apart_are_never_aligned(compared: Compared) -> None:
    other = scalars_only()
    scale_row(other, 1, "grad_norm", 2.0)
    assert compared(other, against=scalars_only()).verdict is not Verdict.ALIGNED


@pytest.mark.parametrize("array", ["tokens", "labels"])
def test_a_batch_that_lacks_an_array_on_one_side_is_never_aligned(compared: Compared, candidate: Synthetic, array: str) -> None:
    del candidate.batches[1][array]
    assert compared(candidate).verdict is not Verdict.ALIGNED


def test_optimizers_without_a_parameter_in_common_are_not_called_the_same(compared: Compared, candidate: Synthetic) -> None:
    for group in candidate.optimizer["groups"]:
        group["parameters"] = []
    assert stage(compared(candidate), "hyper-parameters").status is not Status.SAME


# ---- inconclusive


@pytest.mark.parametrize(
    "bend",
    [
        lambda run: scale_row(run, 2, "loss", 1 + 2e-5),
        lambda run: retrained(run, 1, 1.005),
        lambda run: scale(run.norms[2], Q, 1.005),
    ],
    ids=["loss", "gradient", "norm"],
)
def test_a_free_step_just_beyond_its_limit_is_inconclusive(compared: Compared, candidate: Synthetic, bend: Any) -> None:
    bend(candidate)
    found = compared(candidate)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.first is not None
    assert found.first.status is Status.INCONCLUSIVE


@pytest.mark.parametrize(("factor", "verdict"), [(1.005, Verdict.INCONCLUSIVE), (1.1, Verdict.DIVERGED)])
def test_weights_of_an_optimizer_that_is_not_known_are_judged_as_free_running(compared: Compared, factor: float, verdict: Verdict) -> None:
    one, other = Synthetic(), Synthetic().drifted()
    for run in (one, other):
        run.optimizer["type"] = "Muon"
    scale(other.weights[2], Q, factor)
    found = compared(other, against=one)
    assert stage(found, "weights after an update").status is Status.NOT_COMPARED
    assert found.first is not None
    assert (found.verdict, found.first.name, found.first.findings[0].what) == (
        verdict,
        "free-running steps",
        message("finding.labelled", kind=Quantity.WEIGHTS, what=at_step(Q, 2)),
    )


@pytest.mark.parametrize(("kind", "verdict"), [("bfloat16", Verdict.INCONCLUSIVE), ("float32", Verdict.DIVERGED)])
def test_limits_follow_the_compute_type(compared: Compared, candidate: Synthetic, kind: str, verdict: Verdict) -> None:
    retrained(candidate, 0, 1.01)
    candidate.compute_type = kind
    found = compared(candidate)
    assert found.verdict is verdict
    assert arguments("notes.default_limits", found.notes)["type"] == kind


# ---- not comparable


HONEST = Synthetic()
PADDED = HONEST.shapes | {"lm_head.weight#padding": (6, 4)}


@pytest.mark.parametrize("other", [HONEST.shapes, HONEST.shapes | {"lm_head.weight#padding": (2, 4)}], ids=["none", "less"])
def test_padding_that_differs_is_not_comparable(compared: Compared, other: dict[str, tuple[int, ...]]) -> None:
    for one, two in ((PADDED, other), (other, PADDED)):
        found = compared(grown(one), against=grown(two))
        assert found.verdict is Verdict.NOT_COMPARABLE
        assert found.first is not None
        assert found.first.reason is Reason.OTHER_PADDING
        assert ids(found.first.summary) == ["match.other_padding", "match.laid_out"]


@pytest.mark.parametrize(
    ("side", "rows", "next_step"),
    [
        ("ms", 10, ["next.give_rows", "next.what_differs", "next.rows_of_mindformers"]),
        ("torch", 10, ["next.give_rows", "next.what_differs", "next.rows_of_megatron"]),
        ("ms", 16, ["next.record_from_reference", "next.what_differs", "next.rows_of_mindformers"]),
    ],
    ids=["MindFormers", "Megatron", "as many rows, of which nobody told which are padding"],
)
def test_the_setting_that_makes_padding_alike_is_named(compared: Compared, side: str, rows: int, next_step: list[str]) -> None:
    one = grown(PADDED)
    other = grown(HONEST.shapes | dict.fromkeys(("model.embed_tokens.weight", "lm_head.weight"), (rows, 4)))
    one.padded, other.padded, other.side = 16, rows, side
    found = compared(other, against=one)
    assert (found.verdict, ids(found.next)) == (Verdict.NOT_COMPARABLE, next_step)


def test_equal_padding_is_compared_like_any_tensor(compared: Compared) -> None:
    one, other = grown(PADDED), grown(PADDED)
    assert compared(other, against=one).verdict is Verdict.ALIGNED
    scale(other.gradients[0], "lm_head.weight#padding", 1.1)
    found = compared(other, against=one)
    assert found.first is not None
    assert found.first.findings[0].name == "lm_head.weight#padding"


@pytest.mark.parametrize("lacking", ["reference", "candidate"])
def test_a_missing_parameter_is_not_comparable_and_named(compared: Compared, lacking: str) -> None:
    less = grown({name: shape for name, shape in HONEST.shapes.items() if name != Q})
    found = compared(less) if lacking == "candidate" else compared(HONEST, against=less)
    assert found.verdict is Verdict.NOT_COMPARABLE
    assert found.first is not None
    assert (found.first.name, found.first.reason) == ("match", Reason.OTHER_MODEL)
    assert (ids(found.first.findings[0].what), found.first.findings[0].name) == (["match.missing"], Q)


def test_a_parameter_that_may_be_missing_is_left_out(compared: Compared) -> None:
    more = deepcopy(HONEST)
    more.shapes["model.layers.0.extra.weight"] = (2,)
    for named in (*more.weights.values(), *more.gradients.values(), *(kind for one in more.moments.values() for kind in one.values())):
        named["model.layers.0.extra.weight"] = np.ones(2, np.float32)
    for squared in more.norms.values():
        squared["model.layers.0.extra.weight"] = 2.0
    assert compared(more).verdict is Verdict.NOT_COMPARABLE
    assert compared(more, allow_missing=["model.layers.?.other.*"]).verdict is Verdict.NOT_COMPARABLE
    assert compared(more, allow_missing=["model.layers.?.extra.*"]).verdict is Verdict.ALIGNED


def test_a_parameter_of_another_shape_is_not_comparable(compared: Compared) -> None:
    found = compared(grown(HONEST.shapes | {Q: (4, 6)}))
    assert found.verdict is Verdict.NOT_COMPARABLE
    assert found.first is not None
    shape = found.first.findings[0]
    assert (found.first.reason, shape.quantity, shape.name) == (Reason.OTHER_MODEL, Quantity.SHAPE, Q)
    assert (shape.reference, shape.candidate) == ("[6, 4]", "[4, 6]")


def test_runs_without_a_common_step_are_not_comparable(compared: Compared) -> None:
    other = scalars_only()
    other.rows = [row(step) for step in (7, 8)]
    found = compared(other, against=scalars_only())
    assert found.verdict is Verdict.NOT_COMPARABLE
    assert found.first is not None
    assert found.first.reason is Reason.NO_COMMON_STEP


def test_a_killed_run_is_not_comparable_and_named(compared: Compared, candidate: Synthetic) -> None:
    candidate.ended = None
    found = compared(candidate)
    assert found.verdict is Verdict.NOT_COMPARABLE
    assert found.first is not None
    assert "rank.never_ended" in ids(found.first.findings[0].what)


def test_a_fault_of_a_killed_run_is_still_named(compared: Compared, candidate: Synthetic) -> None:
    candidate.ended = None
    scale_row(candidate, 0, "loss", 1.1)
    found = compared(candidate)
    assert found.first is not None
    assert (found.verdict, found.first.name) == (Verdict.DIVERGED, "step-0 loss")


def test_a_directory_made_by_hand_is_not_comparable(compared: Compared, tmp_path: Path) -> None:
    assert compared(by_hand(tmp_path / "hand")).verdict is Verdict.NOT_COMPARABLE


# ---- NaN

NAN: dict[str, Callable[[Synthetic], Any]] = {
    "first loss": lambda run: run.rows[0].update(loss=math.nan),
    "first objective": lambda run: run.rows[0].update(objective_loss=math.inf),
    "later loss": lambda run: run.rows[2].update(loss=math.nan),
    "later objective": lambda run: run.rows[1].update(objective_loss=-math.inf),
    "gradient norm": lambda run: run.rows[1].update(grad_norm=math.nan),
    "clip coefficient": lambda run: run.rows[1].update(clip_coefficient=math.nan),
    "learning rate": lambda run: run.rows[1].update(learning_rate=math.nan),
    "rate of a group": lambda run: run.rows[1].update(learning_rate=[1e-3, math.nan]),
    "initial weights": lambda run: run.weights[0][Q].__setitem__((1, 1), np.nan),
    "later weights": lambda run: run.weights[2][Q].__setitem__((1, 1), np.inf),
    "last weights": lambda run: run.weights[STEPS][Q].__setitem__((1, 1), np.nan),
    "first gradient": lambda run: run.gradients[0][Q].__setitem__((1, 1), np.nan),
    "later gradient": lambda run: run.gradients[2][Q].__setitem__((1, 1), -np.inf),
    "first norm": lambda run: run.norms[0].update({Q: math.nan}),
    "later norm": lambda run: run.norms[2].update({Q: math.inf}),
}


@pytest.mark.parametrize("where", ["reference", "candidate", "both"])
@pytest.mark.parametrize("bend", NAN.values(), ids=NAN.keys())
def test_nan_or_infinity_anywhere_is_never_aligned(compared: Compared, candidate: Synthetic, bend: Any, where: str) -> None:
    one = deepcopy(HONEST)
    for run in {"reference": [one], "candidate": [candidate], "both": [one, candidate]}[where]:
        bend(run)
    assert compared(candidate, against=one).verdict is not Verdict.ALIGNED


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("kind", ["rows", "token losses", "norms", "gradients"])
def test_a_reference_that_is_not_finite_is_not_comparable(compared: Compared, candidate: Synthetic, kind: str, value: float) -> None:
    one = deepcopy(HONEST)
    if kind == "rows":
        one.rows[0].update(loss=value, objective_loss=value)
    elif kind == "token losses":
        one.batches[0]["token_losses"][0, 0] = value
    elif kind == "norms":
        one.norms[0][Q] = value
    else:
        one.gradients[0][Q][0, 0] = value
    found = compared(candidate, against=one)
    assert found.verdict is Verdict.NOT_COMPARABLE
    assert found.first is not None
    assert "stage.reference_not_finite" in ids(found.first.summary)


# ---- nothing compared is never aligned


def test_runs_without_a_number_in_common_are_never_aligned(compared: Compared) -> None:
    none = scalars_only((None, None, None))
    assert compared(none, against=scalars_only()).verdict is not Verdict.ALIGNED
    assert compared(none, against=deepcopy(none)).verdict is not Verdict.ALIGNED


def test_later_losses_that_one_run_lacks_are_not_called_the_same(compared: Compared) -> None:
    assert stage(compared(scalars_only((9.0, None, None)), against=scalars_only()), "later losses").status is not Status.SAME


def test_runs_of_no_steps_are_never_aligned(compared: Compared) -> None:
    assert compared(scalars_only(()), against=scalars_only(())).verdict is not Verdict.ALIGNED


@pytest.mark.parametrize("kind", ["gradients", "weights", "norms"])
@pytest.mark.parametrize("step", [0, 1])
def test_a_tensor_that_is_missing_in_one_file_is_refused(compared: Compared, candidate: Synthetic, kind: str, step: int) -> None:
    del getattr(candidate, kind)[step][Q]
    with pytest.raises(RecordError, match=f"lacks {Q}"):
        compared(candidate)


@pytest.mark.parametrize("kind", ["gradients", "norms"])
def test_files_without_a_tensor_are_refused(compared: Compared, candidate: Synthetic, kind: str) -> None:
    getattr(candidate, kind)[0].clear()
    with pytest.raises(RecordError, match="lacks "):
        compared(candidate)


@pytest.mark.parametrize("kind", ["batches", "gradients", "weights", "norms"])
@pytest.mark.parametrize("step", [0, 1, 2])
def test_a_step_that_both_were_asked_for_and_one_lacks_is_never_aligned(
    compared: Compared, candidate: Synthetic, kind: str, step: int
) -> None:
    del getattr(candidate, kind)[step]
    assert compared(candidate).verdict is not Verdict.ALIGNED


@pytest.mark.parametrize("lacking", ["one", "both"])
@pytest.mark.parametrize("kind", ["batches", "gradients", "weights", "norms"])
def test_a_kind_that_both_were_asked_for_and_is_not_there_is_never_aligned(
    compared: Compared, candidate: Synthetic, kind: str, lacking: str
) -> None:
    one = deepcopy(HONEST)
    for run in [candidate] if lacking == "one" else [one, candidate]:
        getattr(run, kind).clear()
    assert compared(candidate, against=one).verdict is not Verdict.ALIGNED


def test_stages_that_nobody_asked_for_are_listed_as_not_compared(compared: Compared) -> None:
    found = compared(scalars_only(), against=scalars_only())
    assert found.verdict is Verdict.ALIGNED
    missing = ["self-check", "batches", "initial weights", "token losses", "local norms", "gradients"]
    missing += ["weights after an update", "first updates", "curve", "free-running steps"]
    assert [one.name for one in found.stages if one.status is Status.NOT_COMPARED] == missing


def test_a_kind_that_only_one_was_asked_for_is_not_compared(compared: Compared, candidate: Synthetic) -> None:
    candidate.settings["gradients"] = "none"
    candidate.gradients.clear()
    found = compared(candidate)
    assert found.verdict is Verdict.ALIGNED
    assert stage(found, "gradients") == result("gradients", Status.NOT_COMPARED, message("gaps.one_recorded", side=Side.REFERENCE))


# ---- exact and free steps


def at_rest() -> Synthetic:
    """The weights-not-updated experiment: every rate is 0 and every weight set the first."""
    run = Synthetic()
    for one in run.rows:
        one["learning_rate"] = 0.0
    run.train()
    return run


def test_with_a_rate_of_0_every_step_has_tight_limits(compared: Compared) -> None:
    one, other = at_rest(), at_rest()
    for run in (one, other):
        run.weights, run.settings["weights"] = {}, "none"
    scale(other.gradients[2], Q, 1.0001)
    found = compared(other, against=one)
    assert found.first is not None
    assert (found.first.name, found.first.findings[0].what) == ("gradients", at_step(Q, 2))


def test_weights_that_move_at_a_rate_of_0_on_one_side_are_never_aligned(compared: Compared) -> None:
    other = at_rest()
    for step in (1, 2, 3):
        scale(other.weights[step], Q, 1.5)
    assert compared(other, against=at_rest()).verdict is not Verdict.ALIGNED
    other.weights.pop(3)
    one = at_rest()
    one.weights.pop(3)
    for run in (one, other):
        run.settings["weights"] = "0-2"
    assert compared(other, against=one).verdict is not Verdict.ALIGNED


def test_a_step_on_equal_recorded_weights_has_tight_limits(compared: Compared, candidate: Synthetic) -> None:
    candidate.weights[2], candidate.gradients[2] = deepcopy(HONEST.weights[2]), deepcopy(HONEST.gradients[2])
    scale(candidate.gradients[2], Q, 1.0001)
    found = compared(candidate)
    assert found.first is not None
    assert (found.first.name, found.first.findings[0].what) == ("gradients", at_step(Q, 2))


EVERYTHING_BUT_WEIGHTS = {"batches": "all", "local_norms": "all", "gradients": "all"}


def test_runs_that_start_at_different_steps_have_no_exact_step(compared: Compared) -> None:
    one, other = Synthetic(), Synthetic()
    for run in (one, other):
        run.weights, run.settings = {}, dict(EVERYTHING_BUT_WEIGHTS)
    other.rows = other.rows[1:]
    found = compared(other, against=one)
    assert stage(found, "gradients").summary == message("same_weights.no_exact_step")


def test_a_resumed_pair_is_judged_from_its_first_step(compared: Compared) -> None:
    one, other = scalars_only(), scalars_only()
    for run in (one, other):
        run.rows = [row(step) for step in (100, 101)]
    scale_row(other, 0, "loss", 1.1)
    found = compared(other, against=one)
    assert found.first is not None
    assert found.first.title == message("stage.first_loss", step=100)
    assert arguments("step.of", found.first.summary)["step"] == 100


def test_norms_that_rounding_makes_do_not_part_two_runs(compared: Compared, candidate: Synthetic) -> None:
    one = deepcopy(HONEST)
    one.norms[0][Q], candidate.norms[0][Q] = (1e-10) ** 2, (3e-10) ** 2
    assert stage(compared(candidate, against=one), "local norms").status is Status.SAME


def test_comparing_says_what_it_reads(compared: Compared, candidate: Synthetic) -> None:
    """And how much of how much is done, where that is known."""
    said: list[tuple[Argument, int, int]] = []
    compared(candidate, progress=lambda message, done=0, total=0: said.append((message, done, total)))
    assert said[0][0] == message("stage.match")
    of_step = message("distances.of_step", what=Quantity.GRADIENTS, step=0)
    assert (message("distances.tensor", what=of_step, name=Q), NAMES.index(Q), len(NAMES)) in said
    assert all(done < total or not total for _, done, total in said)


def test_comparing_changes_neither_run(compared: Compared, reference: Path, candidate: Synthetic, tmp_path: Path) -> None:
    other = candidate.write(tmp_path / "other")
    before = {path: path.stat().st_mtime_ns for run in (reference, other) for path in run.rglob("*")}
    compared(other)
    assert {path: path.stat().st_mtime_ns for run in (reference, other) for path in run.rglob("*")} == before


# ---- what hides


def test_model_settings_that_differ_are_never_aligned(compared: Compared, candidate: Synthetic) -> None:
    candidate.model["rope_theta"] = 10100.0
    found = compared(candidate)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.first is not None
    assert [finding.what for finding in found.first.findings] == ["rope_theta"]


def test_how_long_sequences_may_be_is_no_difference(compared: Compared, candidate: Synthetic) -> None:
    candidate.model["max_position_embeddings"] = 4096
    assert compared(candidate).verdict is Verdict.ALIGNED


def test_micro_batches_of_unequal_masks_are_not_comparable(compared: Compared) -> None:
    runs = []
    for _ in range(2):
        run = deepcopy(HONEST)
        run.batches[0]["loss_mask"][0] = 0
        run.rows[0]["valid_tokens"] = int(run.batches[0]["loss_mask"].sum())
        runs.append(run)
    assert compared(runs[0], against=runs[1]).verdict is Verdict.ALIGNED
    runs[0].micro_batches = [2, 2]
    found = compared(runs[0], against=runs[1])
    assert found.verdict is Verdict.NOT_COMPARABLE
    assert found.first is not None
    assert found.first.reason is Reason.LOSS_NORMALISATION


def test_steps_that_both_skipped_are_left_out_and_leave_the_weights(compared: Compared) -> None:
    runs = []
    for _ in range(2):
        run = deepcopy(HONEST)
        run.rows[0] |= {"skipped": True, "grad_norm": None, "clip_coefficient": None}
        run.gradients[0][Q] = np.full_like(run.gradients[0][Q], np.inf)
        run.norms[0][Q] = math.inf
        run.weights[1] = deepcopy(run.weights[0])
        runs.append(run)
    assert compared(runs[0], against=runs[1]).verdict is Verdict.ALIGNED
    scale(runs[0].gradients[1], Q, 1.0001)  # beyond an exact step's limit, and well within a free one's
    assert compared(runs[0], against=runs[1]).verdict is Verdict.DIVERGED


def test_another_kind_of_optimizer_is_found(compared: Compared, candidate: Synthetic) -> None:
    candidate.optimizer["type"] = "SGD"
    assert compared(candidate).verdict is Verdict.DIVERGED


def test_losses_of_one_side_only_are_never_aligned(compared: Compared, candidate: Synthetic) -> None:
    for one in candidate.rows:
        one |= {"loss": None, "objective_loss": None}
    assert compared(candidate).verdict is Verdict.NOT_COMPARABLE


def curve(*shifts: float) -> Synthetic:
    """Losses alone, those after the first moved by ``shifts``, relative."""
    return scalars_only([9.0, *(9.0 * (1 + shift) for shift in shifts)])


def test_a_bias_that_no_single_step_shows_is_seen_in_the_curve(compared: Compared) -> None:
    plain = curve(*[0.0] * 19)
    to_and_fro = compared(curve(*[1.8e-6, -1.8e-6] * 9, 0.0), against=plain)
    assert stage(to_and_fro, "curve").status is Status.SAME
    assert stage(to_and_fro, "curve").summary == message("curve.compared", count=20, above=9)
    aside = compared(curve(*[1.8e-6] * 19), against=plain)
    assert stage(aside, "later losses").status is Status.SAME
    assert aside.first is not None
    assert (aside.verdict, aside.first.name) == (Verdict.INCONCLUSIVE, "curve")


def test_a_loss_that_parts_late_is_blamed_on_the_curve(compared: Compared) -> None:
    plain = curve(*[0.0] * 19)
    places = [compared(curve(*shifts), against=plain).blame for shifts in ([0.0] * 10 + [0.1] * 9, [0.1] * 19)]
    assert [blame and blame.place for blame in places] == ["curve", "next loss"]


def test_limits_follow_the_depth(compared: Compared, candidate: Synthetic) -> None:
    """Twice the default of two layers: within the limit of 32."""
    candidate.gradients[0][Q] = candidate.gradients[0][Q] * np.float32(1 + 1.9e-5)
    candidate.norms.clear()
    for layers, status in ((2, Status.DIFFERENT), (32, Status.SAME)):
        sides = [deepcopy(run) for run in (candidate, HONEST)]
        for run in sides:
            run.model = run.model | {"num_hidden_layers": layers}
            run.settings["local_norms"] = "none"
        assert stage(compared(sides[0], against=sides[1]), "gradients").status is status


@pytest.mark.parametrize("at", [1, 2])
def test_an_update_is_judged_by_what_it_changed(compared: Compared, candidate: Synthetic, at: int) -> None:
    """A tensor that an update left alone, with no tensor stored: a thousandth of the weight, all of the update."""
    other, one = deepcopy(candidate), deepcopy(HONEST)
    for run in (other, one):
        run.settings = {"batches": "all", "local_norms": "all", "sketches": "all"}
    other.weights[at][Q] = other.weights[at - 1][Q].copy()
    found = compared(other, against=one)
    assert found.first is not None
    assert (found.verdict, found.first.name) == (Verdict.DIVERGED, "first updates")
    assert found.blame is not None
    assert (found.blame.place, found.blame.suspects[0].what) == ("optimizer", at_step(Q, at - 1))


def test_a_factor_of_every_first_update_is_told(compared: Compared, candidate: Synthetic) -> None:
    one, other = deepcopy(HONEST), candidate
    for run in (one, other):
        run.settings = {"batches": "all", "local_norms": "0", "sketches": "0-1"}
    for name, weight in one.weights[0].items():
        other.weights[1][name] = weight + 2 * (one.weights[1][name] - weight)
    found = compared(other, against=one)
    assert found.blame is not None
    assert found.blame.place == "optimizer"
    told = stage(found, "first updates").told
    assert isinstance(told, Message)
    assert told.id == "first_updates.every_update_scaled"
    assert told.arguments["factor"] == pytest.approx(2, rel=1e-3)
    assert found.blame.suspects[0].what == told


def test_the_curve_follows_measured_noise(compared: Compared, tmp_path: Path) -> None:
    plain, repeat, aside = (curve(*[shift] * 19) for shift in (0.0, 2e-6, 3e-6))
    assert compared(aside, against=plain).verdict is not Verdict.ALIGNED
    assert stage(compared(aside, against=plain, noise=[open_run(repeat.write(tmp_path / "noise"))]), "curve").status is Status.SAME


def test_losses_that_are_infinite_both_ways_make_no_curve(compared: Compared) -> None:
    wild = scalars_only([9.0, math.inf, -math.inf, *[9.0] * 10])
    assert stage(compared(wild, against=curve(*[0.0] * 12)), "curve").status is Status.NOT_COMPARED
