"""A real training that a signal ends in mid-step: it ends as it does without us, and its record says of what."""

import json
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from align_hooks import open_run
from align_hooks.record.format.crash_stack import read
from align_hooks.record.format.ending import End
from real import frameworks
from worded import arguments


def as_usual() -> None:
    """Let signals do what they do: whoever runs the tests in the background of a shell, or under nohup, ignores some."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)], ids=lambda number: number.name)
def test_a_training_that_is_ended_in_mid_step(tmp_path: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tmp_path / "run" / "scalars" / "rank_0.jsonl"

    def ended(command: Sequence[str], *, env: Mapping[str, str], cwd: Path, **_: object) -> subprocess.CompletedProcess[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with subprocess.Popen(command, env=env, cwd=cwd, **pipes, text=True, preexec_fn=as_usual) as training:
            assert training.stdout is not None
            lines = []
            for line in training.stdout:
                lines.append(line)
                if line == "hangs\n":
                    while not rows.exists() or len(rows.read_bytes().splitlines()) < 2:  # written beside training
                        time.sleep(0.05)
                    training.send_signal(number)
            return subprocess.CompletedProcess(command, training.wait(), "".join(lines), "")

    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "run", ended)
        done = frameworks.megatron(tmp_path, script=frameworks.SCRIPTS / "hangs.py", RUN=tmp_path / "run", BATCHES="all")
    assert done.code == -number, done.output
    run = open_run(tmp_path / "run")
    assert run.steps == [0, 1]
    words, manifest = read(tmp_path / "run", 0), json.loads((tmp_path / "run/manifest/rank_0.json").read_text())
    if number == signal.SIGINT:
        assert (words, manifest["ended"]) == (None, "interrupted at step 2 (SIGINT)")
    else:
        assert words is not None and words.signal == "SIGTERM"
        assert "forward_step" in [function for file, _, function in words.stack if file.endswith("hangs.py")]
        assert manifest["ended"] is None
        (problem,) = run.problems
        assert (problem.step, run.endings[0].end) == (1, End.SIGNALLED)
        assert arguments("run.last_whole_step", problem.message) == {"step": 1, "iteration": 2}
