"""Orderings of import, attach and undo, each in a fresh interpreter with a scrubbed environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

HERE = Path(__file__).parent
FOREIGN = ("ALIGN_HOOKS_", "_ALIGN_HOOKS_", "MASTER_", "MS_", "OMPI_", "TORCHELASTIC_", "SLURM_", "PYTHON")
LAUNCHER = {"RANK", "RANK_ID", "RANK_SIZE", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"}

Observe = Callable[..., Any]


def scrubbed() -> dict[str, str]:
    """This environment without anything that a launcher, another run or a developer's shell left in it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN) and name not in LAUNCHER}
    path = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return kept | {"PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def observe() -> Observe:
    """Run a snippet in a fresh interpreter and return what it left in ``seen``, by way of JSON."""

    def run(snippet: str, **environment: str) -> Any:
        program = f"from apparatus import *\n{dedent(snippet)}\nimport json\nprint('\\n' + json.dumps(seen))"
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env=scrubbed() | environment, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run
