"""Updates that are not plain AdamW's: by other formulas, each found from the numbers on record, and of gradients that are only rounding."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from align_hooks import open_run
from align_hooks.comparison.distances import TIMES, alike, rounding_drift
from align_hooks.comparison.finding import Term
from align_hooks.comparison.optimizer.formula import UpdateFormula
from align_hooks.comparison.stage_result import FaultLocation, Status
from align_hooks.comparison.verdict import Verdict
from align_hooks.messages import rendered
from align_hooks.record.format.norms import squared_sum
from comparison.conftest import Compared, asking, stage
from synthetic import STEPS, Array, Synthetic, tensors

SHAPES = {"model.layers.0.self_attn.q_proj.weight": (64, 32), "model.norm.weight": (64,), "lm_head.weight": (64, 32)}
RATE, DECAY, EPS, BETAS = 0.05, 0.1, 1e-6, (0.9, 0.95)
Step = Callable[[Array, Array, Array, Array, int], tuple[Array, Array, Array]]
"""Weights, both moments, the clipped gradient and the count of updates to the next weights and moments."""


def by(move: Callable[..., Array], *, decay_last: bool = False) -> Step:
    """An update that moves weights by ``move(m, v, first, second, old, gradient)``, all in fp32."""

    def step(weights: Array, m: Array, v: Array, gradient: Array, count: int) -> tuple[Array, Array, Array]:
        beta1, beta2 = map(np.float32, BETAS)
        new = beta1 * m + (1 - beta1) * gradient, beta2 * v + (1 - beta2) * gradient * gradient
        first, second = np.float32(1 - BETAS[0] ** count), np.float32(1 - BETAS[1] ** count)
        moved = np.float32(RATE) * move(*new, first, second, (m, v), gradient)
        kept = np.float32(1 - RATE * DECAY)
        after = (weights - moved) * kept if decay_last else weights * kept - moved
        return after.astype(np.float32), new[0].astype(np.float32), new[1].astype(np.float32)

    return step


FORMULAS: dict[UpdateFormula, Step] = {
    UpdateFormula.ADAMW: by(lambda m, v, first, second, old, g: m / first / (np.sqrt(v / second) + np.float32(EPS))),
    UpdateFormula.EPS_IN_ROOT: by(lambda m, v, first, second, old, g: m / first / np.sqrt(v / second + np.float32(EPS))),
    UpdateFormula.EPS_BEFORE_CORRECTION: by(
        lambda m, v, first, second, old, g: m / first * np.sqrt(second) / (np.sqrt(v) + np.float32(EPS))
    ),
    UpdateFormula.DECAY_AFTER: by(lambda m, v, first, second, old, g: m / first / (np.sqrt(v / second) + np.float32(EPS)), decay_last=True),
    UpdateFormula.MOMENTS_BEFORE: by(lambda m, v, first, second, old, g: old[0] / first / (np.sqrt(old[1] / second) + np.float32(EPS))),
    UpdateFormula.NESTEROV: by(
        lambda m, v, first, second, old, g: (
            (np.float32(BETAS[0]) * m + np.float32(1 - BETAS[0]) * g) / first / (np.sqrt(v / second) + np.float32(EPS))
        )
    ),
}


def trained(formula: UpdateFormula) -> Synthetic:
    """A run whose updates are made by a formula, of gradients small enough for eps to show."""
    gradients = {step: {name: each * np.float32(1e-5) for name, each in tensors(200 + step, SHAPES).items()} for step in range(STEPS)}
    run = Synthetic(shapes=SHAPES, weights={0: tensors(100, SHAPES)}, gradients=gradients)
    for group in run.optimizer["groups"]:
        group |= {"learning_rate": RATE, "betas": list(BETAS), "eps": EPS, "weight_decay": DECAY}
    for step, row in enumerate(run.rows):
        row["learning_rate"] = RATE
        for name in SHAPES:
            gradient = run.gradients[step][name] * np.float32(row["clip_coefficient"])
            moments = (run.moments[step][moment][name] for moment in ("exp_avg", "exp_avg_sq"))
            weight, first, second = FORMULAS[formula](run.weights[step][name], *moments, gradient, step + 1)
            run.weights[step + 1][name] = weight
            run.moments[step + 1]["exp_avg"][name], run.moments[step + 1]["exp_avg_sq"][name] = first, second
    return run


def test_every_formula_has_a_run() -> None:
    assert FORMULAS.keys() == set(UpdateFormula)


def test_the_plain_one_is_taken_for_no_other(compared: Compared) -> None:
    found = compared(trained(UpdateFormula.ADAMW), against=trained(UpdateFormula.ADAMW))
    assert stage(found, "weights after an update").status is not Status.DIFFERENT


@pytest.mark.parametrize("formula", [formula for formula in UpdateFormula if formula is not UpdateFormula.ADAMW])
def test_a_formula_is_found(compared: Compared, formula: UpdateFormula) -> None:
    found = compared(trained(formula), against=trained(UpdateFormula.ADAMW))
    (finding,) = (finding for finding in stage(found, "weights after an update").findings if finding.term is not None)
    assert finding.term is Term.FORMULA
    assert finding.candidate.arguments["value"].id == f"after_update.by_{formula.value}"
    assert found.blame.place in (FaultLocation.OPTIMIZER, FaultLocation.NEXT_LOSS)
    assert rendered(found.next)


# ---- a tensor whose gradient is rounding alone: what Adam makes of it accuses nobody, and what is wrong with it is told

NAME, ROUNDING = "model.norm.weight", 2.0**-23


def of_rounding(seed: int, size: float = 5e-9) -> Synthetic:
    """A run that trains a bias, 0 at first, of gradients that are all rounding; those of later steps are apart by it too. Its updates
    cannot be checked against the formula at every step, as in a run as users record it."""
    run = asking(Synthetic().drifted(), gradients="0")
    run.weights[0][NAME] = np.zeros(4, np.float32)
    random = np.random.default_rng(seed)
    for step in range(STEPS):
        run.gradients[step][NAME] = (size * random.standard_normal(4)).astype(np.float32)
        run.norms[step][NAME] = squared_sum(run.gradients[step][NAME])
    run.train()
    return run


@pytest.mark.parametrize("size", [5e-9, 2e-8, 0.0])
@pytest.mark.parametrize("sketched", [False, True])
def test_an_honest_pair_is_aligned(size: float, sketched: bool, compared: Compared) -> None:
    asked = {"weights": "0", "sketches": "all"} if sketched else {}
    judged = compared(asking(of_rounding(2, size), **asked), against=asking(of_rounding(1), **asked))
    assert judged.verdict is Verdict.ALIGNED
    assert stage(judged, "first updates").status is stage(judged, "free-running steps").status is Status.SAME


WRONG: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "never updated": np.zeros_like,
    "at another rate": lambda weight: 10 * weight,
    "moved by more": lambda weight: weight + np.float32(0.1),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_fault_of_its_updates_is_told(fault: str, compared: Compared) -> None:
    candidate = of_rounding(2)
    for step in range(STEPS):
        candidate.weights[step + 1][NAME] = WRONG[fault](candidate.weights[step + 1][NAME])
    result = stage(compared(candidate, of_rounding(1)), "first updates")
    assert result.status is Status.DIFFERENT and result.findings[0].name == NAME


def test_weights_that_went_further_than_rates_allow_are_told(compared: Compared) -> None:
    """A weight that is 40 whole rates away was not moved there by two updates."""
    candidate = of_rounding(2)
    candidate.weights[2][NAME] = candidate.weights[2][NAME] + np.float32(0.04)
    findings = stage(compared(candidate, of_rounding(1)), "free-running steps").findings
    assert [found.limit_ratio > 1 for found in findings if found.name == NAME and found.step == 2] == [True]


def test_only_of_what_was_rounding_at_every_step_before(tmp_path: Path) -> None:
    runs = [of_rounding(seed) for seed in (1, 2)]
    for run in runs:
        run.norms[1][NAME] = 1.0
    sides = [open_run(run.write(tmp_path / str(index))) for index, run in enumerate(runs)]
    assert [rounding_drift(*sides, step, ROUNDING) for step in range(3)] == [{}, pytest.approx({NAME: 2 * 1e-3 * 2}), {}]


@pytest.mark.parametrize("times", [0.0, 1e-3, 0.5, 1.0, 2.0, 1e3])
@pytest.mark.parametrize("size", [1e-12, 1.0])
def test_what_adam_makes_is_between_one_size_and_in_proportion(times: float, size: float) -> None:
    """Of gradients ``times`` as large an update is as large or ``times`` as large, within the factor that is allowed."""
    for made in (1.0, times):
        for within in (1 / TIMES, 1.0, TIMES):
            assert alike((size, times * size), (1e-3, 1e-3 * made * within * (1 - 1e-9 if within > 1 else 1 + 1e-9)))
    assert not alike((size, times * size), (1e-3, 1.1 * TIMES * max(1.0, times) * 1e-3))
    assert times == 0 or not alike((size, times * size), (1e-3, min(1.0, times) / TIMES / 1.1 * 1e-3))
    assert alike((0.0, size), (0.0, 1e-3)) and alike((size, 0.0), (1e-3, 0.0)) and not alike((size, size), (1e-3, 0.0))
