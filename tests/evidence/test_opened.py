"""What other tools kept of a run, in the place of a run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import align_hooks
from align_hooks.cli import app
from align_hooks.comparison.verdict import Verdict
from align_hooks.errors import RecordError
from align_hooks.evidence.convert import convert, convert_curves
from align_hooks.evidence.opened import open_evidence
from align_hooks.record.reader import Run, open_run
from invoked import invoke
from synthetic import Synthetic, row

LINE = (
    " [2026-01-01 00:00:00] iteration {step:8d}/      12 | consumed samples: {samples:12d} | elapsed time per iteration (ms): 10.0 | "
    "learning rate: 1.000000E-03 | global batch size:     4 | lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: {norm:.3f} | "
    "number of skipped iterations:   0 | number of nan iterations:   0 |"
)


def log(place: Path, *, wrong: float = 0.0, steps: int = 12) -> Path:
    """A log of Megatron-LM; ``wrong`` is added to the loss from step 4 on."""
    losses = (10.8 - 0.1 * step + (wrong if step >= 4 else 0.0) for step in range(steps))
    place.write_text(
        "\n".join(LINE.format(step=step + 1, samples=4 * (step + 1), loss=loss, norm=1.5 + 0.1 * step) for step, loss in enumerate(losses))
        + "\n"
    )
    return place


def table(place: Path, *, steps: int = 12) -> Path:
    """A table that a person exported of the same run."""
    place.write_text("step,loss\n" + "".join(f"{step + 1},{10.8 - 0.1 * step}\n" for step in range(steps)))
    return place


def events(place: Path) -> Path:
    """TensorBoard's events of the same run."""
    writer = pytest.importorskip("tensorboard.summary.writer.event_file_writer").EventFileWriter(str(place))
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    for step in range(12):
        value = Summary.Value(tag="lm loss", simple_value=10.8 - 0.1 * step)
        writer.add_event(Event(step=step + 1, summary=Summary(value=[value])))
    writer.close()
    return place


def recorded(place: Path) -> Path:
    """A record of the same run."""
    run = Synthetic(rows=[row(step, loss=10.8 - 0.1 * step) for step in range(12)])
    run.write(place)
    return place


FORMS = {"log": log, "table.csv": table, "events": events, "record": recorded}


@pytest.mark.parametrize("ours", FORMS)
@pytest.mark.parametrize("theirs", FORMS)
def test_any_two_are_compared_without_being_converted(ours: str, theirs: str, tmp_path: Path) -> None:
    """In any mixture: no loss of the same run differs, and both stay as they were."""
    places = [FORMS[form](tmp_path / f"{side}_{form}") for side, form in (("ours", ours), ("theirs", theirs))]
    before = sorted(tmp_path.rglob("*"))
    comparison = align_hooks.compare(*places)
    differing = [finding for stage in comparison.stages for finding in stage.beyond if "loss" in finding.name]
    assert differing == []
    assert comparison.verdict is not Verdict.DIVERGED
    assert [side.path for side in comparison.sides] == [str(place) for place in places]
    assert sorted(tmp_path.rglob("*")) == before


def test_two_logs_that_part_are_placed(tmp_path: Path) -> None:
    ours, theirs = log(tmp_path / "ours.log"), log(tmp_path / "theirs.log", wrong=0.5)
    done = invoke(app, ["compare", str(ours), str(theirs)])
    assert done.exit_code == 1
    assert "step 4 (iteration 5)" in done.output.splitlines()[0]
    assert f"{ours.name}_again" in done.output  # where it says to record both, beside the logs and not in memory


def test_two_paths_are_compared_without_the_word(tmp_path: Path) -> None:
    places = [str(log(tmp_path / "ours.log")), str(table(tmp_path / "theirs.csv"))]
    named, unnamed = invoke(app, ["compare", *places]), invoke(app, places)
    assert unnamed == named
    assert "there is no command" in str(invoke(app, [str(tmp_path / "nothing"), places[0]]).exception)


@pytest.mark.parametrize("form", ["log", "table.csv", "events"])
def test_what_is_opened_is_what_convert_writes(form: str, tmp_path: Path) -> None:
    place = FORMS[form](tmp_path / form)
    (convert if form == "log" else convert_curves)(place, tmp_path / "run")

    def content(run: Run) -> object:
        return run.rows, run.facts.framework, run.facts.converted, run.facts.resolution, run.problems

    opened = open_evidence(place)
    assert content(opened) == content(open_run(tmp_path / "run"))
    assert str(opened.path) == str(place)


def test_a_log_is_shown(tmp_path: Path) -> None:
    done = invoke(app, ["show", str(log(tmp_path / "a.log")), "--json", str(tmp_path / "a.json")])
    assert (done.exit_code, done.output.splitlines()[0]) == (0, "clean: Megatron-LM, 1 rank, 12 of 12 steps")
    assert json.loads((tmp_path / "a.json").read_text())["run"] == str(tmp_path / "a.log")


def test_a_log_comes_through_a_pipe(tmp_path: Path) -> None:
    """``<(zcat a.log.gz)`` of a shell."""
    place = log(tmp_path / "a.log")
    command = f"{sys.executable} -m align_hooks compare <(cat {place}) {place}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "100"})
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "aligned: every stage that was compared agrees"), done.stderr


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("empty", "", "no line"),
        ("notes.txt", "to do: everything\n", "no line"),
        ("a.csv", "step,loss\nx,y\n", "'x' as its step"),
        ("a.bin", "\x80", "is a file and no run|no line"),
        ("run.zip", "PK\x03\x04 broken", "is not a whole zip file"),
    ],
)
def test_what_is_nothing_of_a_run_is_refused_in_a_line(name: str, content: str, why: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content.encode("latin-1"))
    with pytest.raises(RecordError, match=why) as refused:
        open_evidence(tmp_path / name)
    assert "\n" not in str(refused.value)


def test_a_path_that_is_none_is_refused_with_its_option(tmp_path: Path) -> None:
    place = str(log(tmp_path / "a.log"))
    done = invoke(app, ["compare", place, place, "--noise", "s3://bucket/run"])
    assert isinstance(done.exception, RecordError)
    assert str(done.exception).startswith("--noise s3://bucket/run ")
    with pytest.raises(RecordError, match="NUL"):
        align_hooks.compare("a\0b", place)


def test_a_dump_is_converted_first(tmp_path: Path) -> None:
    """It is as large as a record of it."""
    (tmp_path / "dump").mkdir()
    (tmp_path / "dump" / "dump.json").write_text("{}")
    with pytest.raises(RecordError, match="holds no run"):
        open_evidence(tmp_path / "dump")


def test_norms_of_a_monitor_are_of_no_framework_that_is_known(tmp_path: Path) -> None:
    """``convert`` asks whose they are; here nobody can say it."""
    (tmp_path / "monitor").mkdir()
    header = "vpp_stage,module_name,step,norm\n"
    (tmp_path / "monitor" / "grad_reduced_0-0.csv").write_text(header + "0,0:embedding.weight,0,1.5\n")
    run = open_evidence(tmp_path / "monitor")
    assert (run.facts.framework, run.facts.side, [row.grad_norm for row in run.rows]) == (None, None, [1.5])
