"""Which starts of a process are those of one job: agents as real processes, Slurm by its variables."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from align_hooks.process import ranks as restarts
from align_hooks.process.ranks import is_restart, launchers
from started import scrubbed

WORKER = "import json, os; from align_hooks.process.ranks import launchers; print(json.dumps(launchers(os.environ)))"
AGENT = """
import os, subprocess, sys
for words in sys.argv[2:]:
    subprocess.run(["bash", "-c", words], env=os.environ | dict(mark.split("=") for mark in sys.argv[1].split()), check=True)
"""
PYTHON = f"{sys.executable} -c '{WORKER}'"
TWICE = f"{PYTHON}; {PYTHON}; true"
"""Two trainings of one script."""


def starts(mark: str, *commands: str) -> list[dict[str, int]]:
    """What workers know of their launchers: an agent hands variables to each command, one after another."""
    done = subprocess.run([sys.executable, "-c", AGENT, mark, *commands], env=scrubbed(), capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_an_agent_that_starts_its_workers_again_is_the_same_whatever_stands_between() -> None:
    shell_below_a_shell = f"bash -c '{PYTHON.replace(chr(39), chr(34))}; true'; true"
    first, second, third = starts("TORCHELASTIC_RUN_ID=none", PYTHON, f"{PYTHON}; true", shell_below_a_shell)
    assert first.keys() == second.keys() == third.keys() and len(first) == 1
    assert is_restart(first, second) and is_restart(second, third) and is_restart(first, third)
    assert not is_restart(second, first) and not is_restart(first, first)


def test_two_trainings_of_one_script_are_no_restarts_of_each_other() -> None:
    first, second, again, other = starts("TORCHELASTIC_RUN_ID=none", TWICE, TWICE)
    assert first == second and not is_restart(first, second)
    assert is_restart(first, again) and again == other


def test_jobs_of_one_id_are_two_jobs() -> None:
    (one,), (other,) = (starts("TORCHELASTIC_RUN_ID=none", PYTHON) for _ in range(2))
    assert one and other and not is_restart(one, other) and not is_restart(other, one)


def test_one_process_may_be_the_agent_of_two_jobs() -> None:
    first, second = starts("TORCHELASTIC_RUN_ID=none", PYTHON, f"export TORCHELASTIC_RUN_ID=other; exec {PYTHON}")
    assert first and not is_restart(first, second)


@pytest.mark.parametrize("mark", ["MS_ROLE=MS_WORKER", "RANK=0", "TORCHELASTIC_RUN_ID=none TORCHELASTIC_MAX_RESTARTS=0"])
def test_what_is_no_agent_starts_nothing_again(mark: str) -> None:
    """A script that sets MindSpore's variable is no msrun, and a notebook that launches is told to start nothing again: a user may run
    both twice."""
    assert starts(mark, PYTHON) == [{}]


def test_a_shell_that_exports_the_variable_is_no_agent() -> None:
    command = ["bash", "-c", f"export TORCHELASTIC_RUN_ID=none; {PYTHON}; true"]
    assert subprocess.run(command, env=scrubbed(), capture_output=True, text=True, check=True).stdout.strip() == "{}"


def test_msrun_is_an_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = {"environ": [b"PATH=/usr/bin"], "cmdline": [b"/usr/bin/python3", b"/usr/local/bin/msrun", b"--worker_num=2", b""]}
    monkeypatch.setattr(restarts, "words_of", lambda process, name: lines[name])
    (launcher,) = launchers({"MS_ROLE": "MS_WORKER"})
    assert launcher.startswith(f"process {os.getppid()} ")


def test_where_processes_are_hidden_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(process: int, name: str) -> list[bytes]:
        raise PermissionError(13, "Permission denied", str(Path("/proc") / str(process) / name))

    monkeypatch.setattr(restarts, "words_of", hidden)
    assert launchers({"TORCHELASTIC_RUN_ID": "none"}) == {}


SLURM = {"SLURM_JOB_ID": "77", "SLURM_CLUSTER_NAME": "a"}
AGAIN = SLURM | {"SLURM_RESTART_COUNT": "1"}


@pytest.mark.parametrize(
    ("earlier", "now", "same"),
    [
        (SLURM, AGAIN, True),
        (AGAIN, SLURM | {"SLURM_RESTART_COUNT": "2"}, True),
        (SLURM, SLURM, False),  # a second training of one batch file
        (SLURM | {"SLURM_STEP_ID": "0"}, AGAIN | {"SLURM_STEP_ID": "1"}, False),
        *(
            (SLURM, AGAIN | changed, False)
            for changed in ({"SLURM_JOB_ID": "78"}, {"SLURM_CLUSTER_NAME": "b"}, {"SLURM_RESTART_COUNT": "x"})
        ),
        ({}, AGAIN, False),
    ],
)
def test_slurm_says_by_its_count_that_a_job_was_queued_again(earlier: Mapping[str, str], now: Mapping[str, str], same: bool) -> None:
    assert is_restart(launchers(earlier), launchers(now)) is same
