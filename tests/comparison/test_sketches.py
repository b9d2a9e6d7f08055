"""Runs of which no tensor is stored, compared by their sketches."""

import math
from base64 import b64decode
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from align_hooks import open_run
from align_hooks.comparison.distances import of_sketches, weights
from align_hooks.comparison.finding import at_step
from align_hooks.comparison.stage_result import Status
from align_hooks.comparison.verdict import Verdict
from align_hooks.messages import Message, message
from align_hooks.record.format.shard import Shard
from align_hooks.record.format.sketch import as_stored, as_sums, sketch
from comparison.conftest import HONEST, Compared, asking, scale, stage
from rewritten import bend_rows, relisted
from synthetic import HONEST_SKETCHED, STEPS, Array, Synthetic, grown, sketched, squared_sum
from worded import arguments, messages

Q, EMBEDDING, HEAD = "model.layers.0.self_attn.q_proj.weight", "model.embed_tokens.weight", "lm_head.weight"
NORM = "model.norm.weight"
FIRST = np.arange(24).reshape(6, 4) == 0
"""The first element of the tensor ``Q``."""


@pytest.fixture
def candidate() -> Synthetic:
    return HONEST_SKETCHED.drifted()


def test_an_honest_pair_is_aligned_and_every_tensor_was_looked_at(compared: Compared, candidate: Synthetic) -> None:
    outcome = compared(candidate, against=HONEST_SKETCHED)
    assert outcome.verdict is Verdict.ALIGNED
    for name in ("initial weights", "gradients", "first updates", "free-running steps"):
        assert stage(outcome, name).status is Status.SAME
    assert arguments("same_weights.by_sketches", stage(outcome, "gradients").summary)["count"] == 4


def test_stored_tensors_of_one_side_meet_sketches_of_the_other(compared: Compared, candidate: Synthetic) -> None:
    assert compared(candidate, against=HONEST).verdict is Verdict.ALIGNED
    candidate.gradients[0][Q] = -candidate.gradients[0][Q]
    outcome = compared(candidate, against=HONEST)
    assert (outcome.verdict, outcome.first.name) == (Verdict.DIVERGED, "gradients")
    assert outcome.first.findings[0].scale == pytest.approx(-1)
    assert outcome.first.findings[0].error == pytest.approx(2)


@pytest.mark.parametrize(("times", "status"), [(1 + 5e-7, Status.SAME), (1 + 1e-4, Status.DIFFERENT)])
def test_squared_sums_are_as_exact_as_their_recorders(compared: Compared, tmp_path: Path, times: float, status: Status) -> None:
    """A recorder sums fp32 in chunks, and the reader, where only the tensor was stored, fp64: equal weights are equal nevertheless."""
    run = HONEST_SKETCHED.write(tmp_path / "run")
    with_sums(run, "weights", lambda name, sums: sums.__setitem__(0, times * sums[0]))
    assert stage(compared(run, against=HONEST), "initial weights").status is status


def test_what_norms_are_blind_to_is_named(compared: Compared, candidate: Synthetic) -> None:
    candidate.gradients[0][Q] = candidate.gradients[0][Q][::-1].copy()
    outcome = compared(candidate, against=HONEST_SKETCHED)
    assert stage(outcome, "local norms").status is Status.SAME
    assert (outcome.first.name, outcome.first.findings[0].what) == ("gradients", at_step(Q, 0))
    assert outcome.blame.suspects[0].what == Q


WEIGHTS = {
    "moved by one rounding": (lambda weights: np.nextafter(weights[Q], np.float32(9), out=weights[Q], where=FIRST), []),
    "negated": (lambda weights: weights.update({Q: -weights[Q]}), [message("conversion.sign_turned", name=Q)]),
    "exchanged": (
        lambda weights: weights.update({HEAD: weights[EMBEDDING], EMBEDDING: weights[HEAD]}),
        [message("conversion.exchanged", name=HEAD, other=EMBEDDING)],
    ),
    "turned about": (lambda weights: weights.update({Q: weights[Q][::-1].copy()}), [message("conversion.same_numbers", name=Q)]),
}


@pytest.mark.parametrize(("bend", "told"), WEIGHTS.values(), ids=WEIGHTS)
def test_weights_that_differ_are_found_and_what_a_conversion_did_is_told(
    compared: Compared, candidate: Synthetic, bend: Callable[[dict[str, Array]], object], told: list[Message]
) -> None:
    bend(candidate.weights[0])
    outcome = compared(candidate, against=HONEST_SKETCHED)
    assert outcome.first.name == "initial weights"
    assert [words for words in messages(outcome.first.common) if words in told] == told


def test_a_sketch_that_both_were_asked_for_and_one_lacks_is_never_aligned(compared: Compared, candidate: Synthetic) -> None:
    del candidate.gradients[1]
    assert compared(candidate, against=HONEST_SKETCHED).verdict is not Verdict.ALIGNED


def test_noise_is_measured_by_sketches_too(compared: Compared, candidate: Synthetic, tmp_path: Path) -> None:
    repeat = deepcopy(HONEST_SKETCHED)
    for run, size in ((repeat, 1e-3), (candidate, 2e-3)):
        scale(asking(run, local_norms="none", sketches="0").gradients[0], Q, 1 + size)
        run.norms.clear()
    assert compared(candidate, against=HONEST_SKETCHED).verdict is Verdict.DIVERGED
    outcome = compared(candidate, against=HONEST_SKETCHED, noise=[open_run(repeat.write(tmp_path / "repeat"))])
    assert stage(outcome, "gradients").findings[0].limit == pytest.approx(2 * 1e-3)  # twice the largest that is ever measured
    assert outcome.calibration["gradients of step 0"][Q] == pytest.approx(1e-3, rel=1e-3)


def test_a_zero_tensor_and_one_that_is_not_finite_have_distances_too() -> None:
    ours = sketched({"zero": np.zeros((3, 2), np.float32), "lost": np.ones((3, 2), np.float32), "nan": np.ones(3, np.float32)})
    theirs = sketched({"zero": np.zeros((3, 2), np.float32), "lost": np.zeros((3, 2), np.float32), "nan": np.full(3, np.nan, np.float32)})
    sides = ({name: np.array(sums) for name, sums in side.items()} for side in (ours, theirs))
    errors = {distance.name: distance.error for distance in of_sketches(*sides)}
    assert errors == {"zero": 0.0, "lost": 1.0, "nan": pytest.approx(np.nan, nan_ok=True)}


def test_equal_weights_make_a_later_step_exact(compared: Compared) -> None:
    run = asking(deepcopy(HONEST_SKETCHED), local_norms="none")
    scale(run.gradients[2], Q, 1.0001)
    run.norms.clear()
    gradients = stage(compared(run, against=HONEST_SKETCHED), "gradients")
    assert (gradients.status, gradients.findings[0].what) == (Status.DIFFERENT, at_step(Q, STEPS - 1))


@pytest.mark.parametrize("size", [1e-6, 1e-3, 0.3])
def test_distances_of_sketches_are_near_those_of_tensors(size: float) -> None:
    """Within the range that the definition promises, on tensors of a size that has one."""
    random = np.random.default_rng(3)
    reference = random.standard_normal((128, 96)).astype(np.float32)
    second = (reference + size * random.standard_normal(reference.shape)).astype(np.float32)
    sides = [{"x": sketch(each, Shard("x", reference.shape, "x", "float32"))} for each in (reference, second)]
    true = float(np.linalg.norm(second - reference) / np.linalg.norm(reference))
    assert 0.4 < next(of_sketches(*sides)).error / true < 1.9


def test_records_without_either_have_no_distance(tmp_path: Path) -> None:
    run = open_run(Synthetic(settings={"batches": "all"}).write(tmp_path / "run"))
    assert list(weights(run, run, 0, 1e-7)) == []


def with_sums(run: Path, kind: str, change: Callable[[str, NDArray[np.float64]], object], steps: Sequence[int] = range(STEPS + 1)) -> Path:
    """A record in which the sums of tensors at some steps are others."""

    def bend(row: dict[str, Any]) -> None:
        for name, stored in row["sums"].items() if row["step"] in steps else ():
            sums = as_sums(b64decode(stored))
            change(name, sums)
            row["sums"] |= as_stored({name: sums})

    bend_rows(run / "sketches" / kind / "rank_0.jsonl", bend)
    return relisted(run)


def test_what_all_signs_hide_is_at_least_as_far_as_the_norms_are(compared: Compared, candidate: Synthetic, tmp_path: Path) -> None:
    """A record whose signed sums agree and whose squared sums do not."""
    run = candidate.write(tmp_path / "run")
    with_sums(run, "weights", lambda name, sums: sums.__setitem__(0, 4 * sums[0]) if name == Q else None, [0])
    outcome = compared(run, against=HONEST_SKETCHED)
    assert (outcome.verdict, outcome.first.name) == (Verdict.DIVERGED, "initial weights")
    assert outcome.first.findings[0].error == pytest.approx(1.0)


@pytest.mark.parametrize("place", [0, 1, 16])
def test_a_sum_that_is_not_finite_is_never_aligned(compared: Compared, candidate: Synthetic, tmp_path: Path, place: int) -> None:
    run = candidate.write(tmp_path / "run")
    with_sums(run, "gradients", lambda name, sums: sums.__setitem__(place, math.nan) if name == Q else None, [0])
    outcome = compared(run, against=HONEST_SKETCHED)
    assert (outcome.verdict, outcome.first.name) == (Verdict.DIVERGED, "gradients")


@pytest.mark.parametrize("compute_type", ["float32", "bfloat16", "float16"])
def test_a_tensor_that_is_never_updated_is_seen_at_any_depth(compared: Compared, candidate: Synthetic, compute_type: str) -> None:
    reference = deepcopy(HONEST_SKETCHED)
    for run in (reference, candidate):
        run.compute_type, run.model = compute_type, run.model | {"num_hidden_layers": 80}
    candidate.weights = dict.fromkeys(candidate.weights, candidate.weights[0])
    outcome = compared(candidate, against=reference)
    assert (outcome.verdict, outcome.first.name) == (Verdict.DIVERGED, "first updates")


def test_one_element_that_adam_moves_the_other_way_is_honest(compared: Compared) -> None:
    """A gradient that is next to nothing, of one sign here and of the other there: the rate, twice, in a tensor of four."""
    sides = [grown({name: (shape[0], 64) if len(shape) == 2 else (64,) for name, shape in HONEST.shapes.items()}) for _ in range(2)]
    for run, gradient in zip(sides, (3e-7, -3e-7), strict=True):
        run.settings = dict(HONEST_SKETCHED.settings)
        run.gradients[0][NORM][0] = gradient
        run.norms[0][NORM] = squared_sum(run.gradients[0][NORM])
        run.train()
    assert compared(sides[1], against=sides[0]).verdict is Verdict.ALIGNED


def test_an_update_that_the_reference_s_type_rounds_away_is_no_distance(compared: Compared, candidate: Synthetic) -> None:
    reference = deepcopy(HONEST_SKETCHED)
    reference.side, reference.compute_type, candidate.compute_type = "ms", "bfloat16", "bfloat16"
    first = reference.weights[0][NORM]
    for step in range(1, STEPS + 1):
        reference.weights[step][NORM], candidate.weights[step][NORM] = first, first * np.float32(1 + 1e-3)
    assert stage(compared(candidate, against=reference), "first updates").status is Status.SAME


def test_a_row_that_nothing_lists_does_not_count(tmp_path: Path) -> None:
    """One that says of step 1 what the first says of step 0, and a torn one after it."""
    path = HONEST_SKETCHED.write(tmp_path / "run")
    expected = open_run(path).sketches("weights", 1)
    file = path / "sketches/weights/rank_0.jsonl"
    another = file.read_text().splitlines()[0].replace('"step": 0', '"step": 1')
    file.write_text(file.read_text() + another + '\n{"step": 2, "sums": {"torn')
    run = open_run(path)
    np.testing.assert_equal(run.sketches("weights", 1), expected)
    assert (run.sketch_steps("weights"), run.problems) == ([0, 1, 2, 3], [])


def test_equal_weights_whose_norms_two_recorders_round_otherwise_are_equal() -> None:
    """Megatron-LM's side takes norms in fp32 chunks, MindFormers' side in fp64: both started from one checkpoint here."""
    tensor = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    ours = {name: np.array(sums) for name, sums in sketched({Q: tensor}).items()}
    rounded, moved = ({Q: ours[Q] * np.array([1 + size, *[1.0] * 16])} for size in (1e-7, 1e-5))
    errors = [next(of_sketches(ours, theirs)).error for theirs in (rounded, moved)]
    assert errors == [0.0, pytest.approx(5e-6, rel=1e-2)]
