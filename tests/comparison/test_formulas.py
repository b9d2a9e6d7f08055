"""Updates by other formulas than AdamW's: each is found from the numbers on record, and the plain one is never taken for another."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from align_hooks.comparison.formula import UpdateFormula
from align_hooks.comparison.verdict import Place, Status, Term
from align_hooks.messages import rendered
from comparison.conftest import Compared, stage
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
    assert found.blame.place in (Place.OPTIMIZER, Place.NEXT_LOSS)
    assert rendered(found.next)
