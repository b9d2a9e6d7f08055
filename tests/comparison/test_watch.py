"""A running job held against a finished reference, row by row."""

from __future__ import annotations

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
from align_hooks.comparison.band.watching import Sign, Watch, Watched
from align_hooks.errors import RecordError
from align_hooks.record.ending import HowEnded
from invoked import invoke
from synthetic import Array, scalars_only
from worded import words

STEPS = drifting.STEPS
AFTER = np.arange(STEPS) >= 250


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


def seen(runs: Sequence[Run], rows: Run) -> Watch:
    """What watched all rows of a run."""
    watch = Watch(runs[0], runs[1:3])
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
    assert (ended, said | told) == (code, said)
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
    whole, parts = seen(runs, runs[3]), Watch(runs[0], runs[1:3])
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
    from align_hooks.report.watch_page import MOST, watch_page

    watch = seen(runs, runs[3])
    running, ended = (watch_page(watch, "runs/candidate", outcome, None, "0", 10) for outcome in (None, Watched.STAYED))
    assert '<meta http-equiv="refresh" content="10">' in running
    assert 'http-equiv="refresh"' not in ended
    assert max(len(curve.steps) for curve in watch.curves(MOST)) <= MOST + 1
    assert len(watch.curves(50)[0].steps) <= 51
    assert watch.curves(50)[0].steps[-1] == STEPS - 1
