"""Long runs of Megatron-LM on a CPU, honest and faulty, to measure what a judge of long runs says of them.

``python tests/longrun/train.py FOLDER [--steps N] [--repeats N] [--workers N]`` trains a reference in bfloat16, repeats of it whose every
weight is moved by one rounding, and one run a fault. A run that is there is not trained again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from real import frameworks

SCRIPT = Path(__file__).parent / "planted_longrun.py"


@dataclass(frozen=True)
class Long:
    """A run: its name, the flags that it changes, the fault that is planted in it, and its seed of rounding; 0 moves nothing."""

    name: str
    flags: dict[str, str] = field(default_factory=dict)
    fault: str = ""
    perturb: int = 0


FAULTS = (
    Long("beta2", {"--adam-beta2": "0.951"}, perturb=101),
    Long("beta2_far", {"--adam-beta2": "0.96"}, perturb=106),
    Long("eps", {"--adam-eps": "1e-6"}, perturb=102),
    Long("embedding_undecayed", fault="embedding_undecayed", perturb=103),
    Long("bad_batch", fault="bad_batch", perturb=104),
    Long("rate", {"--lr": "1.02e-3", "--min-lr": "1.02e-3"}, perturb=105),
)
"""Faults that single steps hide."""


def runs(repeats: int) -> Iterator[Long]:
    """The repeats, then the faults."""
    yield from (Long(f"repeat_{number}", perturb=number) for number in range(1, repeats + 1))
    yield from FAULTS


def train(where: Path, one: Long, steps: int) -> None:
    """Train a run from the reference's weights, where it was not trained before."""
    if (where / one.name / "done").exists():
        return
    flags = {"--train-iters": str(steps), "--bf16": "", "--no-gradient-accumulation-fusion": ""} | one.flags
    variables: dict[str, object] = {"RUN": where / one.name / "run", "LOCAL_NORMS": "all", "RUN_EXISTS": "replace"}
    if one.name == "reference":
        variables |= {"WEIGHTS": "0", "BATCHES": "all"}
    else:
        variables |= {"LOAD_WEIGHTS": where / "reference/run", "PERTURB": one.perturb or None}
    fault = {"script": SCRIPT, "environment": {"PLANTED": one.fault}} if one.fault else {}
    frameworks.megatron(where / one.name, change=flags, **variables, **fault).succeeded()
    (where / one.name / "done").touch()


def main() -> None:
    """Train everything that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    corpus = asked.folder / "corpus"
    if not corpus.with_suffix(".bin").exists():
        subprocess.run([sys.executable, str(frameworks.LAUNCH / "corpus.py"), str(corpus)], check=True, stdout=subprocess.DEVNULL)
    frameworks._corpus[:] = [corpus]
    train(asked.folder, Long("reference"), asked.steps)
    with ThreadPoolExecutor(asked.workers) as pool:
        for _ in pool.map(lambda one: train(asked.folder, one, asked.steps), runs(asked.repeats)):
            pass


if __name__ == "__main__":
    main()
