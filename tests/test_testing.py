"""``align_hooks.testing`` in a real pytest: what passes, what fails, and what a log then says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import align_hooks
from align_hooks import Verdict, open_run
from align_hooks.errors import AlignHooksError, RecordError
from align_hooks.messages import message, rendered
from align_hooks.record.distill import distill
from align_hooks.report.blocks import fact_text
from align_hooks.report.findings import describe
from align_hooks.testing import assert_aligned
from golden.write import other_forward
from synthetic import Synthetic, grown, scalars_only
from worded import words

TEST = """
from align_hooks.testing import assert_aligned

def test_nothing_changed():
    assert assert_aligned("reference.zip", "honest").exit_code == 0

def test_something_changed():
    assert_aligned("reference.zip", "faulty", report="faulty.html")

def test_something_may_be_lacking():
    assert_aligned("reference.zip", "scalars", allow=("aligned", "inconclusive"), allow_missing="*")

def test_there_is_nothing():
    assert_aligned("reference.zip", "nowhere")
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stored reference, and runs to hold against it."""
    here, run = tmp_path_factory.mktemp("testing"), Synthetic()
    run.model |= {"rms_norm_eps": 1e-5}
    (here / "reference.zip").write_bytes(distill(open_run(run.write(here / "reference"))).content)
    run.drifted().write(here / "honest")
    other_forward(run).write(here / "faulty")
    scalars_only().write(here / "scalars")
    return here


@pytest.mark.slow
def test_in_pytest(here: Path) -> None:
    (here / "test_it.py").write_text(TEST)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", "test_it.py"]
    done = subprocess.run(line, cwd=here, env=kept, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 2 passed" in done.stdout
    failed, unreadable = done.stdout.partition("test_there_is_nothing")[::2]
    assert rendered(Verdict.DIVERGED) in failed and "rms_norm_eps" in failed
    assert "test_it.py:8" in failed and "testing.py:" not in failed  # the reader's own line, and none of ours
    assert "RecordError" in unreadable and "nowhere is not a directory" in unreadable
    assert (here / "faulty.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def failed(*arguments: object, **options: object) -> list[str]:
    """The lines of a failure."""
    with pytest.raises(AssertionError) as error:
        assert_aligned(*arguments, **options)  # type: ignore[arg-type]
    return str(error.value).splitlines()


def test_a_failure_says_what_a_log_needs(here: Path) -> None:
    lines = failed(here / "reference.zip", here / "faulty")
    comparison = align_hooks.compare(here / "reference.zip", here / "faulty")
    assert comparison.first is not None and comparison.blame is not None
    first, worst = lines[0], comparison.first.findings[0]
    assert first.startswith(rendered(comparison.verdict)) and rendered(comparison.first.title) in first
    assert lines[1].strip() == rendered(describe(worst)) and "×" in lines[1]
    assert any(rendered(fact_text(message("page.likely"), comparison.blame.likely[0])) in line for line in lines)
    assert any(rendered(fact_text(message("page.next"), comparison.next)) in line for line in lines)
    assert lines[-1].strip() == words("failure.command", command=f"align-hooks compare {here / 'reference.zip'} {here / 'faulty'}")
    assert len(lines) < 12


def test_the_page_the_repeats_and_the_paths_of_open_runs_are_named(here: Path, tmp_path: Path) -> None:
    lines = failed(here / "reference.zip", here / "faulty", noise=here / "honest", report=tmp_path / "page.html")
    assert lines[-1].strip() == words("failure.page", path=str(tmp_path / "page.html"))
    assert f"--noise {here / 'honest'}" in lines[-2]
    reference, candidate = open_run(here / "reference.zip"), open_run(here / "faulty")
    assert f"compare {reference.path} {candidate.path}" in failed(reference, candidate)[-1]


def test_a_verdict_without_blame_is_told_too(here: Path, tmp_path: Path) -> None:
    grown({"model.norm.weight": (4,)}).write(tmp_path / "other")
    lines = failed(here / "reference.zip", tmp_path / "other")
    assert lines[0].startswith(rendered(Verdict.NOT_COMPARABLE))
    assert lines[1].strip()


def test_what_is_allowed_passes(here: Path) -> None:
    for allow in ("diverged", Verdict.DIVERGED, ("aligned", "diverged")):
        assert assert_aligned(here / "reference.zip", here / "faulty", allow=allow).verdict is Verdict.DIVERGED  # type: ignore[arg-type]
    assert rendered(Verdict.ALIGNED) in failed(here / "reference.zip", here / "honest", allow="diverged")[0]


def test_a_verdict_that_there_is_not_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(AlignHooksError, match="'alligned' is no verdict; there are aligned, diverged, not comparable, inconclusive"):
        assert_aligned(tmp_path / "a", tmp_path / "b", allow="alligned")
    with pytest.raises(RecordError):
        assert_aligned(tmp_path / "a", tmp_path / "b")
