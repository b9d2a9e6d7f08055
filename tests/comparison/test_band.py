"""The band of a long run, ended or still going on: honest pairs stay in it, drifts and jumps are found, and the first step is told."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import drifting
from align_hooks import Run
from align_hooks.cli import app
from align_hooks.comparison.control_band import banded, noise_model
from align_hooks.comparison.control_band.banded import drifts, error_of_mean, parts
from align_hooks.comparison.control_band.noise_model import CUT, Detector, NoiseLevel, NoiseModel, fit, innovations, leaves
from align_hooks.comparison.control_band.watching import JobWatch, Sign, Watched
from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.stage_result import StageResult, Status
from align_hooks.comparison.stages.band import band
from align_hooks.comparison.verdict import ComparisonResult, Verdict
from align_hooks.errors import RecordError
from align_hooks.record.format.ending import HowEnded
from invoked import invoke
from synthetic import Array, scalars_only
from worded import words

STEPS = drifting.STEPS
AT = np.arange(STEPS)
AFTER = AT >= 250


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
        alarms += leaves(candidate, fit(repeats)) is not None
    assert alarms <= 1


@pytest.mark.parametrize(("added", "late"), [(0.03 * (AT >= 200), 20), (5e-4 * np.maximum(0, AT - 200), 120)], ids=["jump", "drift"])
def test_a_fault_is_found_and_its_first_step_told(added: Array, late: int) -> None:
    found = []
    for seed in range(20):
        candidate, repeats = pair(seed)
        alarm = leaves(candidate + added, fit(repeats))
        assert alarm is not None, seed
        assert alarm.seen < 200 + late
        found.append(alarm.start)
    assert abs(np.median(found) - 200) <= 25


def test_one_step_that_is_far_beyond_all_others_is_an_alarm_by_itself() -> None:
    candidate, repeats = pair(2)
    candidate[300] += 0.5
    alarm = leaves(candidate, fit(repeats))
    assert (alarm.start, alarm.seen) == (300, 300)


def test_differences_as_small_as_the_rounding_of_the_loss_are_none() -> None:
    """Two frameworks round a loss otherwise at every step, and repeats of one of them alike."""
    candidate, repeats = (1e-5 * series for series in pair(1))
    assert leaves(candidate + 1e-6, fit(repeats)) is not None
    assert leaves(candidate + 1e-6, fit(repeats, 3e-6)) is None


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
    level = NoiseLevel(0.5)
    assert [level.innovation(1.0, 1.0) for _ in range(3)] == [1.0, 0.5, 0.25]
    assert level.innovation(1000.0, 1.0) > 999
    assert level.level < 4
    series = drifting.differences(1, 4000, np.ones(4000))
    gain = fit(np.stack([series])).gain
    left = innovations(series, gain, np.ones(4000))
    assert gain in noise_model.GAINS
    assert np.corrcoef(series[:-1], series[1:])[0, 1] > 0.5
    assert abs(np.corrcoef(left[:-1], left[1:])[0, 1]) < 0.1


def test_growing_rounding_is_left_out() -> None:
    grows = np.minimum(1.0, np.exp((AT - 150) / 10))
    candidate, repeats = pair(3)
    model = fit(repeats * grows)
    assert 100 < model.settled < 160
    assert leaves(candidate * np.roll(grows, 40), model) is None  # honest, and 40 steps later


def test_repeats_that_are_equal_to_the_bit_show_nothing() -> None:
    model = fit(np.zeros((2, STEPS)))
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
    new = np.clip(np.sqrt(noise_model.mean_square(repeats)) * drawn, -CUT, CUT)
    for slope in noise_model.SLOPES:
        assert np.exp(slope * new - noise_model.cost(slope, noise_model.mean_square(repeats))).mean() < 1.005, slope


def test_evidence_falls_back_to_nothing_and_counts_from_where_it_began() -> None:
    detector = Detector(NoiseModel(0.1, np.ones(200), 0, 2), 200 / 1e4)
    assert not any(detector.see(step, step, 0.0) for step in range(100))
    assert detector.evidence < np.log(1e4) / 2
    assert any(detector.see(step, step, 10.0 + step) for step in range(100, 130))
    assert detector.evidence >= detector.enough
    assert detector.start == 100


# ---- in a comparison


def compared(folder: Path, added: Array | float = 0.0, steps: int = STEPS, repeats: int = 2) -> ComparisonResult:
    """A comparison of runs that recorded nothing but their rows."""
    hard = drifting.hardness(1, steps)
    hard[:1] = 0  # all stand on the same weights there
    apart = [drifting.differences(number, steps, hard) * (np.arange(steps) > 0) for number in range(2 + repeats)]
    apart[1] = apart[1] + added
    runs = [drifting.recorded(folder / str(number), differences) for number, differences in enumerate(apart)]
    return compare(*runs[:2], noise=runs[2:])


def stage_of(comparison: ComparisonResult) -> StageResult | None:
    return next((result for result in comparison.stages if result.stage is band), None)


def test_an_honest_long_pair_is_no_difference(tmp_path: Path) -> None:
    """Of 400 steps some is far beyond three times what two repeats show at that very step."""
    comparison = compared(tmp_path)
    assert (comparison.verdict, stage_of(comparison).status) == (Verdict.ALIGNED, Status.SAME)


def test_a_late_jump_is_named_with_its_step(tmp_path: Path) -> None:
    comparison = compared(tmp_path, 0.03 * AFTER)
    assert comparison.verdict is Verdict.DIVERGED
    assert comparison.first is stage_of(comparison)
    assert comparison.first.findings[0].step == 250
    assert "--plan" in str(comparison.next)


def test_short_runs_and_runs_without_repeats_have_no_band(tmp_path: Path) -> None:
    assert stage_of(compared(tmp_path / "short", steps=40)) is None
    assert stage_of(compared(tmp_path / "alone", repeats=0)) is None


def test_a_long_part_is_drawn_from_means_of_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose mean has the same error."""
    series = drifting.differences(1, 8000, np.ones(8000))
    of_neighbours = error_of_mean(series)
    monkeypatch.setattr(banded, "MOST", 8000)
    assert of_neighbours == pytest.approx(error_of_mean(series), rel=0.3)


# ---- a running job held against a finished reference, row by row


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """A reference, two repeats, and an honest candidate."""
    folder, hard = tmp_path_factory.mktemp("runs"), drifting.hardness(1)
    return [drifting.recorded(folder / str(number), drifting.differences(number, hard=hard)) for number in range(4)]


def written(path: Path, added: Array | float = 0.0, ended: str | None = "finished", steps: int = STEPS) -> Path:
    """A candidate's record."""
    apart = drifting.differences(3, hard=drifting.hardness(1)) + added
    run = scalars_only(drifting.losses(apart)[:steps])
    run.ended = None if ended is None else HowEnded(ended)
    return run.write(path)


def watched(runs: Sequence[Run], path: Path, *options: str) -> tuple[int, str, dict[str, object]]:
    """Exit code, output and JSON of the command, which looks often."""
    said = path.with_suffix(".json")
    noise = [word for run in runs[1:3] for word in ("--noise", str(run.path))]
    done = invoke(app, ["watch", str(runs[0].path), str(path), *noise, "--json", str(said), "--every", "0.1", *options])
    return done.exit_code, done.output, json.loads(said.read_text()) if said.exists() else {}


def seen(runs: Sequence[Run], rows: Run) -> JobWatch:
    """What watched all rows of a run."""
    watch = JobWatch(runs[0], runs[1:3])
    for row in rows.rows:
        watch.see(row)
    return watch


def test_an_honest_job_ends_in_the_band(runs: list[Run], tmp_path: Path) -> None:
    code, output, said = watched(runs, written(tmp_path / "run"))
    assert (code, said["outcome"], said["alarms"], said["steps"]) == (0, "stayed", [], STEPS)
    assert said["repeats"] == 2
    assert output.count("\n") < 16  # and not a line a step


def test_a_job_is_called_off_near_the_step_at_which_it_left(runs: list[Run], tmp_path: Path) -> None:
    code, output, said = watched(runs, written(tmp_path / "run", 0.03 * AFTER))
    (alarm,) = said["alarms"]
    assert (code, said["outcome"], alarm["number"], alarm["since"]) == (1, "left", "loss", 250)
    assert 250 <= alarm["seen"] < 270
    assert "step 250" in output


SOON = ("--patience", "0.002")
ENDS: dict[str, tuple[Callable[[Path], Path], tuple[str, ...], int, dict[str, object], str]] = {
    "it still runs and has left": (lambda path: written(path, 0.03 * AFTER, ended=None, steps=300), (), 1, {"outcome": "left"}, ""),
    "it makes no step": (lambda path: written(path, ended=None, steps=100), SOON, 3, {"outcome": "stopped", "steps": 100}, "no new step"),
    "it never begins": (lambda path: path, SOON, 3, {"outcome": "stopped"}, ""),
    "it failed": (lambda path: written(path, ended="failed", steps=100), (), 3, {"outcome": "stopped"}, "failed"),
    "it has no loss": (lambda path: scalars_only([None] * STEPS).write(path), (), 4, {"outcome": "open"}, words("watch.no_loss")),
}


@pytest.mark.parametrize(("make", "options", "code", "told", "printed"), ENDS.values(), ids=ENDS)
def test_a_job_that_is_not_whole_is_called_off_or_taken_for_dead(
    runs: list[Run], tmp_path: Path, make: Any, options: tuple[str, ...], code: int, told: dict[str, object], printed: str
) -> None:
    ended, output, said = watched(runs, make(tmp_path / "run"), *options)
    assert ended == code and said.items() >= told.items()
    assert printed in " ".join(output.split())


def test_without_repeats_the_guides_limits_judge(runs: list[Run], tmp_path: Path) -> None:
    _, output, said = watched(runs[:1], written(tmp_path / "honest"))
    assert (said["outcome"], said["repeats"], said["false_alarms"]) == ("stayed", 0, None)
    assert "--noise" in output
    code, _, said = watched(runs[:1], written(tmp_path / "off", 0.05 * AFTER))
    assert (code, said["alarms"][0]["sign"]) == (1, Sign.BEYOND_GUIDE.value)


def test_a_number_that_is_not_finite_is_an_alarm_at_once(runs: list[Run], tmp_path: Path) -> None:
    losses = drifting.losses(drifting.differences(3, hard=drifting.hardness(1)))
    losses[30] = math.nan
    watch = seen(runs, drifting.open_run(scalars_only(losses).write(tmp_path / "run")))
    assert [(alarm.sign, alarm.step) for alarm in watch.alarms] == [(Sign.NOT_FINITE, 30)]
    assert watch.outcome(ended=False) is Watched.LEFT


def test_what_was_watched_is_the_same_in_one_look_and_in_many(runs: list[Run]) -> None:
    whole, parts = seen(runs, runs[3]), JobWatch(runs[0], runs[1:3])
    for row in runs[3].rows:
        parts.see(row)
        assert parts.outcome(ended=True) is Watched.STAYED
    assert [number.evidence for number in whole.numbers.values()] == [number.evidence for number in parts.numbers.values()]


def test_what_is_no_repeat_is_refused(runs: list[Run], tmp_path: Path) -> None:
    other = scalars_only([9.0] * 5)
    other.compute_type = "bfloat16"
    for stranger in (other.write(tmp_path / "other"), runs[0].path):  # nor is the reference one of itself
        done = invoke(app, ["watch", str(runs[0].path), str(written(tmp_path / f"run_{stranger.name}")), "--noise", str(stranger)])
        assert isinstance(done.exception, RecordError)
        assert str(stranger) in str(done.exception)


def test_a_page_of_a_job_that_runs_is_read_again_by_itself(runs: list[Run]) -> None:
    from align_hooks.report.html import page
    from align_hooks.report.watch import MOST, document

    watch = seen(runs, runs[3])
    running, ended = (page(document(watch, "runs/candidate", outcome, every=10), "0") for outcome in (None, Watched.STAYED))
    assert '<meta http-equiv="refresh" content="10">' in running
    assert 'http-equiv="refresh"' not in ended
    assert max(len(curve.steps) for curve in watch.curves(MOST)) <= MOST + 1
    assert len(watch.curves(50)[0].steps) <= 51
    assert watch.curves(50)[0].steps[-1] == STEPS - 1
