"""Processes that tests start: an environment of their own, and how they ended."""

import os
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

FOREIGN = ("ALIGN_HOOKS_", "_ALIGN_HOOKS_", "MASTER_", "MS_", "OMPI_", "TORCHELASTIC_", "SLURM_", "PYTHON")
LAUNCHER = {"RANK", "RANK_ID", "RANK_SIZE", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"}


@dataclass(frozen=True)
class Ended:
    """How a process ended. ``code`` is what a shell sees: 128 + the signal that killed it."""

    code: int
    out: str
    err: str


def scrubbed(*path: object, **more: str) -> dict[str, str]:
    """This environment without anything that a launcher, another run or a developer's shell left in it; ``path`` is first on PYTHONPATH."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN) and name not in LAUNCHER}
    places = os.pathsep.join([*map(str, path), *filter(None, [os.environ.get("PYTHONPATH")])])
    return kept | ({"PYTHONPATH": places} if places else {}) | {"PYTHONDONTWRITEBYTECODE": "1"} | more


def write(folder: Path, text: str, name: str = "script.py") -> Path:
    """Write a file, with its folder where that is missing."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text).lstrip("\n"), "utf-8")
    return path
