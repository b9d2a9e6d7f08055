"""A distilled reference gives the verdict that the run itself gives, and says what it lacks."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest

from align_hooks import open_run
from align_hooks.comparison.finding import Metric
from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.stage_result import Status
from align_hooks.comparison.verdict import ComparisonResult
from align_hooks.messages import rendered
from align_hooks.record.distill import distill
from align_hooks.record.format.norms import squared_sum
from align_hooks.record.reader import Run
from align_hooks.settings import Steps
from chosen import every
from comparison.conftest import HONEST, change_id, scale, stage
from golden.write import other_forward, other_update
from synthetic import NAMES, Synthetic, batch, grown
from worded import ids

NORM, PROJECTION = NAMES[2], NAMES[1]
SMALLEST = {"batches": Steps.parse("0"), "sketches": Steps.parse("0")}
"""What is kept of a reference that should be as small as it can be and still have sketches and token losses."""


def other_gradient(run: Synthetic) -> None:
    scale(run.gradients[0], NORM, 1.5)
    run.norms[0][NORM] = squared_sum(run.gradients[0][NORM])


def turned(tensors: dict[str, np.ndarray]) -> None:
    """Put rows in another order, which no norm shows."""
    tensors[PROJECTION] = tensors[PROJECTION][::-1].copy()


FAULTS: dict[str, Callable[[Synthetic], object]] = {
    "none": lambda run: None,
    "another token at a later step": lambda run: run.batches[1].update(batch(99)),
    "a gradient": other_gradient,
    "rows of a gradient": lambda run: turned(run.gradients[0]),
    "rows of a weight": lambda run: turned(run.weights[0]),
    "the loss": lambda run: [scalars.update(loss=1.001 * scalars["loss"]) for scalars in run.rows],
    "a learning rate": lambda run: run.rows[1].update(learning_rate=2e-3),
    "clipping": lambda run: run.rows[1].update(clip_coefficient=0.1),
    "a setting": lambda run: run.model.update(rms_norm_eps=1e-6),
}
OTHERS: dict[str, Callable[[Synthetic], Synthetic]] = {
    "the forward pass": other_forward,
    "the update": other_update,
    "the model": lambda run: grown({NAMES[0]: (10, 4), PROJECTION: (8, 4)}),
}
"""Whole candidates."""


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return open_run(HONEST.write(tmp_path_factory.mktemp("trusted") / "run"))


@pytest.fixture
def beside_short(trusted: Run, tmp_path: Path) -> Callable[..., ComparisonResult]:
    """Compare a candidate with what is kept of the trusted run, as little as can be unless told otherwise."""

    def compare_with_short(candidate: Synthetic, choices: dict[str, Steps] = SMALLEST) -> ComparisonResult:
        return compare(distill(trusted, choices).at(tmp_path / "reference.zip"), open_run(candidate.write(tmp_path / "candidate")))

    return compare_with_short


@pytest.mark.parametrize("choices", [{}, SMALLEST], ids=["everything", "smallest"])
@pytest.mark.parametrize("fault", every(3, [*FAULTS, *OTHERS]))
def test_the_verdict_is_that_of_the_run(fault: str, choices: dict[str, Steps], trusted: Run, tmp_path: Path) -> None:
    candidate = OTHERS.get(fault, deepcopy)(HONEST)
    FAULTS.get(fault, FAULTS["none"])(candidate)
    other = open_run(candidate.write(tmp_path / "candidate"))
    short = distill(trusted, choices).at(tmp_path / "reference.zip")
    expected, found = compare(trusted, other), compare(short, other)
    assert found.verdict is expected.verdict
    assert (found.first and found.first.stage) == (expected.first and expected.first.stage)
    assert not [result.name for result in found.stages if result.status is Status.INCOMPLETE]


def test_it_may_stand_on_either_side(trusted: Run, tmp_path: Path, candidate: Synthetic) -> None:
    other, short = open_run(candidate.write(tmp_path / "reference")), distill(trusted, SMALLEST).at(tmp_path / "candidate.zip")
    assert compare(other, short).verdict is compare(other, trusted).verdict


def test_two_of_one_run_are_one_run(trusted: Run, tmp_path: Path) -> None:
    assert compare(trusted, distill(trusted).at(tmp_path / "reference.zip")).itself


def test_batches_that_were_left_out_are_compared_by_digest(beside_short: Callable[..., ComparisonResult], candidate: Synthetic) -> None:
    change_id(candidate, "tokens", 2)
    result = stage(beside_short(candidate), "batches")
    assert result.status is Status.DIFFERENT
    (finding,) = result.findings
    assert (finding.name, finding.step, finding.quantity) == ("tokens", 2, Metric.BATCHES)
    assert "batches.differ_by_digest" in ids(finding.what)


def test_digests_do_not_depend_on_what_ids_are_stored_in(beside_short: Callable[..., ComparisonResult], candidate: Synthetic) -> None:
    for arrays in candidate.batches.values():
        arrays["tokens"], arrays["labels"] = arrays["tokens"].astype("int32"), arrays["labels"].astype("int32")
        del arrays["position_ids"]
    result = stage(beside_short(candidate), "batches")
    assert result.status is Status.SAME
    assert "batches.compared_by_digest" in ids(result.summary)


def test_it_says_what_it_lacks(beside_short: Callable[..., ComparisonResult], candidate: Synthetic) -> None:
    (note,) = (note for note in beside_short(candidate, {}).notes if "notes.distilled" in ids(note))
    assert all(name in rendered(note) for name in ("gradients", "weights"))
