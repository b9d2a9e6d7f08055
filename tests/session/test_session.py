"""How a run ends, and what is said of what never happened."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from align_hooks import open_run
from align_hooks.errors import RefusedRun
from align_hooks.process.ranks import Launch
from align_hooks.quantities.batches import BATCHES
from align_hooks.quantities.gradients import GRADIENTS
from align_hooks.record.format.ending import HowEnded
from align_hooks.record.write.step_files import StepBatch
from align_hooks.session import Session
from align_hooks.session.accounting import exit_code, failure, finish
from holder import held
from record.conftest import killed
from synthetic import row, settings


def session(run: Path, launch: Launch | None = None, **variables: str) -> Session:
    one = Session("torch", settings(**{"run": str(run)} | variables), launch or Launch())
    one.begin()
    return one


def described(one: Session, steps: range, made: int = 0) -> Session:
    """The session of a job that is to make ``steps``, and has made some of them."""
    one.describe(place={"dp": 0}, facts={}, steps=steps)
    one.made = made
    return one


def caused(error: Exception, by: Exception) -> Exception:
    """An error that was raised of another."""
    error.__cause__ = by
    return error


ENDS: dict[str, tuple[int, Callable[[Session], HowEnded] | None, str]] = {
    "all steps": (3, None, "finished"),
    "no step": (0, None, "ended early: 0 of 3 planned steps were made"),
    "two steps": (2, None, "ended early: 2 of 3 planned steps were made"),
    "an error": (0, lambda one: HowEnded("failed"), "failed: the script ended with an error"),
    "an error of two lines": (
        *(1, lambda one: failure(one, 1, ValueError("bad value\nand more"))),
        "failed: the script ended with ValueError: bad value",
    ),
    "an error in a framework's words": (
        *(1, lambda one: failure(one, 1, caused(RuntimeError("Error in training step 0."), NotImplementedError("no kernel")))),
        "failed: the script ended with RuntimeError: Error in training step 0. (NotImplementedError: no kernel)",
    ),
    "a code": (1, lambda one: failure(one, 7, None), "failed: the script ended with exit code 7"),
    "Ctrl-C": (1, lambda one: failure(one, 130, KeyboardInterrupt()), "interrupted at step 6 (SIGINT)"),
}


@pytest.mark.parametrize(("made", "failed", "ended"), ENDS.values(), ids=ENDS)
def test_the_manifest_says_how_the_script_ended_and_a_failure_says_no_more(
    tmp_path: Path, made: int, failed: Callable[[Session], HowEnded] | None, ended: str
) -> None:
    """Of a run that was resumed at step 5. Where it failed, batches that were asked for and never came are not told."""
    one = described(session(tmp_path, **({"batches": "all"} if failed else {})), range(5, 8), made)
    assert finish(one, failed and failed(one)) == []
    assert open_run(tmp_path).manifests[0].ended == ended


def test_a_run_that_never_trained_is_not_finished(tmp_path: Path) -> None:
    finish(session(tmp_path))
    assert open_run(tmp_path).manifests[0].ended.startswith("ended early")


@pytest.mark.parametrize("first", [2, 3])
def test_a_restart_is_not_blamed_for_what_its_earlier_start_did(tmp_path: Path, first: int) -> None:
    """Batches that were asked of step 0 alone are recorded, those of gradients are not; after the last step nothing is left to be made."""
    launch, wanted = Launch(launchers={"an agent": 0}), {"batches": "0", "gradients": "0"}
    writer = described(session(tmp_path, launch, **wanted), range(3)).recording.writer
    assert writer is not None
    writer.batch(0, StepBatch({"tokens": np.zeros((1, 2), np.int64)}, [1]))
    for step in range(first):
        writer.scalars(row(step))
    killed(writer)
    again = described(session(tmp_path, replace(launch, launchers={"an agent": 1}), **wanted), range(first, 3), made=3 - first)
    never = ["ALIGN_HOOKS_GRADIENTS=0: no such step was reached, nothing was recorded"]
    assert finish(again) == (never if first < 3 else [])


@pytest.mark.parametrize(("name", "last"), [("gradients", 2), ("batches", 2), ("local_norms", 2), ("weights", 3)])
def test_a_step_that_is_never_made_is_refused_before_training(tmp_path: Path, name: str, last: int) -> None:
    described(session(tmp_path / "fits", **{name: f"0,{last}"}), range(3))
    described(session(tmp_path / "a range may end later", **{name: "1-100"}), range(3))
    with pytest.raises(RefusedRun, match=f"ALIGN_HOOKS_{name.upper()}=0,{last + 1}: step {last + 1} is never made, the last is {last}"):
        described(session(tmp_path / "beyond", **{name: f"0,{last + 1}"}), range(3))


def test_a_range_longer_than_any_run_is_answered_at_once(tmp_path: Path) -> None:
    """Step by step it takes all memory."""
    whole = "0-99999999999"
    one = described(session(tmp_path, gradients=whole, weights=whole, batches=f"{whole}/7"), range(3))
    assert one.recording.wants(GRADIENTS, 2)


def test_facts_that_are_no_text_of_the_locale_are_kept_as_the_letters_that_were_meant(tmp_path: Path) -> None:
    kept = "训练".encode().decode("ascii", "surrogateescape")
    one = session(tmp_path)
    one.describe(place={}, facts={"arguments": {"load": kept, "save": "a\udcff"}}, steps=range(1))
    assert open_run(tmp_path).facts.arguments == {"load": "训练", "save": "a\\xff"}


def test_what_was_asked_for_and_never_came_is_said(tmp_path: Path) -> None:
    problems = finish(described(session(tmp_path, gradients="2"), range(3), made=2))
    assert problems == ["ALIGN_HOOKS_GRADIENTS=2: no such step was reached, nothing was recorded"]
    assert (exit_code(0, problems), exit_code(7, problems)) == (3, 7)


def test_a_start_that_was_refused_does_not_block_the_next(tmp_path: Path) -> None:
    finish(session(tmp_path), HowEnded("refused", error="too early"))
    one = described(session(tmp_path), range(1), made=1)
    assert one.recording.writer is not None
    one.recording.writer.scalars({"step": 0})
    finish(one)
    with pytest.raises(RefusedRun, match="already holds a run"):
        session(tmp_path)


def test_a_start_that_wrote_weights_and_no_step_is_refused_for_what_it_wrote(tmp_path: Path) -> None:
    """A script that fails in its first step has written the weights that it started from."""
    one = described(session(tmp_path, weights="0"), range(1))
    assert one.recording.writer is not None
    one.recording.writer.weights(0, {"a": np.zeros(1, np.float32)}, {})
    finish(one, HowEnded("failed_with_error", error="KeyError: 'text'"))
    for words in (r"wrote before it completed a step.*ALIGN_HOOKS_RUN_EXISTS=replace", "of rank 0"):
        with pytest.raises(RefusedRun, match=words):
            session(tmp_path)


def test_a_run_that_has_just_begun_is_not_taken_over_unless_it_was_killed(tmp_path: Path) -> None:
    with held(tmp_path) as process, pytest.raises(RefusedRun, match=f"is being recorded into by pid {process} of"):
        session(tmp_path)
    finish(described(session(tmp_path), range(1)))
    assert open_run(tmp_path).manifests[0].ended == "ended early: 0 of 1 planned steps were made"


def test_an_override_is_accounted_for_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = session(tmp_path)
    for _ in range(3):
        one.override("args.seed", 1234, 42, "ALIGN_HOOKS_SEED")
    assert len(one.overrides) == 1
    assert capsys.readouterr().out.count("args.seed: 1234 -> 42") == 1


def test_a_capture_that_fails_ends_recording_and_not_the_run(tmp_path: Path) -> None:
    one = described(session(tmp_path, batches="all"), range(3))
    one.step = 1
    assert one.recording.wants(BATCHES)
    with one.recording.isolate_failures("the batch"):
        raise OSError("No space left on device")
    assert not one.recording.wants(BATCHES) and not one.recording.is_on
    (said,) = finish(one)
    assert said.startswith("rank 0 stopped recording at step 1 while writing the batch: OSError: No space left on device (")
    assert re.search(r"test_session\.py:\d+ in test_a_capture_that_fails_ends_recording_and_not_the_run\)$", said)


def test_a_capture_that_fails_stops_the_run_where_that_was_asked_for(tmp_path: Path) -> None:
    one = session(tmp_path, on_error="raise")
    with pytest.raises(OSError, match="No space"), one.recording.isolate_failures("the batch"):
        raise OSError("No space left on device")


def printed(rank: int, capfd: pytest.CaptureFixture[str], **variables: str) -> list[str]:
    """What one of two ranks prints of the norms of step 2."""
    one = Session("torch", settings(local_norms="all", **variables), Launch(rank=rank, world_size=2))
    capfd.readouterr()
    one.print_norms(2, {"model.norm.weight": 4.0, "lm_head.weight": 9.0}, {"lm_head.weight"})
    return capfd.readouterr().out.splitlines()


def test_norms_that_are_recorded_are_a_line_a_step_of_the_first_rank(capfd: pytest.CaptureFixture[str]) -> None:
    (line,) = printed(0, capfd, run="run")
    assert "step 2 (iteration 3)" in line and "3 of part of lm_head.weight" in line
    assert printed(1, capfd, run="run") == []


@pytest.mark.parametrize("variables", [{}, {"run": "run", "local_norms_print": "all"}], ids=["no record", "asked for"])
def test_every_rank_prints_every_norm_where_nothing_is_recorded_or_all_are_asked_for(
    capfd: pytest.CaptureFixture[str], variables: dict[str, str]
) -> None:
    for rank in range(2):
        head = f"align_hooks: local norm rank {rank} step_2 (iteration 3)"
        expected = [f"{head} model.norm.weight 2.000000000e+00", f"{head} part of lm_head.weight 3.000000000e+00"]
        assert printed(rank, capfd, **variables) == expected
