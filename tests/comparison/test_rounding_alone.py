"""A tensor whose gradient is rounding alone: what Adam makes of it accuses nobody, and what is wrong with it is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from align_hooks import open_run
from align_hooks.comparison.rounding_alone import TIMES, alike, drift
from align_hooks.comparison.verdict import Status, Verdict
from align_hooks.record.norms import squared_sum
from comparison.conftest import Compared, asking, stage
from synthetic import STEPS, Synthetic

NAME, EPS = "model.norm.weight", 2.0**-23


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


FAULTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "never updated": np.zeros_like,
    "at another rate": lambda weight: 10 * weight,
    "moved by more": lambda weight: weight + np.float32(0.1),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_its_updates_is_told(fault: str, compared: Compared) -> None:
    candidate = of_rounding(2)
    for step in range(STEPS):
        candidate.weights[step + 1][NAME] = FAULTS[fault](candidate.weights[step + 1][NAME])
    result = stage(compared(candidate, of_rounding(1)), "first updates")
    assert result.status is Status.DIFFERENT and result.findings[0].name == NAME


def test_weights_that_went_further_than_rates_allow_are_told(compared: Compared) -> None:
    """A weight that is 40 whole rates away was not moved there by two updates."""
    candidate = of_rounding(2)
    candidate.weights[2][NAME] = candidate.weights[2][NAME] + np.float32(0.04)
    findings = stage(compared(candidate, of_rounding(1)), "free-running steps").findings
    assert [found.excess > 1 for found in findings if found.name == NAME and found.step == 2] == [True]


def test_only_of_what_was_rounding_at_every_step_before(tmp_path: Path) -> None:
    runs = [of_rounding(seed) for seed in (1, 2)]
    for run in runs:
        run.norms[1][NAME] = 1.0
    sides = [open_run(run.write(tmp_path / str(index))) for index, run in enumerate(runs)]
    assert [drift(*sides, step, EPS) for step in range(3)] == [{}, pytest.approx({NAME: 2 * 1e-3 * 2}), {}]


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
