"""One training in a process and a folder of its own, as both halves of the matrix set it up. Knows no framework."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from checkout import Failed, last_line

from align_hooks.quantities.registry import KINDS
from align_hooks.quantities.routing import ROUTING

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "matrix"
LAUNCH = ROOT / "launch"
WITNESSES = ROOT / "tests" / "real" / "scripts"
STEPS = 4
TIMEOUT = 900
"""Seconds, of any one program."""

SWITCHES = {"DEVICE": "cpu", "SEED": "42", "DETERMINISTIC": "1", "RUN_EXISTS": "replace"}
STORED = tuple(kind for kind in KINDS if kind.sketch_of is None and kind is not ROUTING)
"""All that a model without experts records as it is."""
EVERYTHING = {kind.variable.upper(): "all" for kind in STORED if kind.switch is not None}


def run(command: Sequence[object], where: Path, environment: Mapping[str, str]) -> None:
    """Run a program with its output in ``where/log``; raises Failed with its last line."""
    if code := ended(command, where, environment):
        raise Failed(f"{where.name} ended with {code}: {last_line((where / 'log').read_text())}")


def ended(command: Sequence[object], where: Path, environment: Mapping[str, str]) -> int:
    """The exit code of a program, its output in ``where/log``."""
    where.mkdir(parents=True, exist_ok=True)
    with (where / "log").open("w") as log:
        options: dict[str, object] = {"stdout": log, "stderr": subprocess.STDOUT, "timeout": TIMEOUT, "check": False}
        return subprocess.run(list(map(str, command)), cwd=where, env=dict(environment), **options).returncode


def hooked(variables: Mapping[str, object]) -> dict[str, str]:
    """The environment of a training on one rank with these ``ALIGN_HOOKS_*`` variables, which are named without the prefix."""
    return clean() | {f"ALIGN_HOOKS_{name}": str(value) for name, value in (SWITCHES | dict(variables)).items()}


def clean() -> dict[str, str]:
    """The environment without anything of ours, and with this very source of ours."""
    foreign = {
        name: value for name, value in os.environ.items() if not name.startswith(("ALIGN_HOOKS_", "_ALIGN_HOOKS_", "PYTHONHASHSEED"))
    }
    return foreign | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
