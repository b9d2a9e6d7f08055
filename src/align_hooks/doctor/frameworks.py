"""The frameworks as a run would import them, each reported by a child process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct, field

from align_hooks.configuration.values import FRAMEWORKS
from align_hooks.doctor.patch_points import ABSENT, FOUND, LACKING, MARK, UNFIT, Device, HookStatus, Package

WHOLE = {"torch": "megatron-core", "ms": "mindformers"}
"""The package of each side that trains; the side's other package is its base."""
LONGEST = 600
"""Seconds that importing a framework may take; a network disk may be cold."""


class Framework(Struct, frozen=True):
    """The framework of one side."""

    side: str
    packages: Mapping[str, Package] = field(default_factory=dict)
    hooks: Sequence[HookStatus] = ()
    devices: Sequence[Device] = ()
    problem: str = ""
    """The failure of the child process; empty where it reported."""
    uncompiled: Sequence[str] = ()
    """The folder of Megatron-LM's data helper and the tools that its compilation lacks; empty where it is compiled."""
    prefix: str = ""
    """Where the interpreter's environment lies; empty where the child process failed."""

    @property
    def title(self) -> str:
        """The framework's name."""
        return FRAMEWORKS[self.side]

    @property
    def installed(self) -> bool:
        """Whether the package that trains is there, even if it cannot be imported."""
        package = self.packages.get(WHOLE[self.side])
        return bool(self.problem or (package and (package["version"] or package["why"])))

    @property
    def problems(self) -> list[str]:
        """Why a run of this side would not start, a line each; empty where it would."""
        if self.problem:
            return [self.problem]
        packages = self.packages.items()
        broken = [f"{name}: {package['why']}" for name, package in packages if package["why"]]
        missing = [f"{name} is not installed" for name, package in packages if not package["version"] and not package["why"]]
        if broken or missing:
            return [f"{self.title}: {problem}" for problem in (*broken, *missing)]
        needed = [hook for hook in self.hooks if hook["asked"] and (hook["needed"] or hook["state"] in (LACKING, UNFIT))]
        bad = [hook for hook in needed if hook["state"] != FOUND]
        problems = [_of_hook(hook) for hook in bad]
        if self.side == "torch" and any(hook["why"] == "no module megatron.training" for hook in bad):
            version = self.packages["megatron-core"]["version"]
            problems = [
                f"megatron-core {version} comes without megatron.training; name the script of a Megatron-LM checkout, "
                f"align-hooks doctor Megatron-LM/pretrain_gpt.py, or put the checkout on PYTHONPATH"
            ]
        folder, *lacking = self.uncompiled or ("",)
        if lacking:
            problems.append(
                f"{self.title}: its data helper (helpers_cpp) is not compiled, and {', '.join(lacking)}, by which training compiles it, "
                f"is not here; install that, then make -C {folder}"
            )
        return list(dict.fromkeys(problems))

    @property
    def fitting(self) -> list[str]:
        """Names of the hooks whose patch points are there."""
        return [hook["name"] for hook in self.hooks if hook["state"] == FOUND]

    @property
    def elsewhere(self) -> list[str]:
        """Names of the hooks that this version does not need, as it has no such patch point."""
        return [hook["name"] for hook in self.hooks if not hook["needed"] and hook["state"] == ABSENT]


def _of_hook(hook: HookStatus) -> str:
    if hook["state"] == UNFIT:  # the same line for every hook on that package
        return re.sub(r"^hook '\w+' was", f"{hook['supports'].partition(' ')[0]}: hooks were", hook["why"])
    return hook["why"] if hook["state"] == LACKING else f"hook {hook['name']!r}: {hook['patch_point']} is {hook['state']} ({hook['why']})"


def inspect(
    python: str, script: Path | None, environment: Mapping[str, str], sides: Iterable[str] = FRAMEWORKS, trainer: str = ""
) -> list[Framework]:
    """Return the frameworks of these sides as the interpreter ``python`` imports them for ``script``, or for a script in this folder.

    ``trainer`` is the framework's that will run; empty for the usual one."""
    folder = (script.parent if script is not None else Path()).resolve()
    paths = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    absolute = {**environment, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, paths))}  # as strings: a path may be no file
    # MindFormers writes its logs wherever it is imported
    with tempfile.TemporaryDirectory(prefix="align_hooks.") as place, ThreadPoolExecutor() as threads:
        return list(threads.map(lambda side: _report(side, python, [str(folder), trainer], absolute, place), sides))


def _report(side: str, python: str, asked: Sequence[str], environment: Mapping[str, str], place: str) -> Framework:
    command = [python, "-m", "align_hooks.doctor.patch_points", side, *asked]
    try:
        done = subprocess.run(
            command, env=environment, cwd=place, capture_output=True, encoding="utf-8", errors="replace", timeout=LONGEST, check=False
        )
    except OSError as error:
        return Framework(side, problem=f"{FRAMEWORKS[side]}: the interpreter cannot be started: {error.strerror or error}")
    except subprocess.TimeoutExpired:
        return Framework(side, problem=f"{FRAMEWORKS[side]}: importing it does not end in {LONGEST} s")
    line = next((line for line in reversed(done.stdout.splitlines()) if line.startswith(MARK)), None)
    if line is None:
        last = (done.stderr.strip().splitlines() or [f"no word, exit code {done.returncode}"])[-1]
        if re.search(r"No module named '?align_hooks", last):
            return Framework(side, problem=f"{python} has no align_hooks: install it there too, as it was here")
        return Framework(side, problem=f"{FRAMEWORKS[side]}: looking at it ended with {last}")
    return Framework(side, **json.loads(line.removeprefix(MARK)))
