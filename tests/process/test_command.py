"""What is on record of the command that started a run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from align_hooks.process.command import VARIABLE, exported, started

SAYS = "import os, json; from align_hooks.process.command import started; print(json.dumps(started('torch', os.environ)))"
LAUNCHER = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[3], *sys.argv[1:3], 'train.py'], check=True)"


def test_the_words_behind_run_and_the_directory_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    told = exported(["bash", "train it.sh"], {})
    assert started("torch", told) == {"command": "bash 'train it.sh'", "directory": str(tmp_path)}
    assert exported(["python", "inner.py"], told) == told


@pytest.mark.parametrize("broken", ["", "[", "[1]", "7"])
def test_what_is_not_known_is_left_out(broken: str) -> None:
    assert started("torch", {VARIABLE: broken} if broken else {}) == {}


def test_the_launcher_that_names_a_side_is_kept_and_not_its_worker(tmp_path: Path) -> None:
    """As torchrun does: the outermost process whose command line has the module as a word."""
    command = [sys.executable, "-c", LAUNCHER, "-m", "align_hooks.torch_side", SAYS]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=True)
    facts = json.loads(done.stdout)
    assert facts["directory"] == str(tmp_path)
    assert facts["command"].startswith(f"{sys.executable} -c ") and "subprocess.run" in facts["command"]


def test_our_own_variables_on_the_command_line_are_no_part_of_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Behind ``env`` they would win over those that a printed command sets before it, and write over the record that is compared."""
    monkeypatch.chdir(tmp_path)
    command = ["env", "A=1", "ALIGN_HOOKS_RUN=/old", "python", "train.py", "--note=ALIGN_HOOKS_RUN=/old"]
    assert started("torch", exported(command, {}))["command"] == "env A=1 python train.py --note=ALIGN_HOOKS_RUN=/old"
