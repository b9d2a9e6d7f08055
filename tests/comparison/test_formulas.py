"""Updates by other formulas than AdamW's: each is found from the numbers on record, and the plain one is never taken for another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from align_hooks import open_run
from align_hooks.comparison.formula import UpdateFormula
from align_hooks.comparison.runs import compare
from align_hooks.comparison.verdict import Place, Status, Term
from align_hooks.messages import Message, rendered
from comparison.conftest import stage
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
    group: dict[str, Any] = {"learning_rate": RATE, "betas": list(BETAS), "eps": EPS, "bias_correction": True, "weight_decay": DECAY}
    run.optimizer = {
        **{"type": "AdamW", "decoupled_weight_decay": True, "clip_grad": 1.0, "loss_scale": 1.0},
        "groups": [group | {"parameters": list(SHAPES)}],
    }
    moments = {name: {each: np.zeros(shape, np.float32) for each, shape in SHAPES.items()} for name in ("exp_avg", "exp_avg_sq")}
    run.moments = {0: {name: dict(named) for name, named in moments.items()}}
    for step, row in enumerate(run.rows):
        row["learning_rate"] = RATE
        run.weights[step + 1] = {}
        for name in SHAPES:
            gradient = run.gradients[step][name] * np.float32(row["clip_coefficient"])
            made = FORMULAS[formula](run.weights[step][name], *(moments[each][name] for each in moments), gradient, step + 1)
            run.weights[step + 1][name], moments["exp_avg"][name], moments["exp_avg_sq"][name] = made
        run.moments[step + 1] = {name: dict(named) for name, named in moments.items()}
    return run


def test_every_formula_has_a_run() -> None:
    assert FORMULAS.keys() == set(UpdateFormula)


@pytest.mark.parametrize("formula", UpdateFormula)
def test_a_formula_is_found(tmp_path: Path, formula: UpdateFormula) -> None:
    reference = trained(UpdateFormula.ADAMW).write(tmp_path / "reference")
    found = compare(open_run(reference), open_run(trained(formula).write(tmp_path / "candidate")))
    result = stage(found, "weights after an update")
    if formula is UpdateFormula.ADAMW:
        assert result.status is not Status.DIFFERENT
        return
    assert [finding.term for finding in result.findings if finding.term is not None] == [Term.FORMULA]
    used = next(finding.candidate for finding in result.findings if finding.term is Term.FORMULA)
    assert isinstance(used, Message) and used.arguments["value"].id == f"after_update.by_{formula.value}"  # type: ignore[union-attr]
    assert found.blame is not None and found.blame.place in (Place.OPTIMIZER, Place.NEXT_LOSS)
    assert found.next is not None and rendered(found.next)
