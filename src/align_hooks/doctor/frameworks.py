"""Both frameworks as a run would get them: a child process a side imports them and tells."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from align_hooks.configuration.values import FRAMEWORKS
from align_hooks.doctor.seams import ABSENT, FOUND, LACKING, MARK, UNFIT

WHOLE = {"torch": "megatron-core", "ms": "mindformers"}
"""The package of each side that trains; the other one is what it stands on."""
LONGEST = 600
"""Seconds that importing a framework may take, from a cold network disk say."""


@dataclass(frozen=True, slots=True)
class Framework:
    """One side: its packages by name with ``version``, ``place`` and ``why`` they cannot be imported, its hooks as
    :func:`align_hooks.doctor.seams.seams` tells them, the accelerators it sees, and what went wrong with the child itself."""

    side: str
    packages: Mapping[str, Mapping[str, str]]
    hooks: Sequence[Mapping[str, Any]]
    devices: Sequence[Mapping[str, Any]]
    problem: str = ""

    @property
    def title(self) -> str:
        """The framework's name."""
        return FRAMEWORKS[self.side]

    @property
    def installed(self) -> bool:
        """Whether what trains is there at all, whole or not."""
        held = self.packages.get(WHOLE[self.side], {})
        return bool(self.problem or held.get("version") or held.get("why"))

    @property
    def problems(self) -> list[str]:
        """Why a run of this side would not start, one line each; empty where it would."""
        if self.problem:
            return [self.problem]
        broken = [f"{name}: {one['why']}" for name, one in self.packages.items() if one["why"]]
        missing = [f"{name} is not installed" for name, one in self.packages.items() if not one["version"] and not one["why"]]
        if broken or missing:
            return [f"{self.title}: {one}" for one in (*broken, *missing)]
        return list(dict.fromkeys(self._of_hooks()))

    def _of_hooks(self) -> list[str]:
        ends = [hook for hook in self.hooks if hook["asked"] and (hook["needed"] or hook["state"] in (LACKING, UNFIT))]
        bad = [hook for hook in ends if hook["state"] != FOUND]
        if self.side == "torch" and any(hook["why"] == "no module megatron.training" for hook in bad):
            version = self.packages["megatron-core"]["version"]
            return [
                f"megatron-core {version} comes without megatron.training; name the script of a Megatron-LM checkout, "
                f"align-hooks doctor Megatron-LM/pretrain_gpt.py, or put the checkout on PYTHONPATH"
            ]
        return [_of_hook(hook) for hook in bad]

    @property
    def fitting(self) -> list[str]:
        """Names of the hooks whose seams are there."""
        return [hook["name"] for hook in self.hooks if hook["state"] == FOUND]

    @property
    def elsewhere(self) -> list[str]:
        """Names of the hooks that this version needs not, as it has no such seam."""
        return [hook["name"] for hook in self.hooks if not hook["needed"] and hook["state"] == ABSENT]


def _of_hook(hook: Mapping[str, Any]) -> str:
    if hook["state"] == UNFIT:  # the same of every hook on that package
        return re.sub(r"^hook '\w+' was", f"{hook['supports'].partition(' ')[0]}: hooks were", hook["why"])
    return hook["why"] if hook["state"] == LACKING else f"hook {hook['name']!r}: {hook['seam']} is {hook['state']} ({hook['why']})"


def look(python: str, script: Path | None, environment: Mapping[str, str]) -> list[Framework]:
    """Both sides, looked at side by side with the interpreter ``python``, as ``script`` would import them, or else one that lies here.

    The children work in a folder of their own: MindFormers writes its logs wherever it is imported.
    """
    folder = (script.parent if script is not None else Path()).resolve()
    paths = [os.path.abspath(one) for one in environment.get("PYTHONPATH", "").split(os.pathsep) if one]  # noqa: PTH100 (it may be no file)
    seen = {**environment, "PYTHONPATH": os.pathsep.join(paths)}
    with tempfile.TemporaryDirectory(prefix="align_hooks.") as place:
        children = {side: _start([python, "-m", "align_hooks.doctor.seams", side, str(folder)], seen, place) for side in FRAMEWORKS}
        return [_told(side, python, child) for side, child in children.items()]


def _start(command: Sequence[str], environment: Mapping[str, str], place: str) -> subprocess.Popen[str] | OSError:
    options: dict[str, Any] = {"text": True, "encoding": "utf-8", "errors": "replace", "cwd": place}
    try:
        return subprocess.Popen(command, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    except OSError as error:
        return error


def _told(side: str, python: str, child: subprocess.Popen[str] | OSError) -> Framework:
    if isinstance(child, OSError):
        return Framework(side, {}, (), (), f"{FRAMEWORKS[side]}: the interpreter cannot be started: {child.strerror or child}")
    try:
        out, err = child.communicate(timeout=LONGEST)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        return Framework(side, {}, (), (), f"{FRAMEWORKS[side]}: importing it does not end in {LONGEST} s")
    line = next((line for line in reversed(out.splitlines()) if line.startswith(MARK)), None)
    if line is None:
        last = (err.strip().splitlines() or [f"no word, exit code {child.returncode}"])[-1]
        if re.search(r"No module named '?align_hooks", last):
            return Framework(side, {}, (), (), f"{python} has no align_hooks; {python} -m pip install align-hooks")
        return Framework(side, {}, (), (), f"{FRAMEWORKS[side]}: looking at it ended with {last}")
    found = json.loads(line.removeprefix(MARK))
    return Framework(side, found["packages"], found["hooks"], found["devices"])
