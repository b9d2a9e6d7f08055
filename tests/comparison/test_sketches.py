"""Runs of which no tensor is stored, compared by their sketches."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from align_hooks import open_run
from align_hooks.comparison.distances import of_sketches, weights
from align_hooks.comparison.verdict import Status, Verdict, at_step
from align_hooks.messages import Message, message
from align_hooks.record.shard import Shard
from align_hooks.record.sketch import sketch
from comparison.conftest import HONEST, Compared, scale, stage
from rewritten import bend_rows, relisted
from synthetic import HONEST_SKETCHED, STEPS, Synthetic, grown, sketched, squared_sum
from worded import arguments, messages

Q, EMBEDDING, HEAD = "model.layers.0.self_attn.q_proj.weight", "model.embed_tokens.weight", "lm_head.weight"


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

    def rounded(row: dict[str, Any]) -> None:
        for sums in row["sums"].values():
            sums[0] *= times

    run = HONEST_SKETCHED.write(tmp_path / "run")
    bend_rows(run / "sketches/weights/rank_0.jsonl", rounded)
    assert stage(compared(relisted(run), against=HONEST), "initial weights").status is status


def test_what_norms_are_blind_to_is_named(compared: Compared, candidate: Synthetic) -> None:
    candidate.gradients[0][Q] = candidate.gradients[0][Q][::-1].copy()
    outcome = compared(candidate, against=HONEST_SKETCHED)
    assert stage(outcome, "local norms").status is Status.SAME
    assert (outcome.first.name, outcome.first.findings[0].what) == ("gradients", at_step(Q, 0))
    assert outcome.blame.suspects[0].what == Q


def nudged(run: Synthetic) -> None:
    run.weights[0][Q][0, 0] = np.nextafter(run.weights[0][Q][0, 0], np.float32(9))


WEIGHTS = {
    "moved by one rounding": (nudged, []),
    "negated": (lambda run: run.weights[0].update({Q: -run.weights[0][Q]}), [message("conversion.sign_turned", name=Q)]),
    "exchanged": (
        lambda run: run.weights[0].update({HEAD: run.weights[0][EMBEDDING], EMBEDDING: run.weights[0][HEAD]}),
        [message("conversion.exchanged", name=HEAD, other=EMBEDDING)],
    ),
    "turned about": (lambda run: run.weights[0].update({Q: run.weights[0][Q][::-1].copy()}), [message("conversion.same_numbers", name=Q)]),
}


@pytest.mark.parametrize(("bend", "told"), WEIGHTS.values(), ids=WEIGHTS)
def test_weights_that_differ_are_found_and_what_a_conversion_did_is_told(
    compared: Compared, candidate: Synthetic, bend: Callable[[Synthetic], None], told: list[Message]
) -> None:
    bend(candidate)
    outcome = compared(candidate, against=HONEST_SKETCHED)
    assert outcome.first.name == "initial weights"
    assert [words for words in messages(outcome.first.common) if words in told] == told


def test_a_sketch_that_both_were_asked_for_and_one_lacks_is_never_aligned(compared: Compared, candidate: Synthetic) -> None:
    del candidate.gradients[1]
    assert compared(candidate, against=HONEST_SKETCHED).verdict is not Verdict.ALIGNED


def test_noise_is_measured_by_sketches_too(compared: Compared, candidate: Synthetic, tmp_path: Path) -> None:
    repeat = deepcopy(HONEST_SKETCHED)
    for run, size in ((repeat, 1e-3), (candidate, 2e-3)):
        scale(run.gradients[0], Q, 1 + size)
        run.norms.clear()
        run.settings |= {"local_norms": "none", "sketches": "0"}
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
    run = deepcopy(HONEST_SKETCHED)
    scale(run.gradients[2], Q, 1.0001)
    run.norms.clear()
    run.settings |= {"local_norms": "none"}
    gradients = stage(compared(run, against=HONEST_SKETCHED), "gradients")
    assert (gradients.status, gradients.findings[0].what) == (Status.DIFFERENT, at_step(Q, STEPS - 1))


def test_distances_of_sketches_are_near_those_of_tensors(tmp_path: Path) -> None:
    """Within the range that the definition promises, on tensors of a size that has one."""
    random = np.random.default_rng(3)
    reference = random.standard_normal((128, 96)).astype(np.float32)
    for size in (1e-6, 1e-3, 0.3):
        second = (reference + size * random.standard_normal(reference.shape)).astype(np.float32)
        sides = [{"x": sketch(each, Shard("x", reference.shape, "x", "float32"))} for each in (reference, second)]
        error = next(of_sketches(*sides)).error
        true = float(np.linalg.norm(second - reference) / np.linalg.norm(reference))
        assert 0.4 < error / true < 1.9


def test_records_without_either_have_no_distance(tmp_path: Path) -> None:
    run = open_run(Synthetic(settings={"batches": "all"}).write(tmp_path / "run"))
    assert list(weights(run, run, 0, 1e-7)) == []


def with_first_sum(run: Path, kind: str, place: int, change: Callable[[float], object]) -> Path:
    """A record in which one of the sums of a tensor at step 0 is another."""

    def bend(row: dict[str, Any]) -> None:
        if row["step"] == 0:
            row["sums"][Q][place] = change(row["sums"][Q][place])

    bend_rows(run / "sketches" / kind / "rank_0.jsonl", bend)
    return relisted(run)


def test_what_all_signs_hide_is_at_least_as_far_as_the_norms_are(compared: Compared, candidate: Synthetic, tmp_path: Path) -> None:
    """A record whose signed sums agree and whose squared sums do not."""
    run = with_first_sum(candidate.write(tmp_path / "run"), "weights", 0, lambda squared: 4 * squared)
    outcome = compared(run, against=HONEST_SKETCHED)
    assert (outcome.verdict, outcome.first.name) == (Verdict.DIVERGED, "initial weights")
    assert outcome.first.findings[0].error == pytest.approx(1.0)


@pytest.mark.parametrize("place", [0, 1, 16])
def test_a_sum_that_is_not_finite_is_never_aligned(compared: Compared, candidate: Synthetic, tmp_path: Path, place: int) -> None:
    run = with_first_sum(candidate.write(tmp_path / "run"), "gradients", place, lambda total: "nan")
    outcome = compared(run, against=HONEST_SKETCHED)
    assert (outcome.verdict, outcome.first.name) == (Verdict.DIVERGED, "gradients")


@pytest.mark.parametrize("compute_type", ["float32", "bfloat16", "float16"])
def test_a_tensor_that_is_never_updated_is_seen_at_any_depth(compared: Compared, candidate: Synthetic, compute_type: str) -> None:
    reference, second = deepcopy(HONEST_SKETCHED), candidate
    for run in (reference, second):
        run.compute_type, run.model = compute_type, run.model | {"num_hidden_layers": 80}
    for step in range(1, STEPS + 1):
        second.weights[step] = deepcopy(second.weights[0])
    outcome = compared(second, against=reference)
    assert (outcome.verdict, outcome.first.name) == (Verdict.DIVERGED, "first updates")


def test_one_element_that_adam_moves_the_other_way_is_honest(compared: Compared, candidate: Synthetic) -> None:
    """A gradient that is next to nothing, of one sign here and of the other there: the rate, twice, in a tensor of four."""
    norm = "model.norm.weight"
    wide = {name: (shape[0], 64) if len(shape) == 2 else (64,) for name, shape in HONEST.shapes.items()}
    reference = grown(wide)
    reference.settings = dict(HONEST_SKETCHED.settings)
    reference.gradients[0][norm][0] = 3e-7
    reference.norms[0][norm] = squared_sum(reference.gradients[0][norm])
    second = deepcopy(reference)
    second.gradients[0][norm][0] = -3e-7
    reference.train()
    second.train()
    assert compared(second, against=reference).verdict is Verdict.ALIGNED


def test_an_update_that_the_reference_s_type_rounds_away_is_no_distance(compared: Compared, candidate: Synthetic) -> None:
    norm = "model.norm.weight"
    reference, second = deepcopy(HONEST_SKETCHED), candidate
    reference.side, reference.compute_type = "ms", "bfloat16"
    second.compute_type = "bfloat16"
    for step in range(1, STEPS + 1):
        reference.weights[step][norm] = reference.weights[0][norm].copy()
        second.weights[step][norm] = reference.weights[0][norm] * np.float32(1 + 1e-3)
    outcome = compared(second, against=reference)
    assert stage(outcome, "first updates").status is Status.SAME


def test_a_row_that_nothing_lists_does_not_count(tmp_path: Path) -> None:
    path = HONEST_SKETCHED.write(tmp_path / "run")
    expected = open_run(path).sketches("weights", 1)
    run = open_run(with_another_row(path))
    np.testing.assert_equal(run.sketches("weights", 1), expected)
    assert (run.sketch_steps("weights"), run.problems) == ([0, 1, 2, 3], [])


def with_another_row(run: Path) -> Path:
    """A run with one more row of sketches, which says of step 1 what the first says of step 0, and a torn one after it."""
    path = run / "sketches" / "weights" / "rank_0.jsonl"
    first, *_ = path.read_text().splitlines()
    with path.open("a") as file:
        file.write(first.replace('"step": 0', '"step": 1') + "\n" + '{"step": 2, "sums": {"torn')
    return run


def test_equal_weights_whose_norms_two_recorders_round_otherwise_are_equal() -> None:
    """Megatron-LM's side takes norms in fp32 chunks, MindFormers' side in fp64: both started from one checkpoint here."""
    tensor = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    ours = {name: np.array(sums) for name, sums in sketched({Q: tensor}).items()}
    rounded, moved = ({Q: ours[Q] * np.array([1 + size, *[1.0] * 16])} for size in (1e-7, 1e-5))
    errors = [next(of_sketches(ours, theirs)).error for theirs in (rounded, moved)]
    assert errors == [0.0, pytest.approx(5e-6, rel=1e-2)]
