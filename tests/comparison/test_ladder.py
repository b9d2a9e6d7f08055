"""Every stage of the ladder and every verdict, on small runs made with the real Writer."""

import shutil
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from align_hooks.comparison.finding import Metric, at_step
from align_hooks.comparison.stage_result import Reason, Status
from align_hooks.comparison.verdict import Verdict
from align_hooks.messages import Side, message, terms
from chosen import every
from comparison.conftest import HONEST, Compared, change_id, scale, scale_row, stage, with_one_more
from synthetic import CAUSAL, NAMES, ROWS, STEPS, Synthetic, batch, by_hand, grown, row, scalars_only
from worded import arguments, ids

Q, NORM, HYPER = NAMES[1], "model.norm.weight", Metric.HYPER_PARAMETER


def retrained(run: Synthetic, step: int, factor: float) -> None:
    """A gradient is other than it was, and everything that follows from it."""
    scale(run.gradients[step], Q, factor)
    run.train(ulps=1)


LADDER = [
    *("match", "self-check", "hyper-parameters", "batches", "initial weights", "initial optimizer state", "token losses", "step-0 loss"),
    *("local norms", "gradients", "clipping", "weights after an update", "first updates"),
    *("later losses", "curve", "free-running steps", "model settings"),
]

Culprit = tuple[Metric, str, int | None]
FAULTS: dict[str, tuple[Callable[[Synthetic], Any], str, Culprit]] = {
    "betas": (lambda run: run.optimizer["groups"][0].update(betas=[0.9, 0.999]), "hyper-parameters", (HYPER, "betas", None)),
    "eps": (lambda run: run.optimizer["groups"][1].update(eps=1e-6), "hyper-parameters", (HYPER, "eps", None)),
    "decay": (lambda run: run.optimizer["groups"][1].update(weight_decay=0.1), "hyper-parameters", (HYPER, "weight_decay", None)),
    "clip": (lambda run: run.optimizer.update(clip_grad=None), "hyper-parameters", (HYPER, "clip_grad", None)),
    "schedule": (lambda run: scale_row(run, 2, "learning_rate", 0.9), "hyper-parameters", (Metric.LEARNING_RATE, "learning rate", 2)),
    "tokens": (lambda run: change_id(run, "tokens", 1), "batches", (Metric.BATCHES, "tokens", 1)),
    "labels": (lambda run: change_id(run, "labels", 2), "batches", (Metric.BATCHES, "labels", 2)),
    "position ids": (lambda run: change_id(run, "position_ids", 0), "batches", (Metric.BATCHES, "position_ids", 0)),
    "loss mask": (lambda run: change_id(run, "loss_mask", 0), "batches", (Metric.BATCHES, "loss_mask", 0)),
    "rows": (lambda run: run.batches.update({1: batch(1, rows=ROWS + 1)}), "batches", (Metric.BATCHES, "tokens", 1)),
    "attention mask": (lambda run: run.batches[1].update(attention_mask=~CAUSAL), "batches", (Metric.BATCHES, "attention_mask", 1)),
    "initial weights": (lambda run: scale(run.weights[0], Q, 1 + 2**-22), "initial weights", (Metric.WEIGHTS, Q, 0)),
    "token": (lambda run: scale(run.batches[0], "token_losses", 1.01), "token losses", (Metric.TOKEN_LOSSES, "", 0)),
    "first loss": (lambda run: scale_row(run, 0, "loss", 1 + 1e-5), "step-0 loss", (Metric.LOSS, "loss", 0)),
    "objective": (lambda run: scale_row(run, 0, "objective_loss", 1.001), "step-0 loss", (Metric.LOSS, "objective_loss", 0)),
    "norm": (lambda run: scale(run.norms[0], Q, 1.001), "local norms", (Metric.LOCAL_NORMS, Q, 0)),
    "gradient": (lambda run: scale(run.gradients[0], Q, 1.0001), "gradients", (Metric.GRADIENTS, Q, 0)),
    "sign": (lambda run: scale(run.gradients[0], NORM, -1), "gradients", (Metric.GRADIENTS, NORM, 0)),
    "layout": (lambda run: run.gradients[0].update({Q: run.gradients[0][Q][::-1].copy()}), "gradients", (Metric.GRADIENTS, Q, 0)),
    "later loss": (lambda run: scale_row(run, 2, "loss", 1.001), "later losses", (Metric.LOSS, "loss", 2)),
    "later objective": (lambda run: scale_row(run, 1, "objective_loss", 1.001), "later losses", (Metric.LOSS, "objective_loss", 1)),
    "skipped": (lambda run: run.rows[1].update(skipped=True), "clipping", (Metric.SKIPPED, "", 1)),
    "later norm": (lambda run: scale(run.norms[1], Q, 1.2), "free-running steps", (Metric.LOCAL_NORMS, Q, 1)),
    "later gradient": (lambda run: retrained(run, 2, 1.1), "free-running steps", (Metric.GRADIENTS, Q, 2)),
    "update": (lambda run: scale(run.weights[1], Q, 1.1), "weights after an update", (Metric.UPDATES, Q, None)),
    "last update": (lambda run: scale(run.weights[STEPS], Q, 1.1), "weights after an update", (Metric.UPDATES, Q, None)),
}
IN_ORDER = ["initial weights", "first loss", "norm", "gradient", "betas", "tokens", "later loss", "later gradient"]
"""Of training, not of the ladder: betas act with the first update, and the tokens are those of step 1."""


def test_a_run_is_aligned_with_itself_and_with_a_copy(compared: Compared, reference: Path, tmp_path: Path) -> None:
    for run in (reference, shutil.copytree(reference, tmp_path / "copy")):
        outcome = compared(run)
        assert (outcome.verdict, outcome.first, outcome.itself) == (Verdict.ALIGNED, None, True)
        assert outcome.headline == message("comparison.itself")
        assert ids(outcome.next)[0] == "next.two_runs"
    assert not compared(Synthetic()).itself


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_compute_types_that_differ_are_never_aligned(compared: Compared, candidate: Synthetic, kind: str) -> None:
    candidate.compute_type = kind
    outcome = compared(candidate)
    compute_type = message("settings.compute_type")
    (finding,) = outcome.first.findings
    assert (outcome.verdict, finding.what, finding.reference, finding.candidate) == (Verdict.INCONCLUSIVE, compute_type, "float32", kind)
    assert arguments("notes.compute_types", outcome.notes)["coarser"] == kind
    assert arguments("next.set_alike", outcome.next)["setting"] == compute_type


def test_an_input_that_no_record_has_is_noted_and_not_ruled_out(compared: Compared, candidate: Synthetic) -> None:
    candidate.rows[0]["unrecorded_inputs"] = ["decoder_input"]
    outcome = compared(candidate)
    assert outcome.verdict is Verdict.ALIGNED
    assert message("notes.unrecorded_inputs", side=Side.CANDIDATE, names=terms(["decoder_input"])) in outcome.notes
    candidate.batches[0]["token_losses"] *= 1.01
    outcome = compared(candidate)
    assert outcome.blame.likely[0] == message("blame.unrecorded_inputs", names=terms(["decoder_input"]))


def test_a_loss_that_is_not_the_mean_of_its_tokens_is_no_fault_of_the_layout(compared: Compared, candidate: Synthetic) -> None:
    """Both sides' scripts may weigh tokens in a way of their own."""
    reference = Synthetic()
    for loss in (*reference.rows, *candidate.rows):
        loss["loss"] = loss["objective_loss"] = 1.01 * loss["loss"]
    assert compared(candidate, against=reference).verdict is Verdict.ALIGNED
    outcome = compared(candidate)
    assert outcome.blame.place == "loss normalisation"
    assert arguments("first_loss.not_the_mean", outcome.blame.suspects[0].what)["loss"] == pytest.approx(9.09)


def test_an_honest_pair_is_aligned_in_every_stage(compared: Compared, candidate: Synthetic) -> None:
    outcome = compared(candidate)
    assert outcome.verdict is Verdict.ALIGNED
    assert [each.name for each in outcome.stages] == LADDER
    assert {each.status for each in outcome.stages if each.name != "curve"} == {Status.SAME}
    assert stage(outcome, "curve").summary == message("curve.too_few", count=3, needed=10)
    side_by_side = {"steps": 3, "expected": 3, "names": 4, "all": 4, "elements": 108, "total": 108}
    assert stage(outcome, "match").summary == message("match.laid_out", **side_by_side)


@pytest.mark.parametrize(("bend", "name", "culprit"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_named_first_in_its_own_stage(compared: Compared, candidate: Synthetic, bend: Any, name: str, culprit: Culprit) -> None:
    bend(candidate)
    outcome = compared(candidate)
    assert (outcome.verdict, outcome.first.name) == (Verdict.DIVERGED, name)
    worst = outcome.first.findings[0]
    assert (worst.quantity, worst.name, worst.step) == culprit
    before = outcome.stages[: LADDER.index(name)]
    assert {each.status for each in before if each.name != "curve"} == {Status.SAME}


@pytest.mark.parametrize("fault", IN_ORDER)
def test_of_several_faults_the_earliest_stage_is_named(compared: Compared, candidate: Synthetic, fault: str) -> None:
    for later in IN_ORDER[IN_ORDER.index(fault) :]:
        FAULTS[later][0](candidate)
    assert compared(candidate).first.name == FAULTS[fault][1]


@pytest.mark.parametrize("fault", every(3, FAULTS))
def test_a_fault_is_found_whichever_run_has_it(compared: Compared, reference: Path, candidate: Synthetic, fault: str) -> None:
    FAULTS[fault][0](candidate)
    assert compared(reference, against=candidate).verdict is Verdict.DIVERGED


def test_a_label_that_does_not_count_may_be_anything(compared: Compared) -> None:
    reference = Synthetic()
    reference.batches[0]["loss_mask"][1, 2] = 0
    candidate = deepcopy(reference)
    change_id(candidate, "labels", 0)
    assert compared(candidate, against=reference).verdict is Verdict.ALIGNED


@pytest.mark.parametrize(
    "bend",
    [lambda run: run.rows[0].update(skipped=True), lambda run: run.batches[1].pop("tokens"), lambda run: run.batches[1].pop("labels")],
    ids=["a skipped first update", "a batch without tokens", "a batch without labels"],
)
def test_what_only_one_side_has_is_never_aligned(compared: Compared, candidate: Synthetic, bend: Any) -> None:
    bend(candidate)
    assert compared(candidate).verdict is not Verdict.ALIGNED


def test_gradient_norms_far_apart_are_never_aligned(compared: Compared) -> None:
    candidate = scalars_only()
    scale_row(candidate, 1, "grad_norm", 2.0)
    assert compared(candidate, against=scalars_only()).verdict is not Verdict.ALIGNED


def test_optimizers_without_a_parameter_in_common_are_not_called_the_same(compared: Compared, candidate: Synthetic) -> None:
    for group in candidate.optimizer["groups"]:
        group["parameters"] = []
    assert stage(compared(candidate), "hyper-parameters").status is not Status.SAME


# ---- inconclusive


@pytest.mark.parametrize(
    "bend",
    [lambda run: scale_row(run, 2, "loss", 1 + 2e-5), lambda run: retrained(run, 1, 1.005), lambda run: scale(run.norms[2], Q, 1.005)],
    ids=["loss", "gradient", "norm"],
)
def test_a_free_step_just_beyond_its_limit_is_inconclusive(compared: Compared, candidate: Synthetic, bend: Any) -> None:
    bend(candidate)
    outcome = compared(candidate)
    assert (outcome.verdict, outcome.first.status) == (Verdict.INCONCLUSIVE, Status.INCONCLUSIVE)


@pytest.mark.parametrize(("factor", "verdict"), [(1.005, Verdict.INCONCLUSIVE), (1.1, Verdict.DIVERGED)])
def test_weights_of_an_optimizer_that_is_not_known_are_judged_as_free_running(compared: Compared, factor: float, verdict: Verdict) -> None:
    reference, candidate = Synthetic(), Synthetic().drifted()
    for run in (reference, candidate):
        run.optimizer["type"] = "Muon"
    scale(candidate.weights[2], Q, factor)
    outcome = compared(candidate, against=reference)
    assert stage(outcome, "weights after an update").status is Status.NOT_COMPARED
    assert (outcome.verdict, outcome.first.name) == (verdict, "free-running steps")
    assert outcome.first.findings[0].what == message("finding.labelled", kind=Metric.WEIGHTS, what=at_step(Q, 2))


@pytest.mark.parametrize(("kind", "verdict"), [("bfloat16", Verdict.INCONCLUSIVE), ("float32", Verdict.DIVERGED)])
def test_limits_follow_the_compute_type(compared: Compared, candidate: Synthetic, kind: str, verdict: Verdict) -> None:
    retrained(candidate, 0, 1.01)
    candidate.compute_type = kind
    outcome = compared(candidate)
    assert outcome.verdict is verdict
    assert arguments("notes.default_limits", outcome.notes)["type"] == kind


# ---- not comparable


PADDED = HONEST.shapes | {"lm_head.weight#padding": (6, 4)}


@pytest.mark.parametrize("other", [HONEST.shapes, HONEST.shapes | {"lm_head.weight#padding": (2, 4)}], ids=["none", "less"])
def test_padding_that_differs_is_not_comparable(compared: Compared, other: dict[str, tuple[int, ...]]) -> None:
    for each, two in ((PADDED, other), (other, PADDED)):
        outcome = compared(grown(each), against=grown(two))
        assert (outcome.verdict, outcome.first.reason) == (Verdict.NOT_COMPARABLE, Reason.OTHER_PADDING)
        assert ids(outcome.first.summary) == ["match.other_padding", "match.laid_out"]


def test_models_of_other_sizes_are_said_to_be_before_their_padding(compared: Compared) -> None:
    wider = {name: tuple(2 * size for size in shape) for name, shape in HONEST.shapes.items()}
    for other in (wider | {"lm_head.weight#padding": (2, 8)}, wider):
        outcome = compared(grown(other), against=grown(PADDED))
        assert (outcome.verdict, outcome.first.reason) == (Verdict.NOT_COMPARABLE, Reason.OTHER_MODEL)


@pytest.mark.parametrize(
    ("side", "rows", "advice", "setting"),
    [
        ("ms", 10, "next.give_rows", "next.rows_of_mindformers"),
        ("torch", 10, "next.give_rows", "next.rows_of_megatron"),
        ("ms", 16, "next.record_from_reference", "next.rows_of_mindformers"),
    ],
    ids=["MindFormers", "Megatron", "as many rows, of which nobody told which are padding"],
)
def test_the_setting_that_makes_padding_alike_is_named(compared: Compared, side: str, rows: int, advice: str, setting: str) -> None:
    reference = grown(PADDED)
    candidate = grown(HONEST.shapes | dict.fromkeys(("model.embed_tokens.weight", "lm_head.weight"), (rows, 4)))
    reference.padded, candidate.padded, candidate.side = 16, rows, side
    outcome = compared(candidate, against=reference)
    assert (outcome.verdict, ids(outcome.next)[0]) == (Verdict.NOT_COMPARABLE, advice)
    assert (setting in ids(outcome.next)) == (advice == "next.give_rows")


def test_equal_padding_is_compared_like_any_tensor(compared: Compared) -> None:
    reference, candidate = grown(PADDED), grown(PADDED)
    assert compared(candidate, against=reference).verdict is Verdict.ALIGNED
    scale(candidate.gradients[0], "lm_head.weight#padding", 1.1)
    outcome = compared(candidate, against=reference)
    assert outcome.first.findings[0].name == "lm_head.weight#padding"


@pytest.mark.parametrize("lacking", ["reference", "candidate"])
def test_a_missing_parameter_is_not_comparable_and_named(compared: Compared, lacking: str) -> None:
    less = grown({name: shape for name, shape in HONEST.shapes.items() if name != Q})
    outcome = compared(less) if lacking == "candidate" else compared(HONEST, against=less)
    assert (outcome.verdict, outcome.first.name, outcome.first.reason) == (Verdict.NOT_COMPARABLE, "match", Reason.OTHER_MODEL)
    missing = outcome.first.findings[0]
    assert (missing.what, missing.name) == (Q, Q)
    there = [id for side in (missing.reference, missing.candidate) for id in ids(side)]
    assert there == (["match.there", "match.absent"] if lacking == "candidate" else ["match.absent", "match.there"])
    assert outcome.headline == message("match.other_model", what=terms([message("match.one_side_only", count=1)]))


@pytest.mark.parametrize(
    ("allowed", "verdict"),
    [([], Verdict.NOT_COMPARABLE), (["model.layers.?.other.*"], Verdict.NOT_COMPARABLE), (["model.layers.?.extra.*"], Verdict.ALIGNED)],
)
def test_a_parameter_that_may_be_missing_is_left_out(compared: Compared, allowed: list[str], verdict: Verdict) -> None:
    assert compared(with_one_more("model.layers.0.extra.weight"), allow_missing=allowed).verdict is verdict


def test_a_parameter_of_another_shape_is_not_comparable(compared: Compared) -> None:
    outcome = compared(grown(HONEST.shapes | {Q: (4, 6)}))
    shape = outcome.first.findings[0]
    assert (outcome.verdict, outcome.first.reason) == (Verdict.NOT_COMPARABLE, Reason.OTHER_MODEL)
    assert (shape.quantity, shape.name, shape.reference, shape.candidate) == (Metric.SHAPE, Q, "[6, 4]", "[4, 6]")


def test_runs_without_a_common_step_are_not_comparable(compared: Compared) -> None:
    candidate = scalars_only()
    candidate.rows = [row(step) for step in (7, 8)]
    outcome = compared(candidate, against=scalars_only())
    assert (outcome.verdict, outcome.first.reason) == (Verdict.NOT_COMPARABLE, Reason.NO_COMMON_STEP)


def test_a_killed_run_is_not_comparable_and_its_fault_still_named(compared: Compared, candidate: Synthetic) -> None:
    candidate.ended = None
    outcome = compared(candidate)
    assert outcome.verdict is Verdict.NOT_COMPARABLE
    assert "rank.never_ended" in ids(outcome.first.findings[0].what)
    scale_row(candidate, 0, "loss", 1.1)
    outcome = compared(candidate)
    assert (outcome.verdict, outcome.first.name) == (Verdict.DIVERGED, "step-0 loss")


def test_a_directory_made_by_hand_is_not_comparable(compared: Compared, tmp_path: Path) -> None:
    assert compared(by_hand(tmp_path / "hand")).verdict is Verdict.NOT_COMPARABLE
