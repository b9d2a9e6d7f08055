"""What is measured: a way to train a model, what it writes, and how long its steps take.

Every way trains in a process of its own and does what it does in steps of odd number. Two ratios come of it, since a machine may be busy:
that of each selected step to the step before it, in which nothing is done; and that of the mean of all steps to the mean of the plain run
of the same round, which also has what is left to do after a selected step.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median

ROOT = Path(__file__).resolve().parents[1]
LAUNCH, SCRIPTS = ROOT / "launch", ROOT / "benchmarks" / "scripts"
PLAIN = "nothing attached"
"""The way that all others are held against."""


@dataclass(frozen=True)
class Way:
    """``variables`` select what is recorded, ``ALIGN_HOOKS_*`` without the prefix; ``script`` is another tool's, of the folder of scripts.
    ``change`` are settings of MindFormers' YAML. ``selects`` is whether steps of odd number do more than others."""

    name: str
    variables: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    change: Mapping[str, object] = field(default_factory=dict)
    script: str | None = None
    selects: bool = True


@dataclass(frozen=True)
class Measured:
    """The ``seconds`` of each step, the first left out; those until the first step ended; and the ``bytes`` that the way left on disk."""

    seconds: Sequence[float]
    before: float
    bytes: int

    @property
    def pairs(self) -> list[float]:
        """Each selected step to the step before it. The first of ``seconds`` is selected and has none."""
        return [self.seconds[index] / self.seconds[index - 1] for index in range(2, len(self.seconds), 2)]


def run(command: Sequence[str], variables: Mapping[str, str], cwd: Path) -> str:
    """What a command printed; raises SystemExit where it failed."""
    done = subprocess.run(command, env=os.environ | dict(variables), cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout + done.stderr


def make_corpus(folder: Path) -> None:
    """The text of every way's data set, as ``corpus`` of a folder."""
    subprocess.run([sys.executable, str(LAUNCH / "corpus.py"), str(folder / "corpus")], check=True, stdout=subprocess.DEVNULL)


def left(folder: Path) -> int:
    """The bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def disk_speed(folder: Path, size: int = 1 << 28) -> float:
    """Bytes a second of one file that is written and synced, of random content; the median of three."""
    content, rates = os.urandom(size), []
    for _ in range(3):
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            started = time.perf_counter()
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            rates.append(size / (time.perf_counter() - started))
    return median(rates)


def row(model: str, way: Way, rounds: Sequence[Mapping[str, Measured]]) -> dict[str, object]:
    """The numbers of a way over all rounds."""
    here, plain = ([each[name] for each in rounds] for name in (way.name, PLAIN))
    against = [mean(one.seconds[1:]) / mean(other.seconds[1:]) for one, other in zip(here, plain, strict=True)]
    pairs = [ratio for one in here for ratio in one.pairs] if way.selects else []
    return {
        "model": model,
        "way": way.name,
        "step": median(mean(one.seconds[1:]) for one in here),
        "selected": median(pairs) if pairs else None,
        "of plain": median(against),
        "rounds": against,
        "start": median(one.before for one in here) - median(one.before for one in plain),
        "bytes": here[0].bytes,
    }
