"""How long our hooks hold Megatron-LM's training thread: ``python benchmarks/hooks.py [--size NAME] [--json FILE]``.

A step's own time scatters by more than recording takes, on a CPU that others use as well. The time inside of our hooks does not. What the
writing thread does beside is not in it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))

import on_megatron
from rich.console import Console
from rich.table import Table
from way import LAUNCH, SCRIPTS, Way, run

WARM = 4
"""First steps, which make what later ones use again."""


def held(way: Way, size: str, where: Path) -> dict[str, float]:
    """Milliseconds of a selected step and of another that are spent in our hooks, and those that a step takes; medians."""
    steps = on_megatron.STEPS[size]
    asked = {"odd": f"1-{steps - 1}/2", "even": f"2-{steps}/2"}
    with tempfile.TemporaryDirectory(dir=where) as kept:
        variables = {f"ALIGN_HOOKS_{name}": asked.get(value, value) for name, value in way.variables.items()}
        variables |= {"ALIGN_HOOKS_RUN": f"{kept}/run", "ALIGN_HOOKS_DEVICE": "cpu", "OMP_NUM_THREADS": "1", "TIMED": f"{kept}/timed.json"}
        command = [sys.executable, "-m", "align_hooks.torch_side", str(SCRIPTS / "timed_pretrain.py"), *on_megatron.arguments(size, where)]
        output = run(command, variables, Path(kept))
        times = {int(step): 1e3 * seconds for step, seconds in json.loads(Path(f"{kept}/timed.json").read_text()).items()}
    # weights N, N even, are written when step N - 1 ends
    selected = [taken for step, taken in times.items() if step > WARM and step % 2 == 1]
    others = [taken for step, taken in times.items() if step > WARM and step % 2 == 0]
    return {"a selected step": median(selected), "another step": median(others), "a step": median(on_megatron.milliseconds(output))}


def main() -> None:
    """Measure all ways that record something at some steps, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=["small", "large"], help="only this model")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        subprocess.run([sys.executable, str(LAUNCH / "corpus.py"), str(where / "corpus")], check=True, stdout=subprocess.DEVNULL)
        for size in [options.size] if options.size else ["small", "large"]:
            for way in on_megatron.WAYS:
                if way.script is None and way.selects:
                    rows.append({"model": size, "way": way.name, **held(way, size, where)})
                    print(rows[-1], file=sys.stderr, flush=True)
    made = Table("model", "way", "in our hooks, a selected step", "another step", "a step takes")
    for row in rows:
        made.add_row(str(row["model"]), str(row["way"]), *(f"{row[key]:.2f} ms" for key in ("a selected step", "another step", "a step")))
    Console(width=150).print(made)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
