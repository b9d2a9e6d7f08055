"""Short trainings of Megatron-LM on a device, several at a time, each in a process and a folder of its own."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from real import frameworks
from real.frameworks import LLAMA, Ended, Launcher

SCRIPTS = Path(__file__).parent / "scripts"
WIDE = {
    "--hidden-size": "1024",
    "--ffn-hidden-size": "2816",
    "--num-attention-heads": "16",
    "--seq-length": "512",
    "--max-position-embeddings": "512",
}
"""A model of 25 million parameters, whose kernels outlast their launch."""


class Trainings:
    """Trains on one device."""

    def __init__(self, device: str, where: Path, at_once: int) -> None:
        self.device, self.where = device, where
        self.free = threading.Semaphore(at_once)
        """One permit for each training that may run now."""

    def folder(self, name: str) -> Path:
        """Return the folder of a training, whose path can stand in a command."""
        return self.where / re.sub(r"[^\w/]+", "_", name)

    def train(
        self,
        name: str,
        *,
        family: str = LLAMA,
        script: Path | None = None,
        change: Mapping[str, str | None] | None = None,
        flags: Sequence[str] = (),
        launcher: Launcher = ("-m", "align_hooks.torch_side"),
        ranks: int | None = None,
        environment: Mapping[str, str] | None = None,
        on: str | None = None,
        **variables: object,
    ) -> Trained:
        """Train in the folder ``name``; ``on`` is a device other than this one, the others are those of :func:`frameworks.megatron`."""
        device, where = on or self.device, self.folder(name)
        known = {"script": script} if script else {}
        own = {"--distributed-backend": "gloo" if ranks or device == "cpu" else "nccl"}
        place = frameworks.one_rank() if device == "cuda" and ranks is None else {}
        asked = {"DEVICE": None, "SEED": None, **variables} if device == "cuda" else variables
        with self.free:
            done = frameworks.megatron(
                where,
                family=family,
                change={**own, **(change or {})},
                flags=flags,
                launcher=launcher,
                ranks=ranks,
                environment={**place, **(environment or {})},
                **known,
                **asked,
            )
        (where / "log").write_text(done.output)
        return Trained(where, done)

    def witnessed(self, name: str, **given: object) -> Trained:
        """Train with a witness of losses and final parameters, which :attr:`Trained.witnesses` names."""
        given = {"script": frameworks.SCRIPTS / "witness_megatron.py", **given}
        environment = {"WITNESS": "witness_{rank}.npz", **given.pop("environment", {})}  # type: ignore[dict-item]
        return self.train(name, environment=environment, **given)  # type: ignore[arg-type]


class Trained:
    """A training that has ended: the folder ``where`` it ran, its exit ``code``, and what it printed."""

    def __init__(self, where: Path, done: Ended) -> None:
        self.where, self.code, self.output, self.ours = where, done.code, done.output, done.ours
        self.run = where / "run"

    @property
    def witnesses(self) -> list[Path]:
        """What a witness wrote of each rank."""
        return sorted(self.where.glob("witness_*.npz"))

    @property
    def error(self) -> str:
        """The exit code and the last line that names an error, or the last line."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        errors = [line for line in lines if re.search(r"Error|error:|refused", line)]
        return f"exit code {self.code}: {(errors or lines or ['it printed nothing'])[-1][:300]}"


def cores() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0))
