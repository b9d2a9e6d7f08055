"""What recording asks of a device: ``python benchmarks/profiled.py [--device cpu] [--size NAME] [--json FILE]``, for a GPU unless told.

Torch's profiler counts what runs in every step: kernels and their time on the device, transfers to the host, and the operators that launch
them. A selected step less the one before it is what recording adds. ``--device cpu`` has operators alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))

import on_megatron
import torch
from hooks import WARM
from rich.console import Console
from rich.table import Table
from way import SCRIPTS, Way, make_corpus

KINDS = ("operators", "kernels", "microseconds", "transfers")


def added(way: Way, size: str, where: Path, device: str) -> dict[str, float]:
    """By kind the median of what selected steps have more than the steps before them."""
    with tempfile.TemporaryDirectory(dir=where) as kept:
        profiled = Path(kept) / "profiled.json"
        script = SCRIPTS / "profiled_pretrain.py"
        on_megatron.train(way, script, size, where, Path(kept), sys.executable, device, {"PROFILED": str(profiled)})
        return more({int(step): counts for step, counts in json.loads(profiled.read_text()).items()})


def more(steps: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
    """The same of the counts of steps, of which those of odd number are selected; the first are left out."""
    selected = [step for step in steps if step > WARM and step % 2 == 1]
    return {kind: median(steps[step].get(kind, 0) - steps[step - 1].get(kind, 0) for step in selected) for kind in KINDS}


def main() -> None:
    """Train every way of ours, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--size", choices=["small", "large"], default="large")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("torch sees no GPU here; --device cpu counts operators alone")
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        make_corpus(where)
        for way in on_megatron.WAYS:
            if way.script is None and way.selects:
                rows.append({"way": way.name, **added(way, options.size, where, options.device)})
                print(rows[-1], file=sys.stderr, flush=True)
    made = Table("way", *KINDS)
    for row in rows:
        made.add_row(*map(str, row.values()))
    Console(width=150).print(made)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
