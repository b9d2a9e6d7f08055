"""The band of a long run: honest pairs stay in it, drifts and jumps are found, and the first step is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import drifting
from align_hooks.comparison.band import drift
from align_hooks.comparison.band.detector import SLOPES, Detector, cost, leaves, room
from align_hooks.comparison.band.drift import drifts, error_of_mean, parts
from align_hooks.comparison.band.level import CUT, GAINS, Honest, Level, honest, innovations
from align_hooks.comparison.runs import compare
from align_hooks.comparison.stages.band import band
from align_hooks.comparison.verdict import Comparison, StageResult, Status, Verdict
from synthetic import Array

STEPS = drifting.STEPS


def pair(seed: int, repeats: int = 2) -> tuple[Array, Array]:
    """A candidate's differences, and those of repeats of the reference, all from one reference."""
    hard = drifting.hardness(seed)
    own = drifting.differences(1000 * seed, hard=hard)
    others = [drifting.differences(1000 * seed + number, hard=hard) - own for number in range(1, repeats + 2)]
    return others[0], np.stack(others[1:])


def test_of_honest_pairs_no_more_leave_the_band_than_is_promised() -> None:
    alarms = 0
    for seed in range(60):
        candidate, repeats = pair(seed, repeats=1 + seed % 3)
        alarms += leaves(candidate, honest(repeats)) is not None
    assert alarms <= 1


@pytest.mark.parametrize(("fault", "late"), [("jump", 20), ("drift", 120)])
def test_a_fault_is_found_and_its_first_step_told(fault: str, late: int) -> None:
    found = []
    for seed in range(20):
        candidate, repeats = pair(seed)
        steps = np.arange(STEPS)
        added = {"jump": 0.03 * (steps >= 200), "drift": 5e-4 * np.maximum(0, steps - 200)}[fault]
        alarm = leaves(candidate + added, honest(repeats))
        assert alarm is not None, seed
        assert alarm.seen < 200 + late
        found.append(alarm.start)
    assert abs(np.median(found) - 200) <= 25


def test_one_step_that_is_far_beyond_all_others_is_an_alarm_by_itself() -> None:
    candidate, repeats = pair(2)
    candidate[300] += 0.5
    alarm = leaves(candidate, honest(repeats))
    assert alarm is not None
    assert (alarm.start, alarm.seen) == (300, 300)


def test_differences_as_small_as_the_rounding_of_the_loss_are_none() -> None:
    """Two frameworks round a loss otherwise at every step, and repeats of one of them alike."""
    candidate, repeats = (1e-5 * series for series in pair(1))
    assert leaves(candidate + 1e-6, honest(repeats)) is not None
    assert leaves(candidate + 1e-6, honest(repeats, 1e-6)) is None


def test_means_of_parts_that_are_alike_from_step_to_step_are_judged_by_their_own_error() -> None:
    beyond = 0
    for seed in range(12):
        candidate, repeats = pair(seed)
        beyond += any(abs(part.mean) > part.limit for part in drifts(candidate, repeats, 0))
        assert any(abs(part.mean) > part.limit for part in drifts(candidate + 0.02, repeats, 0))
    assert beyond == 0


def test_parts_are_long_enough_and_leave_out_what_has_not_settled() -> None:
    assert parts(0, 400) == [(0, 100), (100, 200), (200, 300), (300, 400)]
    assert parts(100, 230) == [(100, 165), (165, 230)]
    assert parts(0, 49) == []


def test_the_level_follows_and_what_is_left_is_not_alike() -> None:
    level = Level(0.5)
    assert [level.innovation(1.0, 1.0) for _ in range(3)] == [1.0, 0.5, 0.25]
    assert level.innovation(1000.0, 1.0) > 999
    assert level.level < 4
    series = drifting.differences(1, 4000, np.ones(4000))
    gain = honest(np.stack([series])).gain
    left = innovations(series, gain, np.ones(4000))
    assert gain in GAINS
    assert np.corrcoef(series[:-1], series[1:])[0, 1] > 0.5
    assert abs(np.corrcoef(left[:-1], left[1:])[0, 1]) < 0.1


def test_growing_rounding_is_left_out() -> None:
    grows = np.minimum(1.0, np.exp((np.arange(STEPS) - 150) / 10))
    candidate, repeats = pair(3)
    model = honest(repeats * grows)
    assert 100 < model.settled < 160
    assert leaves(candidate * np.roll(grows, 40), model) is None  # honest, and 40 steps later


def test_repeats_that_are_equal_to_the_bit_show_nothing() -> None:
    model = honest(np.zeros((2, STEPS)))
    assert model.settled == STEPS
    assert leaves(np.ones(STEPS), model) is None


@pytest.mark.parametrize("repeats", [1, 2, 4])
@pytest.mark.parametrize("shape", ["normal", "laplace", "t3", "t5", "hard and easy"])
def test_a_product_is_at_most_1_on_average(shape: str, repeats: int) -> None:
    """What the bound on false alarms rests on, for innovations as large as there is room for."""
    random = np.random.default_rng(5)
    many = 400_000
    drawn = {
        "normal": lambda: random.standard_normal(many),
        "laplace": lambda: random.laplace(size=many) / np.sqrt(2),
        "t3": lambda: random.standard_t(3, many) / np.sqrt(3),
        "t5": lambda: random.standard_t(5, many) / np.sqrt(5 / 3),
        "hard and easy": lambda: random.standard_normal(many) * np.exp(0.5 * random.standard_normal(many)) / np.exp(0.25),
    }[shape]()
    new = np.clip(np.sqrt(room(repeats)) * drawn, -CUT, CUT)
    for slope in SLOPES:
        assert np.exp(slope * new - cost(slope, room(repeats))).mean() < 1.005, slope


def test_evidence_falls_back_to_nothing_and_counts_from_where_it_began() -> None:
    detector = Detector(Honest(0.1, np.ones(200), 0, 2), 200 / 1e4)
    for step in range(100):
        assert not detector.see(step, step, 0.0)
    assert detector.evidence < np.log(1e4) / 2
    for step in range(100, 130):
        if detector.see(step, step, 10.0 + step):
            break
    assert detector.alarm
    assert detector.start == 100


# ---- in a comparison


def compared(folder: Path, added: Array | float = 0.0, steps: int = STEPS, repeats: int = 2) -> Comparison:
    """A comparison of runs that recorded nothing but their rows."""
    hard = drifting.hardness(1, steps)
    hard[:1] = 0  # all stand on the same weights there
    apart = [drifting.differences(number, steps, hard) * (np.arange(steps) > 0) for number in range(2 + repeats)]
    apart[1] = apart[1] + added
    runs = [drifting.recorded(folder / str(number), differences) for number, differences in enumerate(apart)]
    return compare(*runs[:2], noise=runs[2:])


def stage_of(comparison: Comparison) -> StageResult | None:
    return next((result for result in comparison.stages if result.stage is band), None)


def test_an_honest_long_pair_is_no_difference(tmp_path: Path) -> None:
    """Of 400 steps some is far beyond three times what two repeats show at that very step."""
    comparison = compared(tmp_path)
    stage = stage_of(comparison)
    assert stage is not None
    assert stage.status is Status.SAME
    assert comparison.verdict is Verdict.ALIGNED


def test_a_late_jump_is_named_with_its_step(tmp_path: Path) -> None:
    comparison = compared(tmp_path, 0.03 * (np.arange(STEPS) >= 250))
    stage = stage_of(comparison)
    assert comparison.verdict is Verdict.DIVERGED
    assert stage is not None and comparison.first is stage
    assert stage.findings[0].step == 250
    assert comparison.next is not None and "--plan" in str(comparison.next)


def test_short_runs_and_runs_without_repeats_have_no_band(tmp_path: Path) -> None:
    assert stage_of(compared(tmp_path / "short", steps=40)) is None
    assert stage_of(compared(tmp_path / "alone", repeats=0)) is None


def test_a_long_part_is_drawn_from_means_of_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose mean has the same error."""
    series = drifting.differences(1, 8000, np.ones(8000))
    of_neighbours = error_of_mean(series)
    monkeypatch.setattr(drift, "MOST", 8000)
    assert of_neighbours == pytest.approx(error_of_mean(series), rel=0.3)
