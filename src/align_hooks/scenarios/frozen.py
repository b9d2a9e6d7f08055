"""The guide's experiment without updates: what a run at a learning rate of 0 is told, and a step that stands out, to be run alone."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from align_hooks.comparison.context import Decode
from align_hooks.comparison.control_band.departure import ids_of
from align_hooks.record.reader import Run
from align_hooks.record.write import atomic
from align_hooks.scenarios.rung import fed
from align_hooks.settings import PREFIX

RECORDED = "BATCHES=all LOCAL_NORMS=all GRADIENTS=all ACTIVATIONS=all"
"""What is recorded of a step that is run alone."""
SHOWN = 5
"""Samples of such a step that are shown."""


@dataclass(frozen=True, slots=True)
class Alone:
    """A step that stands out: the beginnings of its ``samples``, and what to write before the reference's command and the candidate's to
    run it alone."""

    step: int
    samples: tuple[str, ...]
    commands: tuple[str, ...]


def variables(run: Path, source: Path | None) -> dict[str, str]:
    """The variables of a run at rate 0: the first side records batches and weights, the second is fed those of ``source``."""
    values = {"RUN": str(run), "LEARNING_RATE": "0"}
    values |= {"BATCHES": "all", "WEIGHTS": "0"} if source is None else fed(source)
    return {PREFIX + name: value for name, value in values.items()}


def alone(reference: Run, step: int, folder: Path, decode: Decode | None) -> Alone:
    """Take the batch of a step out into ``folder``, and say how to run it: as weights never moved, one step of training is all."""
    batch = taken_out(reference, step, folder / "batch")
    tokens = reference.batch(step).tokens
    heads = [] if tokens is None else [ids_of(sample) for sample in tokens[:SHOWN]]
    samples = tuple(" ".join(map(str, ids)) if decode is None else repr(decode(ids)) for ids in heads)
    return Alone(step, samples, tuple(command(batch, reference.path, folder / side) for side in ("reference", "candidate")))


def taken_out(reference: Run, step: int, folder: Path) -> Path:
    """Write the global batch of one step as a directory of one step, in the guide's layout: weights never moved, so it can be run alone."""
    place = folder / "step_0" / "rank_0"
    place.mkdir(parents=True, exist_ok=True)
    batch = reference.batch(step)
    left_out = {"token_losses", *(("attention_mask",) if batch.causal else ())}  # the guide's layout takes a causal mask for granted
    for name, array in batch.arrays().items():
        if name not in left_out:
            atomic.write_array(place / f"{name}.npy", array)
    return folder


def command(batch: Path, reference: Path, run: Path) -> str:
    """What to write before a side's own command to run that step alone, with everything recorded."""
    values = {"RUN": run, **fed(reference), "REPLAY_BATCHES": batch, "LEARNING_RATE": 0}
    given = [f"{PREFIX}{name}={shlex.quote(str(value))}" for name, value in values.items()]
    return " ".join([*given, *(PREFIX + each for each in RECORDED.split())])
