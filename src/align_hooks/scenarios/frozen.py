"""The guide's experiment without updates: the variables of a run at a learning rate of 0, and the commands that repeat one step."""

from __future__ import annotations

import shlex
from pathlib import Path

from msgspec import Struct

from align_hooks.comparison.context import Decode
from align_hooks.comparison.control_band.departure import WORDS
from align_hooks.record.reader import Run
from align_hooks.record.write import atomic
from align_hooks.scenarios.plan import replayed
from align_hooks.settings import PREFIX

RECORDED = "BATCHES=all LOCAL_NORMS=all GRADIENTS=all ACTIVATIONS=all"
"""What is recorded of an isolated step."""
SHOWN = 5
"""The most samples of an isolated step that are shown."""


class IsolatedStep(Struct, frozen=True):
    """An outlying step, which can be run without the others, as weights never moved."""

    step: int
    samples: tuple[str, ...]
    """The beginnings of samples, as ids or as text."""
    commands: tuple[str, ...]
    """The variables to set before the reference's command and the candidate's."""


def variables(run: Path, source: Path | None) -> dict[str, str]:
    """Return the variables of a run at rate 0, which replays ``source``, or records batches and weights where that is None."""
    values = {"RUN": str(run), "LEARNING_RATE": "0"}
    values |= {"BATCHES": "all", "WEIGHTS": "0"} if source is None else replayed(source)
    return {PREFIX + name: value for name, value in values.items()}


def isolate(reference: Run, step: int, folder: Path, decode: Decode | None) -> IsolatedStep:
    """Write the batch of a step into ``folder``, and return the commands that train on it."""
    batch = extract(reference, step, folder / "batch")
    tokens = reference.batch(step).tokens
    beginnings = [] if tokens is None else tokens[:SHOWN, :WORDS].tolist()
    samples = tuple(" ".join(map(str, ids)) if decode is None else repr(decode(ids)) for ids in beginnings)
    return IsolatedStep(step, samples, tuple(command(batch, reference.path, folder / side) for side in ("reference", "candidate")))


def extract(reference: Run, step: int, folder: Path) -> Path:
    """Write the global batch of one step as a directory of one step, in the guide's layout, and return the directory."""
    place = folder / "step_0" / "rank_0"
    place.mkdir(parents=True, exist_ok=True)
    batch = reference.batch(step)
    left_out = {"token_losses", *(("attention_mask",) if batch.causal else ())}  # the guide's layout implies a causal mask
    for name, array in batch.arrays().items():
        if name not in left_out:
            atomic.write_array(place / f"{name}.npy", array)
    return folder


def command(batch: Path, reference: Path, run: Path) -> str:
    """Return the variables to set before a side's own command: they replay ``batch`` and record everything."""
    values = {"RUN": run, **replayed(reference), "REPLAY_BATCHES": batch, "LEARNING_RATE": 0}
    given = [f"{PREFIX}{name}={shlex.quote(str(value))}" for name, value in values.items()]
    return " ".join([*given, *(PREFIX + each for each in RECORDED.split())])
