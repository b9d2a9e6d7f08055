"""Orderings of import, attach and undo, each in a fresh interpreter with a scrubbed environment."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from started import scrubbed

Observe = Callable[..., Any]


def in_either_order(module: str = "stand_in.seams", attach: str = "attach(hooks, session)") -> pytest.MarkDecorator:
    """A test of an ``order``: hooks are attached before a module is imported, or afterwards."""
    orders = [f"{attach}; import {module}", f"import {module}; {attach}"]
    return pytest.mark.parametrize("order", orders, ids=["attach, import", "import, attach"])


@pytest.fixture
def observe() -> Observe:
    """Run a snippet in a fresh interpreter and return what it left in ``seen``, by way of JSON."""

    def run(snippet: str, **environment: str) -> Any:
        program = f"from apparatus import *\n{dedent(snippet)}\nimport json\nprint('\\n' + json.dumps(seen))"
        clean = scrubbed(Path(__file__).parent, **environment)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=clean, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run
