"""What is said to whoever asks a run for what it does not have: what it has, and how more is recorded."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from align_hooks.errors import RecordError, shown
from align_hooks.quantities.kind import Quantity
from align_hooks.quantities.registry import BY_NAME, SKETCHES
from align_hooks.record.format.ranges import ranges
from align_hooks.settings import PREFIX


def kind_named(name: str) -> Quantity:
    """The quantity of a name; raises RecordError for a name that no quantity has."""
    if name not in BY_NAME:
        near = difflib.get_close_matches(str(name), BY_NAME, n=1, cutoff=0.5)
        also = f" (did you mean {near[0]}?)" if near else ""
        raise RecordError(f"{shown(str(name))} is no quantity that a run records{also}; there are {', '.join(BY_NAME)}")
    return BY_NAME[name]


def sketches_of(name: str) -> Quantity:
    """The sketches of a quantity; raises RecordError for what has none."""
    if name not in SKETCHES:
        raise RecordError(f"there are no sketches of {shown(str(name))}; there are sketches of {' and '.join(SKETCHES)}")
    return SKETCHES[name]


def unrecorded(path: Path, kind: Quantity, step: int, known: Sequence[int]) -> RecordError:
    """The error for a quantity of a step that a run did not record; ``known`` are the steps of which it did."""
    updates = "1 update" if step == 1 else f"{step} updates"
    of = f"{kind.name} after {updates}" if kind.is_state else f"{kind.name} of step {step}"
    verb = "are" if kind.name.endswith("s") else "is"
    return RecordError(f"{path}: {of} {verb} not recorded; recorded: {ranges(known) or 'none'}; record more with {asking(kind, step)}")


def by_hand(path: Path, kind: Quantity, step: int) -> RecordError:
    """The error for what no directory made by hand has."""
    return RecordError(f"{path} was made by hand and holds batches alone; record the run with {asking(kind, step)}")


def not_whole(path: Path, step: int, known: Sequence[int]) -> RecordError:
    """The error for a step that not every rank completed."""
    return RecordError(f"{path}: step {step} is not whole; whole: {ranges(known) or 'none'}")


def asking(kind: Quantity, step: int) -> str:
    """What a run is recorded with that is to have a quantity."""
    return f"{PREFIX}{kind.variable.upper()}={step}"
