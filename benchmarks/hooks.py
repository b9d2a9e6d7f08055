"""How long a tool holds Megatron-LM's training thread: ``python benchmarks/hooks.py [--size NAME] [--msprobe PYTHON] [--json FILE]``.

A step's own time scatters by more than recording takes, on a CPU that others use as well. The time inside of a tool's functions does not.
What a writing thread does beside is not in it. Ours digest tokens and random states, read gradients, norms and state, and close a step. The
guide's is the one that it has pasted. msprobe's are those of its monitor v2, which works in every step and writes what was selected. Hooks
inside of the model, of activations and of msprobe's statistics, are not measured here.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))

import on_megatron
from rich.console import Console
from rich.table import Table
from way import SCRIPTS, Way, make_corpus

WARM = 4
"""First steps, which make what later ones use again."""


def held(way: Way, size: str, where: Path, python: str) -> dict[str, float]:
    """Milliseconds of a selected step and of another that are spent in a tool's functions, and those that a step takes; medians."""
    with tempfile.TemporaryDirectory(dir=where) as kept:
        timed = Path(kept) / "timed.json"
        script = SCRIPTS / (way.script or "timed_pretrain.py")
        steps = on_megatron.train(way, script, size, where, Path(kept), python, "cpu", {"TIMED": str(timed)})
        times = {int(step): 1e3 * seconds for step, seconds in json.loads(timed.read_text()).items()}
    # weights N, N even, are written when step N - 1 ends
    selected = [taken for step, taken in times.items() if step > WARM and step % 2 == 1]
    others = [taken for step, taken in times.items() if step > WARM and step % 2 == 0]
    return {"a selected step": median(selected), "another step": median(others), "a step": median(steps)}


def ways(*, with_msprobe: bool) -> list[Way]:
    """Those that record something at some steps, but those whose hooks are in the model: activations, and msprobe's statistics."""
    tools = (None, "monitor") if with_msprobe else (None,)
    untimed = ("alternating_pretrain.py", "debug_mode_pretrain.py")
    outside = [way for way in on_megatron.WAYS if "ACTIVATIONS" not in way.variables and way.script not in untimed]
    return [way for way in outside if way.selects and way.environment.get("MSPROBE") in tools]


def main() -> None:
    """Measure all ways, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=["small", "large"], help="only this model")
    parser.add_argument(
        "--msprobe", help="a Python that has msprobe and the frameworks; without it only our hooks and the guide's code are timed"
    )
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        make_corpus(where)
        for size in [options.size] if options.size else ["small", "large"]:
            for way in ways(with_msprobe=options.msprobe is not None):
                rows.append({"model": size, "way": way.name, **held(way, size, where, options.msprobe or sys.executable)})
                print(rows[-1], file=sys.stderr, flush=True)
    made = Table("model", "way", "held in a selected step", "in another", "a step takes")
    for row in rows:
        made.add_row(str(row["model"]), str(row["way"]), *(f"{row[key]:.2f} ms" for key in ("a selected step", "another step", "a step")))
    Console(width=150).print(made)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
