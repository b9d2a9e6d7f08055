"""Muon's updates against their formula: each term planted in what a run did and not in what it recorded."""

import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from align_hooks.comparison.finding import Metric, Term
from align_hooks.comparison.stage_result import StageResult, Status
from align_hooks.comparison.verdict import ComparisonResult
from align_hooks.messages import Side
from chosen import every, slow_but
from comparison.conftest import Compared, asking
from comparison.conftest import stage as stage_of
from synthetic import STEPS, Synthetic, adamw, grown, optimizer
from worded import messages

Q, K, GATE, UP, DOWN = (f"model.layers.0.{name}_proj.weight" for name in ("self_attn.q", "self_attn.k", "mlp.gate", "mlp.up", "mlp.down"))
SHAPES = {Q: (48, 64), K: (32, 64), GATE: (40, 64), UP: (40, 64), DOWN: (64, 40)}
OTHERS = {"model.embed_tokens.weight": (10, 64), "model.norm.weight": (64,)}
MATRICES = [{"parameters": [Q]}, {"parameters": [K]}, {"parameters": [GATE, UP]}, {"parameters": [DOWN], "blocks": 2, "axis": 1}]
QUINTIC = [
    [4.0848, -6.8946, 2.9270],
    [3.9505, -6.3029, 2.6377],
    [3.7418, -5.5913, 2.3037],
    [2.8769, -3.1427, 1.2046],
    [2.8366, -3.0525, 1.2012],
]
MUON = {
    "optimizer": "TensorParallelMuon",
    "moments": ["momentum_buffer"],
    "learning_rate": 1e-3,
    "weight_decay": 0.1,
    "weight_decay_method": "decoupled",
    "momentum": 0.9,
    "dampening": 0.9,
    "nesterov": False,
    "coefficients": QUINTIC,
    "scale_mode": "spectral",
    "extra_scale_factor": 0.2,
    "products": "float32",
    "parameters": list(SHAPES),
    "matrices": MATRICES,
}
SCALES: dict[str, Callable[[int, int], float]] = {
    "spectral": lambda rows, columns: max(rows, columns) ** 0.5,
    "shape_scaling": lambda rows, columns: max(1, rows / columns) ** 0.5,
    "unit_rms_norm": lambda rows, columns: (rows / columns) ** 0.5,
}


def run_of(**used: Any) -> Synthetic:
    """A run whose matrices Muon updates, with other settings than those on record where any are ``used``."""
    run = grown(OTHERS | SHAPES)
    adam = optimizer(list(OTHERS))
    for group in adam["groups"]:
        group["optimizer"] = "AdamW"
    run.optimizer = adam | {"type": "TensorParallelMuon and AdamW", "groups": [deepcopy(MUON), *adam["groups"]]}
    adamw(run, adam)
    muon(run, MUON | used)
    return run


def muon(run: Synthetic, used: dict[str, Any]) -> None:
    """Make the matrices of a run what these settings make of its first weights and its gradients, in fp32, as torch writes it."""
    fp32 = np.float32
    moments = {name: np.zeros(shape, fp32) for name, shape in SHAPES.items()}
    for state in run.moments.values():
        for tensors in state.values():
            for name in SHAPES:
                del tensors[name]
    run.moments[0]["momentum_buffer"] = deepcopy(moments)
    for step, scalars in enumerate(run.rows):
        rate, clip = fp32(scalars["learning_rate"] * used.get("rate", 1.0)), fp32(scalars["clip_coefficient"])
        inputs = {}
        for name in SHAPES:
            gradient, momentum = run.gradients[step][name] * clip, fp32(used["momentum"])
            moments[name] = momentum * moments[name] + fp32(1 - used["dampening"]) * gradient
            nesterov = fp32(1 - used["dampening"]) * gradient + momentum * moments[name]
            inputs[name] = nesterov if used["nesterov"] else moments[name]
        for matrix in used["matrices"]:
            whole, sizes = (
                np.concatenate([inputs[name] for name in matrix["parameters"]]),
                [len(inputs[name]) for name in matrix["parameters"]],
            )
            parts = np.split(whole, matrix.get("blocks", 1), axis=matrix.get("axis", 0))
            moved = np.concatenate([part_of(part, used) for part in parts], axis=matrix.get("axis", 0))
            for name, each in zip(matrix["parameters"], np.split(moved, np.cumsum(sizes)[:-1]), strict=True):
                before = run.weights[step][name]
                kept = before * (1 - rate * fp32(used["weight_decay"]))
                run.weights[step + 1][name] = kept - rate * each * fp32(used.get("factors", {}).get(name, 1.0))
        run.moments[step + 1]["momentum_buffer"] = deepcopy(moments)


def part_of(block: np.ndarray, used: dict[str, Any]) -> np.ndarray:
    """The scaled result of the iteration."""
    x = block.T if block.shape[0] > block.shape[1] else block
    x = x / np.linalg.norm(x)
    for a, b, c in np.float32(used["coefficients"]):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    x = x.T if block.shape[0] > block.shape[1] else x
    return x * np.float32(SCALES[used["scale_mode"]](*block.shape) * used["extra_scale_factor"])


@pytest.fixture(scope="module")
def honest() -> Synthetic:
    return run_of()


def stage(comparison: ComparisonResult) -> StageResult:
    return stage_of(comparison, "weights after an update")


def words(of: Any) -> dict[str, Any]:
    """The id of a value that a side of a finding has, and its numbers."""
    inner = of.arguments["value"]
    return {"id": inner.id.removeprefix("after_update."), **inner.arguments}


HALF = [[3.4445, -4.7750, 2.0315]] * 5
TERMS: dict[str, tuple[dict[str, Any], Term, dict[str, Any], list[str]]] = {
    "momentum": ({"momentum": 0.91, "dampening": 0.91}, Term.MOMENTUM, {"id": "fitted_momentum", "momentum": 0.91, "weight": 0.09}, []),
    "sum": ({"dampening": 0.0}, Term.MOMENTUM, {"id": "fitted_momentum", "momentum": 0.9, "weight": 1.0}, []),
    "nesterov": ({"nesterov": True}, Term.NESTEROV, {"id": "by_nesterov_of_muon"}, []),
    "coefficients": ({"coefficients": HALF}, Term.COEFFICIENTS, {"id": "singular_values"}, []),
    "steps": ({"coefficients": QUINTIC[:4]}, Term.COEFFICIENTS, {"id": "steps", "count": 4}, []),
    "mode": ({"scale_mode": "shape_scaling"}, Term.SCALE, {"id": "fitted_scale", "mode": "shape_scaling", "factor": 0.2}, []),
    "factor": ({"extra_scale_factor": 0.4}, Term.SCALE, {"id": "fitted_scale", "mode": "spectral", "factor": 0.4}, []),
    "rate": ({"rate": 1.5}, Term.LEARNING_RATE, {"id": "fitted_number", "number": 1.5e-3}, []),
    "decay": ({"weight_decay": 0.12}, Term.WEIGHT_DECAY, {"id": "fitted_number", "number": 0.12}, []),
    "one matrix": ({"factors": {Q: 0.5}}, Term.SCALE, {"id": "factors", "least": 0.5, "largest": 1.0}, [Q]),
}
"""What was used in the place of what is on record; the term, the value and the tensors that must be named."""


@pytest.mark.parametrize("term", every(3, TERMS))
def test_a_term_that_is_not_as_recorded_is_named_with_the_value_used(compared: Compared, honest: Synthetic, term: str) -> None:
    used, named, value, names = TERMS[term]
    outcome = stage(compared(run_of(**used), against=honest))
    assert outcome.status is Status.DIFFERENT
    (finding,) = outcome.findings
    assert finding.term is named
    assert arguments_of(finding.what, "after_update.term_in_part") == []
    assert finding.quantity is (Metric.LEARNING_RATE if named is Term.LEARNING_RATE else Metric.HYPER_PARAMETER)
    found = words(finding.candidate)
    assert {key: found[key] for key in value} == {
        key: each if isinstance(each, str) else pytest.approx(each, rel=2e-3) for key, each in value.items()
    }
    assert [each["names"] for each in arguments_of(finding.what, "after_update.term_of")] == names


def arguments_of(value: Any, id: str) -> list[dict[str, Any]]:
    return [dict(part.arguments) for part in messages(value) if part.id == id]


@pytest.mark.parametrize("term", slow_but(["nesterov", "coefficients", "mode", "momentum"], "momentum"))
def test_terms_show_in_the_weights_alone(compared: Compared, honest: Synthetic, term: str) -> None:
    """Without the state on record a wrong momentum shows from the second update on."""
    used, named, _, _ = TERMS[term]
    outcome = stage(compared(asking(run_of(**used), optimizer_state="none"), against=honest))
    assert [finding.term for finding in outcome.findings] == [named]


def test_updates_as_recorded_follow_the_formula_in_parts_and_as_fused_matrices(compared: Compared, honest: Synthetic) -> None:
    outcome = stage(compared(deepcopy(honest), against=honest))
    assert outcome.status is Status.SAME
    followed = arguments_of(outcome.summary, "after_update.follow_muon")
    assert len(followed) == 2
    assert all(each["rest"] < 1 for each in followed)
    assert [(each["matrices"], each["all"]) for each in arguments_of(outcome.summary, "after_update.of_matrices")] == [(4, 4)] * 2


def test_fused_matrices_are_not_those_of_their_parts(compared: Compared, honest: Synthetic) -> None:
    split = run_of(matrices=[{"parameters": [name]} for name in SHAPES])
    outcome = stage(compared(split, against=honest))
    assert outcome.status is Status.DIFFERENT
    assert {finding.term for finding in outcome.findings} == {None}


def test_a_finding_names_the_matrices_that_no_term_explains(compared: Compared, honest: Synthetic) -> None:
    run = deepcopy(honest)
    for step in range(1, STEPS + 1):
        run.weights[step][Q] = run.weights[0][Q] * np.float32(1 + 1e-3 * math.sin(step))
        run.weights[step][Q][0] *= np.float32(1.01)
    (finding,) = stage(compared(run, against=honest)).findings
    assert finding.name == Q
    assert arguments_of(finding.what, "after_update.no_muon_of") == [{"side": Side.CANDIDATE, "names": Q}]


def test_what_a_bf16_iteration_rounds_is_no_fault(compared: Compared, honest: Synthetic) -> None:
    """Its result is off by a hundredth, of which fp32 would be ten thousand roundings."""
    run = run_of(extra_scale_factor=0.2006)
    assert stage(compared(run, against=run)).status is Status.DIFFERENT
    run.optimizer["groups"][0]["products"] = "bfloat16"
    assert stage(compared(run, against=run)).status is Status.SAME


def test_terms_that_do_not_show_in_any_shape_are_said(compared: Compared) -> None:
    run = run_of(rate=1e-3)
    for row in run.rows:
        row["learning_rate"] = 1e-6
    hidden, _ = arguments_of(stage(compared(run, against=run)).summary, "after_update.follow_muon_but")
    assert Term.WEIGHT_DECAY in hidden["terms"].parts
    assert Term.MOMENTUM not in hidden["terms"].parts


@pytest.mark.parametrize("unknown", [{"coefficients": None}, {"scale_mode": "mine"}, {"products": None}, {"matrices": []}])
def test_what_is_not_on_record_is_no_default(compared: Compared, honest: Synthetic, unknown: dict[str, Any]) -> None:
    run = deepcopy(honest)
    run.optimizer["groups"][0] |= unknown
    reason = "formula.none_of_its_weights" if "matrices" in unknown else "formula.muon_not_on_record"
    whys = [each["why"].id for each in arguments_of(stage(compared(run, against=run)).summary, "after_update.not_checked")]
    assert whys == [reason, reason]


@pytest.mark.parametrize(("operations", "checked"), [(0.0, 1), (2.0 * STEPS * 5 * 4 * 48 * 48 * 64, 2)])
def test_the_largest_matrices_are_left_out(
    monkeypatch: pytest.MonkeyPatch, compared: Compared, honest: Synthetic, operations: float, checked: int
) -> None:
    monkeypatch.setattr("align_hooks.comparison.optimizer.muon_updates.OPERATIONS", operations)
    outcome = stage(compared(deepcopy(honest), against=honest))
    assert {(each["matrices"], each["all"]) for each in arguments_of(outcome.summary, "after_update.of_matrices")} == {(checked, 4)}


def test_groups_that_give_a_tensor_to_another_optimizer_differ(compared: Compared, honest: Synthetic) -> None:
    run = deepcopy(honest)
    run.optimizer["groups"][0]["parameters"] = [name for name in SHAPES if name != Q]
    run.optimizer["groups"][1]["parameters"] = [*run.optimizer["groups"][1]["parameters"], Q]
    run.optimizer["groups"][1]["optimizer"] = "AdamW"
    found = stage_of(compared(asking(run, optimizer_state="none"), against=honest), "hyper-parameters")
    assert found.status is Status.DIFFERENT
    assert ("optimizer", "Muon", "Adam") in [(each.name, each.reference, each.candidate) for each in found.findings]
