"""``align-hooks demo``: starts the files of ``launch/``, which the wheel holds too, and imports none."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Annotated

from align_hooks.cli.application import Option, Positional, app
from align_hooks.cli.files import place_of
from align_hooks.errors import AlignHooksError
from align_hooks.extras import installing

NEEDED = {"torch": ("torch", "megatron"), "mindspore": ("mindspore", "mindformers"), "html": ("jinja2", "vl_convert")}
"""Modules that the demo's processes import, by the extra that brings them."""


def script() -> Path:
    """Return the path of the demo's script: in a wheel, or in ``launch/`` of a checkout."""
    package = Path(__file__).resolve().parents[1]
    packed = package / "examples" / "demo.py"
    return packed if packed.is_file() else package.parents[1] / "launch" / "demo.py"


@app.command
def demo(
    directory: Annotated[Path, Positional(help="where to record; an earlier demo there is made again")] = Path("align_hooks_demo"),
    family: Annotated[str, Option(help="the model: llama, qwen2, qwen3, qwen3_moe, deepseek_v3, deepseek_v3_mtp")] = "",
    trainer: Annotated[str, Option(help="MindFormers' trainer: graph, or from 2.0 on pynative")] = "graph",
) -> None:
    """Record, replay and compare a small model on a CPU.

    Megatron-LM records, MindFormers replays, in about a minute. Both must be installed.

    Exit codes: those of compare, the worse of two; 2 usage, 3 a run failed.

    Example: align-hooks demo --family qwen3 --trainer pynative
    """
    place = place_of(directory)
    missing = {module: extra for extra, modules in NEEDED.items() for module in modules if importlib.util.find_spec(module) is None}
    if missing:
        command = installing(*sorted(set(missing.values())))
        raise AlignHooksError(f"the demo trains with both frameworks, and {', '.join(missing)} is not installed here; {command}")
    done = subprocess.run([sys.executable, str(script()), str(place), family, trainer], check=False)
    raise SystemExit(done.returncode)
