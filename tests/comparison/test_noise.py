"""Limits that are measured on repeats of the reference."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from align_hooks import open_run
from align_hooks.comparison.finding import when
from align_hooks.comparison.noise import FACTOR, LEAST, MOST, MOVED_IN_HALF, Noise
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.stage_result import Reason, Status
from align_hooks.comparison.verdict import Verdict
from align_hooks.messages import terms
from comparison.conftest import HONEST, Compared, asking, scale, stage
from synthetic import SHAPES, Synthetic, batch, squared_sum
from worded import arguments, ids

Q = "model.layers.0.self_attn.q_proj.weight"
FIRST_STEP = {"weights": "0", "optimizer_state": "none"}
PERTURBED = {"perturb": "1", "load_weights": "/somewhere/else"}


def moved(size: float, names: tuple[str, ...] = (Q,)) -> Synthetic:
    """The honest run with some gradients of step 0 moved by ``size`` of their norm, and no weights or state after it."""
    run = asking(HONEST.drifted(), **FIRST_STEP)
    for name in names:
        scale(run.gradients[0], name, 1 + size)
        run.norms[0][name] = squared_sum(run.gradients[0][name])
    return run


@pytest.fixture
def repeat(tmp_path: Path) -> Path:
    return moved(1e-3).write(tmp_path / "repeat")


def test_a_tensor_is_judged_by_its_own_noise(compared: Compared, repeat: Path) -> None:
    assert compared(moved(5e-4)).verdict is Verdict.DIVERGED
    outcome = compared(moved(5e-4), noise=[open_run(repeat)])
    gradients = stage(outcome, "gradients")
    assert (gradients.status, gradients.findings[0].limit) == (Status.SAME, MOST * 1e-5)  # three times 1e-3 would be more
    note = arguments("notes.measured_limits", outcome.notes)
    assert (note["times"], note["runs"]) == (FACTOR, terms([str(repeat)]))


def test_beyond_its_noise_it_is_flagged_and_a_quiet_tensor_by_little(compared: Compared, repeat: Path) -> None:
    for bent in (moved(4e-3), moved(2e-6, ("lm_head.weight",))):
        outcome = compared(bent, noise=[open_run(repeat)])
        assert (outcome.verdict, outcome.first.name) == (Verdict.DIVERGED, "local norms")


def noise_of(folder: Path, reference: Synthetic, candidate: Synthetic, *repeats: Synthetic) -> Noise:
    first, second, *others = (open_run(run.write(folder / str(number))) for number, run in enumerate((reference, candidate, *repeats)))
    return Noise(Pair(first, second), others)


def test_the_worst_of_several_repeats_counts_and_one_that_is_the_same_to_the_bit_leaves_the_floor(tmp_path: Path) -> None:
    noise = noise_of(tmp_path, HONEST, HONEST.drifted(), moved(1e-3), moved(2e-3))
    assert noise.limit("gradients", 0, Q, 1e-2) == pytest.approx(FACTOR * 2e-3, rel=1e-3)
    assert noise.limit("gradients", 0, Q, 1e-5) == MOST * 1e-5
    assert noise.limit("gradients", 0, "lm_head.weight", 1e-2) == LEAST["gradients"] * 1e-2
    assert noise.limit("token_losses", 0, "token losses", 0.5) == 0.5  # the same to the bit: nothing was measured
    assert noise.limit("gradients", 2, Q, 0.5) == 0.5  # a free-running step
    assert noise.limit("losses", 7, "loss", 0.25) == 0.25
    assert list(noise.measured()["gradients of step 0"]) == list(HONEST.gradients[0])


NO_REPEATS: dict[str, tuple[Callable[[Synthetic], object], str, dict[str, object]]] = {
    "tokens": (lambda run: run.batches.update({0: batch(9)}), "batches.differ_first", {"what": "tokens", "step": 0}),
    "mask": (lambda run: run.batches[1]["loss_mask"].fill(0), "batches.differ_first", {"what": "loss_mask", "step": 1}),
    "weights": (lambda run: run.weights.update({0: run.weights[1]}), "noise.weights", {"name": "model.embed_tokens.weight"}),
    "model": (lambda run: run.model.update(hidden_size=8), "noise.setting", {"what": "hidden_size", "reference": "4", "candidate": "8"}),
    "eps": (lambda run: run.optimizer["groups"][0].update(eps=1e-6), *("noise.setting", {"reference": "1e-08", "candidate": "1e-06"})),
    "optimizer": (lambda run: run.optimizer["groups"][1]["parameters"].pop(), "noise.optimizer", {}),
    "learning rate": (
        lambda run: run.rows[1].update(learning_rate=2e-3),
        *("noise.learning_rate", {"step": when(1), "reference": "0.001", "candidate": "0.002"}),
    ),
}


@pytest.mark.parametrize(("bend", "id", "said"), NO_REPEATS.values(), ids=NO_REPEATS)
def test_what_is_no_repeat_is_refused(tmp_path: Path, compared: Compared, bend: Any, id: str, said: dict[str, object]) -> None:
    run = HONEST.drifted()
    bend(run)
    outcome = compared(HONEST.drifted(), noise=[open_run(run.write(tmp_path / "other"))])
    assert (outcome.verdict, outcome.first.reason) == (Verdict.NOT_COMPARABLE, Reason.NO_REPEAT)
    assert ids(outcome.first.summary)[0] == "noise.no_repeat"
    assert arguments(id, outcome.first.summary).items() >= said.items()


@pytest.mark.parametrize("which", ["reference", "candidate"])
def test_a_run_is_no_repeat_of_itself(tmp_path: Path, which: str) -> None:
    runs = {name: open_run(run.write(tmp_path / name)) for name, run in (("reference", HONEST), ("candidate", moved(0.5)))}
    outcome = compare(*runs.values(), noise=[runs[which]])
    assert outcome.verdict is Verdict.NOT_COMPARABLE
    assert ids(outcome.first.summary) == ["noise.no_repeat", "noise.compared_itself"]


def test_a_repeat_that_is_not_finite_measures_nothing(compared: Compared, tmp_path: Path) -> None:
    run = moved(0.0)
    run.gradients[0][Q][0, 0], run.norms[0][Q] = np.nan, float("nan")
    repeat = open_run(run.write(tmp_path / "nan"))
    assert compared(moved(5e-6), noise=[repeat]).verdict is Verdict.ALIGNED
    assert compared(moved(5e-5), noise=[repeat]).verdict is Verdict.DIVERGED


def test_a_zero_that_a_repeat_moves_lets_nothing_through(compared: Compared, tmp_path: Path) -> None:
    silent, stirred, wrong = (asking(HONEST.drifted(), **FIRST_STEP) for _ in range(3))
    for run, value in ((silent, 0.0), (stirred, 1e-20), (wrong, 50.0)):
        run.gradients[0][Q][:], run.norms[0][Q] = value, 24 * value**2
    repeat = open_run(stirred.write(tmp_path / "stirred"))
    assert compared(wrong, against=silent, noise=[repeat]).verdict is Verdict.DIVERGED


def test_a_moved_run_is_no_side_of_a_comparison(compared: Compared) -> None:
    outcome = compared(asking(HONEST.drifted(), **PERTURBED))
    assert (outcome.verdict, outcome.first.reason) == (Verdict.NOT_COMPARABLE, Reason.MOVED_WEIGHTS)


@pytest.mark.parametrize(("compute_type", "factor"), [("float32", FACTOR), ("bfloat16", MOVED_IN_HALF), ("float16", MOVED_IN_HALF)])
def test_moved_weights_count_once_in_half_precision_but_for_norms(tmp_path: Path, compute_type: str, factor: float) -> None:
    repeat, honest = asking(moved(0.25), **PERTURBED), moved(0.0)
    repeat.compute_type = honest.compute_type = compute_type
    noise = noise_of(tmp_path, honest, honest, repeat)
    assert noise.limit("gradients", 0, Q, 0.05) == pytest.approx(factor * 0.25, rel=1e-6)
    assert noise.limit("local_norms", 0, Q, 0.05) == pytest.approx(FACTOR * 0.25, rel=1e-6)


def test_a_norm_that_a_repeat_left_alone_is_given_what_half_of_all_are(tmp_path: Path) -> None:
    noise = noise_of(tmp_path, HONEST, HONEST.drifted(), moved(1e-3, tuple(SHAPES)[:3]))
    assert noise.limit("local_norms", 0, "lm_head.weight", 1e-4) == pytest.approx(FACTOR * 1e-3, rel=1e-2)
    assert noise.limit("gradients", 0, "lm_head.weight", 1e-4) == pytest.approx(LEAST["gradients"] * 1e-4)
