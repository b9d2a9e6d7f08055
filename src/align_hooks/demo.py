"""``align-hooks demo``: the main job on a CPU, from the files of ``launch/`` that the wheel holds too. Starts them, imports none."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

from align_hooks.errors import AlignHooksError

NEEDED = {
    "torch": "torch",
    "megatron": "torch",
    "mindspore": "mindspore",
    "mindformers": "mindspore",
    "jinja2": "html",
    "vl_convert": "html",
}
"""Modules that the demo's processes import, and the extra that brings each."""


def run_demo(directory: Path) -> int:
    """Run the demo in a directory; returns the worse exit code of its two comparisons.

    :raises AlignHooksError: something that it imports is not installed.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        extras = ",".join(sorted({NEEDED[name] for name in missing}))
        raise AlignHooksError(
            f"the demo trains with both frameworks, and {', '.join(missing)} is not installed here; pip install 'align-hooks[{extras}]'"
        )
    return subprocess.run([sys.executable, str(script()), str(directory)], check=False).returncode


def script() -> Path:
    """The demo's own script: beside this module in a wheel, in ``launch/`` of a checkout."""
    here = Path(__file__).resolve().parent
    inside = here / "examples" / "demo.py"
    return inside if inside.is_file() else here.parents[1] / "launch" / "demo.py"
