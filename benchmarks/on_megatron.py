"""Megatron-LM's ways: ours, the guide's pasted code, torch's DebugMode and msprobe, on the model of ``launch/llama.args`` in two sizes."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from way import LAUNCH, PLAIN, ROOT, SCRIPTS, Measured, Way, left, run

sys.path.insert(0, str(ROOT / "tests"))

from real import frameworks

STEPS: Mapping[str, int] = {"small": 61, "large": 25}
SIZES: Mapping[str, Mapping[str, str]] = {
    "small": {"--num-layers": "8", "--seq-length": "16", "--max-position-embeddings": "16"},
    "large": {
        "--num-layers": "8",
        "--hidden-size": "512",
        "--ffn-hidden-size": "1408",
        "--num-attention-heads": "8",
        "--seq-length": "512",
        "--max-position-embeddings": "512",
    },
}
"""A model where calls dominate, as they do on a fast device (hidden size 64, 16 tokens), and one where arithmetic does (512, 512)."""
WAYS = (
    Way(PLAIN, selects=False),
    Way("attached, nothing selected", {"LOCAL_NORMS": "none", "SKETCHES": "none"}, selects=False),
    Way("scalars", {"RUN": ""}, selects=False),
    Way("scalars, in every second step", {"RUN": ""}, script="alternating_pretrain.py"),
    Way("norms", {"RUN": "", "LOCAL_NORMS": "odd"}),
    Way("norms and sketches", {"RUN": "", "LOCAL_NORMS": "odd", "SKETCHES": "odd"}),
    Way("gradients", {"RUN": "", "GRADIENTS": "odd"}),
    Way("weights", {"RUN": "", "WEIGHTS": "even"}),
    Way("activations", {"RUN": "", "ACTIVATIONS": "odd"}),
    Way("the guide: norms", environment={"GUIDE": "norms"}, script="guide_pretrain.py"),
    Way("the guide: gradients", environment={"GUIDE": "gradients"}, script="guide_pretrain.py"),
    Way("torch's DebugMode", script="debug_mode_pretrain.py"),
    Way("msprobe monitor v2: norms", environment={"MSPROBE": "monitor"}, script="msprobe_pretrain.py"),
    Way("msprobe statistics L0", environment={"MSPROBE": "L0"}, script="msprobe_pretrain.py"),
    Way("msprobe statistics L1", environment={"MSPROBE": "L1"}, script="msprobe_pretrain.py"),
    Way("msprobe statistics mix", environment={"MSPROBE": "mix"}, script="msprobe_pretrain.py"),
)


def arguments(size: str, where: Path, device: str) -> list[str]:
    """Megatron-LM's arguments for a model."""
    lines = dict(line.partition(" ")[::2] for line in (LAUNCH / "llama.args").read_text().splitlines())
    lines |= {**SIZES[size], "--train-iters": str(STEPS[size]), "--micro-batch-size": "1", "--global-batch-size": "1"}
    lines |= {"--data-path": str(where / "corpus"), "--data-cache-path": str(where / f"cache_{size}")}
    lines |= {"--distributed-backend": "nccl"} if device == "cuda" else {}
    return [word for flag, value in lines.items() for word in (flag, *value.split())]


def measure(way: Way, size: str, where: Path, python: str, device: str) -> Measured:
    """Train once. Seconds are those that Megatron-LM prints for an iteration."""
    with tempfile.TemporaryDirectory(dir=where) as kept:
        script = SCRIPTS / way.script if way.script else LAUNCH / "pretrain_gpt.py"
        seconds = [each / 1000 for each in train(way, script, size, where, Path(kept), python, device)]
        return Measured(seconds[1:], seconds[0], left(Path(kept)))


def train(
    way: Way, script: Path, size: str, where: Path, kept: Path, python: str, device: str, environment: Mapping[str, str] | None = None
) -> list[float]:
    """Train a script in a way, and keep what it writes; the milliseconds of every step."""
    steps = STEPS[size]
    asked = {"odd": f"1-{steps - 1}/2", "even": f"2-{steps}/2"}
    variables = {f"ALIGN_HOOKS_{name}": asked.get(value, value) for name, value in way.variables.items()}
    if "RUN" in way.variables:
        variables["ALIGN_HOOKS_RUN"] = f"{kept}/run"
    variables |= {"ALIGN_HOOKS_DEVICE": "cpu"} if device == "cpu" else frameworks.one_rank()
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables |= {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OUT": str(kept), "BENCHMARK_STEPS": str(steps)}
    command = [python if way.script else sys.executable, "-m", "align_hooks.torch_side", str(script), *arguments(size, where, device)]
    return milliseconds(run(command, variables | dict(way.environment) | dict(environment or {}), kept))


def milliseconds(output: str) -> list[float]:
    """What Megatron-LM prints for each iteration."""
    return [float(number) for number in re.findall(r"elapsed time per iteration \(ms\): ([\d.]+)", output)]
