"""What a step costs whose activations are recorded: ``python benchmarks/activations.py [--rounds N] [--msprobe PYTHON] [--json FILE]``.

Every way trains the same model in a process of its own, the ways alternate, and each is held against the plain run of its own round: the
machine may be busy. Seconds are those that Megatron-LM prints for an iteration, the first two left out. ``--msprobe`` names a Python that
has msprobe (mindstudio-probe) beside the frameworks; without it those ways are left out. All of it is a rehearsal on the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
LAUNCH = ROOT / "launch"
STEPS, FIRST = 12, 2
SIZES: Mapping[str, Mapping[str, str]] = {
    "small: 8 layers of 64, 256 tokens": {"--num-layers": "8"},
    "large: 4 layers of 512, 1024 tokens": {
        "--num-layers": "4",
        "--hidden-size": "512",
        "--ffn-hidden-size": "1408",
        "--num-attention-heads": "8",
        "--seq-length": "512",
        "--max-position-embeddings": "512",
    },
}
"""Models: one where calls dominate, as on a fast device, and one where arithmetic does."""
WAYS: Mapping[str, Mapping[str, str]] = {
    "nothing recorded": {},
    "activations of no step": {"ALIGN_HOOKS_ACTIVATIONS": "999"},
    "activations, all points": {"ALIGN_HOOKS_ACTIVATIONS": "all"},
    "activations, whole blocks": {"ALIGN_HOOKS_ACTIVATIONS": "all", "ALIGN_HOOKS_ACTIVATIONS_TENSORS": "model.layers.*[0-9]"},
    "msprobe L0": {"MSPROBE_LEVEL": "L0"},
    "msprobe L1": {"MSPROBE_LEVEL": "L1"},
    "msprobe mix": {"MSPROBE_LEVEL": "mix"},
}
"""What is done beside training, as variables."""


def arguments(size: Mapping[str, str], where: Path) -> list[str]:
    """Megatron-LM's arguments for a model."""
    lines = dict(line.partition(" ")[::2] for line in (LAUNCH / "llama.args").read_text().splitlines())
    lines |= {**size, "--train-iters": str(STEPS), "--micro-batch-size": "2", "--global-batch-size": "2"}
    lines |= {"--data-path": str(where / "corpus"), "--data-cache-path": str(where / "cache")}
    return [word for flag, value in lines.items() for word in (flag, *value.split())]


def seconds(way: str, size: Mapping[str, str], where: Path, msprobe: str | None) -> tuple[float, int]:
    """The median of an iteration, and the bytes that a way left."""
    kept = Path(tempfile.mkdtemp(dir=where))
    variables = {"ALIGN_HOOKS_DEVICE": "cpu", "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", **WAYS[way]}
    script, python = LAUNCH / "pretrain_gpt.py", sys.executable
    if "MSPROBE_LEVEL" in WAYS[way]:
        script, python = ROOT / "benchmarks" / "msprobe_pretrain.py", msprobe or ""
        variables["MSPROBE_DUMP"] = str(kept)
    elif WAYS[way]:
        variables["ALIGN_HOOKS_RUN"] = str(kept / "run")
        if WAYS[way]["ALIGN_HOOKS_ACTIVATIONS"] == "999":
            variables["ALIGN_HOOKS_ACTIVATIONS"] = "none"
    command = [python, "-m", "align_hooks.torch_side", str(script), *arguments(size, where)]
    done = subprocess.run(command, env=os.environ | variables, cwd=kept, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        raise SystemExit(f"{way}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-2000:]}")
    steps = [float(number) / 1000 for number in re.findall(r"elapsed time per iteration \(ms\): ([\d.]+)", done.stdout)]
    return median(steps[FIRST:]), sum(path.stat().st_size for path in kept.rglob("*") if path.is_file())


def main() -> int:
    """Train all ways in turn, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--msprobe", help="a Python that has msprobe and the frameworks")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    options = parser.parse_args()
    ways = [way for way in WAYS if options.msprobe or "MSPROBE_LEVEL" not in WAYS[way]]
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        subprocess.run([sys.executable, str(LAUNCH / "corpus.py"), str(where / "corpus")], check=True, stdout=subprocess.DEVNULL)
        for name, size in SIZES.items():
            rounds = [{way: seconds(way, size, where, options.msprobe) for way in ways} for _ in range(options.rounds)]
            for way in ways:
                ratios = [each[way][0] / each[ways[0]][0] for each in rounds]
                row = {"model": name, "way": way, "seconds": median(each[way][0] for each in rounds), "ratio": median(ratios)}
                rows.append({**row, "ratios": ratios, "bytes": rounds[0][way][1]})
    table = Table("model", "way", "a step, ms", "times plain", "of each round", "MB left")
    for row in rows:
        each = " ".join(f"{ratio:.2f}" for ratio in row["ratios"])  # type: ignore[attr-defined]
        table.add_row(
            str(row["model"]), str(row["way"]), f"{1e3 * row['seconds']:.1f}", f"{row['ratio']:.2f}", each, f"{row['bytes'] / 1e6:.1f}"
        )  # type: ignore[operator]
    Console(width=130).print(table)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
