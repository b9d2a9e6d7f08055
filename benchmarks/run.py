"""What it costs: ``python benchmarks/run.py [--rounds N] [--framework NAME] [--size NAME] [--ways TEXT] [--msprobe PYTHON] [--json FILE]``.

The ways of :mod:`on_megatron` and :mod:`on_mindformers` train in turn, round after round. A table and a JSON file have what each costs;
what the numbers are is in :mod:`way`. ``--msprobe`` names a Python that has msprobe (mindstudio-probe) beside the frameworks.
``--device cuda`` trains on a GPU, without the rehearsal's replacements.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import on_megatron
import on_mindformers
from rich.console import Console
from rich.table import Table
from way import PLAIN, Measured, Way, disk_speed, make_corpus, row


def rounds_of(ways: Sequence[Way], count: int, measure: Callable[[Way], Measured]) -> list[dict[str, Measured]]:
    """Every way once a round, so that what else the machine does falls on all alike."""
    rounds = []
    for number in range(count):
        print(f"round {number + 1} of {count}", file=sys.stderr, flush=True)
        rounds.append({way.name: measure(way) for way in ways})
    return rounds


def table(rows: Sequence[dict[str, object]], disk: float) -> Table:
    """The rows, for a reader."""
    made = Table("model", "way", "a step", "a selected step to the one before", "all steps to the plain run's", "starts later", "on disk")
    for each in rows:
        step, selected, plain, start, size = (each[key] for key in ("step", "selected", "of plain", "start", "bytes"))
        chosen = f"{selected:.3f}" if selected is not None else "-"
        made.add_row(
            str(each["model"]), str(each["way"]), f"{1e3 * step:.1f} ms", chosen, f"{plain:.3f}", f"{start:+.1f} s", f"{size / 1e6:.1f} MB"
        )  # type: ignore[operator, str-format]
    made.caption = f"The disk takes {disk / 1e6:.0f} MB/s of one file, written and synced. {platform.machine()}, {platform.processor()}"
    return made


def main() -> int:
    """Train all ways in turn, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--framework", choices=["megatron", "mindformers", "pynative"], help="only these ways")
    parser.add_argument("--size", choices=["small", "large"], help="only this model")
    parser.add_argument("--ways", default="", help="only ways that have this in their name, or one of these, separated by commas")
    parser.add_argument("--msprobe", help="a Python that has msprobe and the frameworks; without it its ways are left out")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    options = parser.parse_args()
    sizes = [options.size] if options.size else ["small", "large"]
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        disk = disk_speed(where)
        make_corpus(where)
        on_mindformers.frameworks.places["corpus"] = where / "corpus"
        of_framework = {"megatron": on_megatron.WAYS, "mindformers": on_mindformers.WAYS, "pynative": on_mindformers.PYNATIVE}
        for framework, size in ((name, size) for name in of_framework for size in sizes):
            if options.framework not in (None, framework):
                continue
            can = [way for way in of_framework[framework] if options.msprobe or "MSPROBE" not in way.environment]
            ways = [way for way in can if way.name == PLAIN or any(part in way.name for part in options.ways.split(","))]
            if framework == "megatron":
                python = options.msprobe or sys.executable
                measure = partial(on_megatron.measure, size=size, where=where, python=python, device=options.device)
            else:
                family, kept = ("qwen3" if framework == "pynative" else on_mindformers.frameworks.LLAMA), where / f"{framework}_{size}"
                fed_by = on_mindformers.reference(size, kept, family)
                measure = partial(on_mindformers.measure, size=size, where=where, fed_by=fed_by, pynative=framework == "pynative")
            rounds = rounds_of(ways, options.rounds, measure)
            rows += [row(f"{framework}, {size}", way, rounds) for way in ways]
    Console(width=150).print(table(rows, disk))
    if options.json:
        options.json.write_text(json.dumps({"disk": disk, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
