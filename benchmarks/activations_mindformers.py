"""What a step of MindFormers costs whose activations are recorded: ``python benchmarks/activations_mindformers.py [--rounds N]``.

A graph in GRAPH_MODE is compiled once, with its points or without, and works in every step: so steps that are not selected cost too, and
are measured by a run whose one selected step is its first. Every way trains the same model on the same recorded batches in a process of
its own, and each is held against the plain run of its own round. Seconds are those that MindFormers prints for a step, the first two
left out, in which it compiles. All of it is a rehearsal on the CPU.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from real import frameworks
from zoo.run import corpus_in

STEPS, FIRST = 12, 2
SIZES: Mapping[str, Mapping[str, int]] = {
    "small: 8 layers of 64, 512 tokens": {"layers": 8, "hidden": 64, "intermediate": 128, "heads": 4},
    "large: 4 layers of 512, 512 tokens": {"layers": 4, "hidden": 512, "intermediate": 1408, "heads": 8},
}
WAYS: Mapping[str, Mapping[str, object]] = {
    "nothing recorded": {},
    "activations of the first step": {"ACTIVATIONS": "0"},
    "activations, all points": {"ACTIVATIONS": "all"},
    "activations, whole blocks": {"ACTIVATIONS": "all", "ACTIVATIONS_TENSORS": "model.layers.*[0-9]"},
}
"""What is recorded beside training."""


def batches(size: Mapping[str, int], where: Path) -> Path:
    """A run of Megatron-LM on a model of this size, with the batches and the weights that all ways start from."""
    change = {"--num-layers": size["layers"], "--hidden-size": size["hidden"], "--ffn-hidden-size": size["intermediate"]}
    change |= {"--num-attention-heads": size["heads"], "--train-iters": STEPS}
    texts = {flag: str(value) for flag, value in change.items()}
    frameworks.megatron(where, change=texts, RUN=where / "run", BATCHES="all", WEIGHTS="0").succeeded()
    return where / "run"


def seconds(way: str, size: Mapping[str, int], where: Path, reference: Path) -> float:
    """The median of a step."""
    of_model = {"num_layers": size["layers"], "hidden_size": size["hidden"], "intermediate_size": size["intermediate"]}
    of_model["num_heads"] = size["heads"]
    change = {f"model.model_config.{key}": value for key, value in of_model.items()} | {"lr_schedule.total_steps": STEPS}
    run = Path(tempfile.mkdtemp(dir=where))
    fed = {"RUN": run / "run", "REPLAY_BATCHES": reference, "LOAD_WEIGHTS": reference}
    done = frameworks.mindformers(run, change=change, **fed, **WAYS[way])
    done.succeeded()
    steps = [float(number) / 1000 for number in re.findall(r"per_step_time: (\d+)ms", done.output)]
    return median(steps[FIRST:])


def main() -> int:
    """Train all ways in turn, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    options = parser.parse_args()
    rows = []
    table = Table("model", "way", "a step, ms", "times plain", "of each round")
    with tempfile.TemporaryDirectory() as folder:
        corpus_in(Path(folder))
        for name, size in SIZES.items():
            reference = batches(size, Path(folder) / name.partition(":")[0])
            rounds = [{way: seconds(way, size, Path(folder), reference) for way in WAYS} for _ in range(options.rounds)]
            for way in WAYS:
                ratios = [each[way] / each["nothing recorded"] for each in rounds]
                rows.append({"model": name, "way": way, "seconds": median(each[way] for each in rounds), "ratios": ratios})
                numbers = f"{1e3 * median(each[way] for each in rounds):.0f}", f"{median(ratios):.2f}"
                table.add_row(name, way, *numbers, " ".join(f"{ratio:.2f}" for ratio in ratios))
    Console(width=120).print(table)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
