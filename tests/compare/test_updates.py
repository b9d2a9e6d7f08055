"""The update against its formula: each term of AdamW planted in what a run did and not in what it recorded."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from align_hooks.compare.verdict import Comparison, Status
from synthetic import NAMES, SHAPES, STEPS, Synthetic, adamw, grown, tensors
from synthetic import row as synthetic_row

Compared = Callable[..., Comparison]
NORM = "model.norm.weight"
LARGE = {name: tuple(8 * size for size in shape) for name, shape in SHAPES.items()}


def settings(**changes: Any) -> Callable[[Synthetic], None]:
    """Train with other settings in every group than those on record."""

    def train(run: Synthetic) -> None:
        used = deepcopy(run.optimizer)
        used["decoupled_weight_decay"] = changes.get("decoupled", True)
        for group in used["groups"]:
            group |= {key: value for key, value in changes.items() if key in group}
        adamw(run, used, rate=changes.get("rate", 1.0), clip=changes.get("clip"))

    return train


def decay(*values: float) -> Callable[[Synthetic], None]:
    """Train with another weight decay in each of the two groups: matrices, norms."""

    def train(run: Synthetic) -> None:
        used = deepcopy(run.optimizer)
        for group, value in zip(used["groups"], values, strict=True):
            group["weight_decay"] = value
        adamw(run, used)

    return train


TERMS: dict[str, tuple[Callable[[Synthetic], None], str, str, list[float] | str]] = {
    "beta2": (settings(betas=[0.9, 0.949]), "betas", "[0.9, 0.95]", [0.9, 0.949]),
    "beta1": (settings(betas=[0.899, 0.95]), "betas", "[0.9, 0.95]", [0.899, 0.95]),
    "eps": (settings(eps=1e-6), "eps", "1e-08", [1e-6]),
    "decay": (decay(0.11, 0.0), "weight decay", "0.1", [0.11]),
    "decay on norms": (decay(0.1, 0.1), f"decay grouping ({NORM})", "not decayed", "decayed"),
    "decay on nothing": (decay(0.0, 0.0), "decay grouping (lm_head.weight and 2 more)", "decayed", "not decayed"),
    "learning rate": (settings(rate=1.001), "learning rate", "0.001", [0.001001]),
    "clip": (settings(clip=0.9), "clip coefficient", "that of clipping to 1", [0.9]),
    "bias correction": (settings(bias_correction=False), "bias correction", "made", "not made"),
    "decoupled": (settings(decoupled=False), "decoupled weight decay", "apart from the gradient", "added to the gradient"),
}
"""How the run was trained, and the term, the value on record and the value used that must be named."""


def large() -> Synthetic:
    return Synthetic(
        shapes=LARGE,
        weights={0: tensors(100, LARGE)},
        gradients={step: {name: one * np.float32(1e-3) for name, one in tensors(200 + step, LARGE).items()} for step in range(STEPS)},
    )


@pytest.fixture(scope="module")
def honest() -> Synthetic:
    """Trained as recorded; gradients small enough for eps to show."""
    return large()


def stage(comparison: Comparison) -> Any:
    (found,) = (one for one in comparison.stages if one.name == "weights after an update")
    return found


def without_state(run: Synthetic) -> Synthetic:
    run.moments, run.settings["optimizer_state"] = {}, "none"
    return run


def changed(found: Any) -> dict[str, list[float] | str]:
    """Term to the value that was found: its numbers, or the word."""
    values = {one.what.partition(" of the candidate's")[0]: one.candidate.removesuffix(" found") for one in found.findings}
    return {what: [float(one) for one in re.findall(r"[-+.e\d]*\d", value)] or value for what, value in values.items()}


@pytest.mark.parametrize("state", [True, False], ids=["state", "no state"])
@pytest.mark.parametrize("term", TERMS)
def test_a_term_that_is_not_as_recorded_is_named_with_the_value_used(compared: Compared, honest: Synthetic, term: str, state: bool) -> None:
    train, what, recorded, used = TERMS[term]
    run = large()
    train(run)
    found = stage(compared(run if state else without_state(run), against=honest))
    assert found.status is Status.DIFFERENT
    assert changed(found) == {what: pytest.approx(used, rel=5e-4) if isinstance(used, list) else used}
    assert found.findings[0].reference == f"{recorded} on record"


@pytest.mark.parametrize("rate", [1e-3, 1e-6])
@pytest.mark.parametrize("held", [float, np.float32])
@pytest.mark.parametrize("beta2", [0.95, 0.999])
def test_a_kernel_that_holds_its_betas_in_fp32_follows_the_formula(compared: Compared, beta2: float, held: type, rate: float) -> None:
    run = large()
    for row in run.rows:
        row["learning_rate"] = rate
    for group in run.optimizer["groups"]:
        group |= {"betas": [0.9, beta2], "learning_rate": rate}
    run.train(held=held)
    assert re.match(r"3 of the reference's updates follow AdamW \(0\.[1-4] roundings", stage(compared(run, against=run)).summary)


def test_tensors_that_are_never_updated_are_named_beside_what_else_is_wrong(compared: Compared, honest: Synthetic) -> None:
    run = large()
    settings(betas=[0.9, 0.949])(run)
    for step in range(1, STEPS + 1):
        run.weights[step][NORM] = run.weights[0][NORM]
    first, second = stage(compared(run, against=honest)).findings
    assert (first.what, first.candidate) == (f"{NORM} of the candidate", "never updated")
    assert second.what.startswith("betas of the candidate's updates")


def test_gradients_that_were_summed_and_not_averaged_are_named_as_a_scale(compared: Compared, honest: Synthetic) -> None:
    run = large()
    for gradients in run.gradients.values():
        for name in gradients:
            gradients[name] = gradients[name] * np.float32(8)
    run.train()
    run.gradients = large().gradients
    assert changed(stage(compared(run, against=honest))) == {"gradient scale": [8.0]}


def test_a_count_that_is_one_ahead_is_named(compared: Compared, honest: Synthetic) -> None:
    run = deepcopy(honest)
    adamw(run, run.optimizer, ahead=1)
    assert changed(stage(compared(run, against=honest))) == {"count": [2.0]}


@pytest.mark.parametrize("recorded", ["reference unchecked", "reference wrong too"])
def test_a_term_that_explains_the_updates_is_named_whatever_the_other_run_does(compared: Compared, recorded: str) -> None:
    one, other = large(), large()
    settings(betas=[0.9, 0.999])(other)
    if recorded == "reference unchecked":
        one.gradients, one.settings["gradients"] = {}, "none"
    else:
        settings(eps=1e-6)(one)
    found = stage(compared(other, against=one))
    assert found.status is Status.DIFFERENT
    assert found.findings[-1].what == "betas of the candidate's updates"
    assert found.findings[-1].candidate == "[0.9, 0.999] found"


def test_updates_that_nothing_explains_are_inconclusive_where_the_other_run_says_nothing(compared: Compared) -> None:
    one, other = large(), large()
    one.gradients, one.settings["gradients"] = {}, "none"
    for step in range(1, STEPS + 1):
        other.weights[step] = {name: other.weights[0][name] * np.float32(1 + 1e-3 * step) for name in NAMES}
    assert stage(compared(other, against=one)).status is Status.INCONCLUSIVE


def test_one_run_alone_that_follows_is_no_comparison(compared: Compared, honest: Synthetic) -> None:
    run = deepcopy(honest)
    run.gradients, run.settings["gradients"] = {}, "none"
    assert stage(compared(run, against=honest)).status is Status.NOT_COMPARED


def test_states_that_both_were_asked_for_and_one_lacks_are_incomplete(compared: Compared, honest: Synthetic) -> None:
    run = deepcopy(honest)
    del run.moments[2]
    assert stage(compared(run, against=honest)).status is Status.INCOMPLETE


def test_the_last_updates_are_checked_too(compared: Compared) -> None:
    shapes = {name: SHAPES[name] for name in NAMES}
    gradients = {step: tensors(step) for step in range(12)}
    rows = [synthetic_row(step) for step in range(12)]
    one = Synthetic(shapes=shapes, rows=rows, batches={}, gradients=gradients)
    other = deepcopy(one)
    other.weights[12] = {name: weight * np.float32(1 + 1e-5) for name, weight in other.weights[12].items()}
    found = stage(compared(other, against=one))
    assert found.status is Status.DIFFERENT
    assert found.summary.startswith("8 of the reference's updates follow AdamW")


def test_what_the_evidence_cannot_show_is_said(compared: Compared) -> None:
    run = large()
    without_state(run)
    run.rows, run.gradients, run.weights = run.rows[:1], {0: run.gradients[0]}, {step: run.weights[step] for step in (0, 1)}
    assert "too small to show: beta1, beta2" in stage(compared(run, against=run)).summary


def test_a_parameter_in_one_optimizer_only_is_a_finding(compared: Compared, honest: Synthetic) -> None:
    run = deepcopy(honest)
    run.optimizer["groups"][1]["parameters"] = []
    (found,) = (one for one in compared(run, against=honest).stages if one.name == "hyper-parameters")
    assert (found.status, found.findings[0].what) == (Status.DIFFERENT, f"{NORM} in one optimizer only")


def test_a_reference_that_is_not_as_recorded_is_named_as_the_one(compared: Compared, honest: Synthetic) -> None:
    run = large()
    settings(eps=1e-6)(run)
    assert stage(compared(honest, against=run)).findings[0].what == "eps of the reference's updates"


def test_without_a_recorded_state_clip_and_eps_cannot_be_told_apart_and_both_are_named(compared: Compared, honest: Synthetic) -> None:
    run = large()
    settings(clip=0.9)(run)
    assert stage(compared(without_state(run), against=honest)).findings[0].what.endswith("updates (or alone: eps)")


@pytest.mark.parametrize("state", [True, False], ids=["state", "no state"])
def test_three_wrong_terms_are_named_together(compared: Compared, honest: Synthetic, state: bool) -> None:
    run = large()
    for group in run.optimizer["groups"]:
        group["betas"] = [0.9, 0.949]
    run.optimizer["groups"][0]["weight_decay"] = 0.11
    run.train(rate=1.001)
    run.optimizer = large().optimizer
    found = changed(stage(compared(run if state else without_state(run), against=honest)))
    expected = {"learning rate": [0.001001], "betas": [0.9, 0.949], "weight decay": [0.11]}
    assert found == {what: pytest.approx(value, rel=1e-3) for what, value in expected.items()}


def test_one_parameter_among_many_is_named(compared: Compared, honest: Synthetic) -> None:
    run = large()
    run.weights[2][NORM] = run.weights[2][NORM] * np.float32(1 + 2e-5)
    run.weights[3][NORM] = run.weights[3][NORM] * np.float32(1 + 2e-5)
    found = stage(compared(run, against=honest))
    assert found.findings[0].what == f"the candidate's updates of {NORM} are no AdamW with some of its terms changed"


def test_decay_on_one_parameter_of_a_hundred_is_seen_at_a_rate_of_1e_5(compared: Compared) -> None:
    shapes = {f"model.layers.{number}.mlp.up_proj.weight": (8, 8) for number in range(99)} | {NORM: (8,)}
    one = grown(shapes)
    for row in one.rows:
        row["learning_rate"] = 1e-5
    for group in one.optimizer["groups"]:
        group["learning_rate"] = 1e-5
    one.train()
    other = deepcopy(one)
    decay(0.1, 0.1)(other)
    found = stage(compared(other, against=one))
    assert changed(found) == {f"decay grouping ({NORM})": "decayed"}


def test_updates_that_neither_run_makes_by_the_formula_judge_neither(compared: Compared) -> None:
    one, other = large(), large()
    for run in (one, other):
        for step in range(1, STEPS + 1):
            run.weights[step] = {name: run.weights[0][name] * np.float32(1 + 1e-3 * step) for name in NAMES}
    found = stage(compared(other, against=one))
    assert found.status is Status.NOT_COMPARED
    assert "neither run's updates follow AdamW" in found.summary


def test_a_resumed_run_is_checked_from_where_its_state_is_on_record(compared: Compared, honest: Synthetic) -> None:
    run = deepcopy(honest)
    for kind in (run.gradients, run.norms, run.batches, run.weights):
        del kind[0]
    run.rows = run.rows[1:]
    found = stage(compared(run, against=run))
    assert found.summary.startswith("2 of the reference's updates follow AdamW")
    assert "takes weights before and after" in stage(compared(without_state(deepcopy(run)), against=run)).summary


@pytest.mark.parametrize("state", [True, False], ids=["state", "no state"])
def test_an_update_that_both_skipped_is_none(compared: Compared, honest: Synthetic, state: bool) -> None:
    run = deepcopy(honest)
    run.rows[1]["skipped"] = True
    run.train()
    run = run if state else without_state(run)
    assert stage(compared(run, against=run)).summary.startswith("2 of the reference's updates follow AdamW")


def test_groups_with_betas_of_their_own_are_not_judged(compared: Compared, honest: Synthetic) -> None:
    run = deepcopy(honest)
    run.optimizer["groups"][1]["betas"] = [0.8, 0.9]
    run.train()
    assert "its parameter groups differ in betas" in stage(compared(run, against=run)).summary
