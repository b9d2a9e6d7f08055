"""launch/presets and the scripts that apply them, with stand-ins for python, torchrun and msrun that print what they are given."""

import os
import subprocess
from pathlib import Path

import pytest

from align_hooks.settings import PREFIX, Settings
from synthetic import LAUNCH

PRESETS = sorted((LAUNCH / "presets").glob("*.env"))


def read(path: Path) -> dict[str, str]:
    """A preset as ``docker --env-file`` reads it: no quotes, no expansion."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_every_variable_is_known_and_they_compose(path: Path) -> None:
    values = read(path)
    assert values
    Settings.from_environment(values)
    assert not any(character in value for value in values.values() for character in "\"'$` "), "docker would take it literally, a shell not"
    assert all(name == name.strip() for name in values)


@pytest.mark.parametrize("path", [path for path in PRESETS if path.stem.endswith("_candidate")], ids=lambda path: path.stem)
def test_a_candidate_is_asked_for_what_its_reference_is(path: Path) -> None:
    feeds = {PREFIX + name for name in ("REPLAY_BATCHES", "LOAD_WEIGHTS", "INJECT_GRADIENTS")}
    candidate, reference = read(path), read(path.with_name(path.name.replace("_candidate", "_reference")))
    assert {name: value for name, value in candidate.items() if name not in feeds} == reference
    assert {f"{PREFIX}REPLAY_BATCHES", f"{PREFIX}LOAD_WEIGHTS"} <= candidate.keys()


def start(where: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a launch script whose python, torchrun and msrun print their arguments and environment, and end with 7."""
    fake = where / "bin"
    fake.mkdir(exist_ok=True)
    for name in ("python", "torchrun", "msrun"):
        (fake / name).write_text(f'#!/bin/sh\necho "{name} $*"; env | grep -E "ALIGN_HOOKS|MS_ASCEND|CUDA_DEV|MASTER_"; exit 7\n')
        (fake / name).chmod(0o755)
    clean = {"PATH": f"{fake}{os.pathsep}/usr/bin{os.pathsep}/bin"}
    script, *rest = command
    return subprocess.run([LAUNCH / script, *rest], env=clean | variables, cwd=where, capture_output=True, text=True, check=False)


def test_cpu_starts_the_side_that_is_named(tmp_path: Path) -> None:
    done = start(tmp_path, "cpu.sh", "ms", "step1_candidate", "train.py", "--config", "a b.yaml", RUN="runs/b", REFERENCE="runs/a b")
    assert done.returncode == 7, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "python -m align_hooks.ms_side train.py --config a b.yaml"
    assert {"ALIGN_HOOKS_RUN=runs/b", "ALIGN_HOOKS_REPLAY_BATCHES=runs/a b", "ALIGN_HOOKS_DEVICE=cpu"} <= set(lines)
    assert not [line for line in lines if line.startswith("MASTER_")]  # a rehearsal knows where it meets itself
    assert "launch: ALIGN_HOOKS_LOAD_WEIGHTS=runs/a b" in done.stderr


def test_torchrun_and_msrun_are_given_the_command(tmp_path: Path) -> None:
    done = start(tmp_path, "torchrun.sh", "optimizer_candidate", "pretrain_gpt.py", "--lr", "1", RUN="b", REFERENCE="a")
    assert done.stdout.splitlines()[0] == "torchrun -m align_hooks.torch_side pretrain_gpt.py --lr 1"
    assert {"ALIGN_HOOKS_INJECT_GRADIENTS=a@0-2", "CUDA_DEVICE_MAX_CONNECTIONS=1"} <= set(done.stdout.splitlines())
    done = start(tmp_path, "msrun.sh", "step1_reference", "run_mindformer.py", "--config", "x", RUN="b", WORKER_NUM="8", NODE_RANK="1")
    first = done.stdout.splitlines()[0]
    assert first.startswith("msrun --worker_num 8 --local_worker_num 8 ") and "--node_rank 1" in first
    assert first.endswith("python -m align_hooks.ms_side run_mindformer.py --config x")
    assert "MS_ASCEND_CHECK_OVERFLOW_MODE=INFNAN_MODE" in done.stdout


def test_a_variable_that_is_set_already_stays(tmp_path: Path) -> None:
    done = start(tmp_path, "torchrun.sh", "step1_reference", "x.py", RUN="b", ALIGN_HOOKS_GRADIENTS="0-4", ALIGN_HOOKS_DEVICE="cpu")
    assert "ALIGN_HOOKS_GRADIENTS=0-4" in done.stdout.splitlines()
    assert "ALIGN_HOOKS_WEIGHTS=0" in done.stdout.splitlines()


@pytest.mark.parametrize(
    ("command", "variables", "said"),
    [
        (["cpu.sh", "torch", "step1_reference"], {"RUN": "b"}, "usage:"),
        (["cpu.sh", "step1_reference", "x.py"], {"RUN": "b"}, "usage:"),
        (["torchrun.sh", "step2", "x.py"], {"RUN": "b"}, "no preset step2; there are: ascend_node benchmark_error"),
        (["torchrun.sh", "step1_reference", "x.py"], {}, "RUN=DIRECTORY"),
        (["msrun.sh", "step1_candidate", "x.py"], {"RUN": "b"}, "REFERENCE=DIRECTORY"),
    ],
)
def test_what_is_missing_is_said_in_one_line(tmp_path: Path, command: list[str], variables: dict[str, str], said: str) -> None:
    done = start(tmp_path, *command, **variables)
    assert done.returncode == 2
    assert said in done.stderr and done.stderr.startswith("launch: ") and done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_the_table_in_the_readme_names_every_preset() -> None:
    text = (LAUNCH / "README.md").read_text(encoding="utf-8")
    assert [path.stem for path in PRESETS if f"`{path.stem}`" not in text] == []
