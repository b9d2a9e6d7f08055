"""Compare a running job with a finished reference, row by row, with constant work a row.

With repeats of the reference each number has a detector (:mod:`.noise_model`), whose false alarms are bounded. Without repeats nobody knows
honest differences, and the mean of the last steps is compared with the guide's acceptance limits. A number that is not finite where the
reference's is ends the watch at once."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from enum import Enum
from statistics import fmean

import numpy as np
from msgspec import Struct, field

from align_hooks.comparison.acceptance import GLOBAL_NORM, MEAN
from align_hooks.comparison.control_band.noise_model import FALSE_ALARMS, NUMBERS, Detector, differences, fit, rounding, values
from align_hooks.comparison.curves import side
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.verdict import Curve, Judgement, RunSummary, relative
from align_hooks.record.format.rows import ScalarRow
from align_hooks.record.reader import Run

WINDOW = 100
"""Steps whose mean difference is compared with the guide's limits."""


class Watched(Judgement):
    """How a watch ends."""

    STAYED = ("stayed", 0)
    LEFT = ("left", 1)
    STOPPED = ("stopped", 3)
    OPEN = ("open", 4)


class Sign(Enum):
    """The reason of an alarm."""

    LEFT_BAND = "left the band"
    BEYOND_GUIDE = "beyond the guide's limits"
    NOT_FINITE = "not finite"


class Alarm(Struct, frozen=True):
    """A fault of a number."""

    number: str
    sign: Sign
    step: int
    """Step that showed the fault."""
    start: int
    """Step of its likely beginning."""


class Band(Struct):
    """One number with repeats."""

    name: str
    reference: Mapping[int, float]
    """Step to value."""
    places: Mapping[int, int]
    """Step to index in the detector's model."""
    detector: Detector
    widest: Mapping[int, float]
    """Step to the largest relative difference of a repeat."""

    @property
    def evidence(self) -> float:
        """Return the evidence as a part of an alarm's: 1 at the alarm, 0 without any."""
        return max(0.0, self.detector.evidence / self.detector.enough)

    def see(self, step: int, value: float) -> Alarm | None:
        """Judge a finite value."""
        place = self.places.get(step)
        if place is None or not self.detector.see(step, place, relative(self.reference[step], value)):
            return None
        return Alarm(self.name, Sign.LEFT_BAND, step, step if self.detector.start is None else self.detector.start)


class Guide(Struct):
    """One number without repeats."""

    name: str
    reference: Mapping[int, float]
    """Step to value."""
    last: deque[tuple[int, float, float]] = field(default_factory=lambda: deque(maxlen=WINDOW))
    """The last steps with both values, whose mean difference is judged."""

    @property
    def evidence(self) -> float:
        """Return the mean difference over its limit; 0 before the first step."""
        if not self.last:
            return 0.0
        absolute = fmean(abs(theirs - ours) for _, ours, theirs in self.last)
        of_size = fmean(abs(relative(ours, theirs)) for _, ours, theirs in self.last)
        return of_size / GLOBAL_NORM if self.name == "grad_norm" else min(absolute / MEAN.absolute, of_size / MEAN.relative)

    def see(self, step: int, value: float) -> Alarm | None:
        """Judge a finite value of a step that the reference has."""
        self.last.append((step, self.reference[step], value))
        if len(self.last) < WINDOW or self.evidence <= 1:
            return None
        return Alarm(self.name, Sign.BEYOND_GUIDE, step, self.last[0][0])


class JobWatch(Struct):
    """A finished reference with its repeats, and the numbers of a job so far."""

    reference: Run
    repeats: Sequence[Run]
    false_alarms: float = FALSE_ALARMS
    numbers: dict[str, Band | Guide] = field(default_factory=dict)
    alarms: list[Alarm] = field(default_factory=list)
    seen: int = 0
    """Number of the job's steps that the reference has too."""
    shown: dict[str, dict[int, float]] = field(default_factory=lambda: {name: {} for name in NUMBERS})
    """Name of a number to step to the job's value."""

    def __post_init__(self) -> None:
        self.numbers = {name: self._number(name) for name in NUMBERS}

    @property
    def has_bands(self) -> bool:
        """Return whether repeats showed by how much honest runs differ."""
        return any(isinstance(number, Band) for number in self.numbers.values())

    @property
    def trusted(self) -> RunSummary:
        """Return the reference, for a report."""
        return side(self.reference)

    @property
    def last(self) -> int:
        """Return the last step of the reference; -1 without any."""
        return self.reference.steps[-1] if self.reference.steps else -1

    def see(self, row: ScalarRow) -> list[Alarm]:
        """Judge one row of the job, of a step after the last, and return the new alarms."""
        before = len(self.alarms)
        for name, number in self.numbers.items():
            value = getattr(row, name)
            if row.step not in number.reference or value is None or row.skipped:
                continue
            self.shown[name][row.step] = value
            if all(alarm.number != name for alarm in self.alarms):
                alarm = number.see(row.step, value) if math.isfinite(value) else Alarm(name, Sign.NOT_FINITE, row.step, row.step)
                self.alarms += [] if alarm is None else [alarm]
        self.seen += row.step in self.numbers["loss"].reference
        return self.alarms[before:]

    def latest(self, name: str) -> int | None:
        """Return the last step of which the job had a number; None before the first."""
        return next(reversed(self.shown[name]), None)  # steps come in their order

    def outcome(self, *, ended: bool) -> Watched:
        """Return how a watch ends; ``ended``: the job ended by itself, or passed the reference's last step."""
        if self.alarms or not ended:
            return Watched.LEFT if self.alarms else Watched.STOPPED
        return Watched.STAYED if self.shown["loss"] else Watched.OPEN

    @property
    def lacks_loss(self) -> bool:
        """Return whether steps of the job are known, but no loss that the reference has too."""
        return not self.shown["loss"] and (self.seen > 0 or any(self.shown.values()))

    def curves(self, most: int) -> list[Curve]:
        """Return both sides of each number at no more than ``most`` steps: every n-th and the last."""
        drawn = []
        for name, number in self.numbers.items():
            if steps := sorted(self.shown[name]):
                kept = sorted({*steps[:: -(-len(steps) // most)], steps[-1]})
                noise = [number.widest.get(step) for step in kept] if isinstance(number, Band) else []
                ours, theirs = [number.reference[step] for step in kept], [self.shown[name][step] for step in kept]
                drawn.append(Curve(name, kept, ours, theirs, noise=noise))
        return drawn

    def _number(self, name: str) -> Band | Guide:
        ours = values(self.reference, name)
        steps, of_repeats = differences(name, self.reference, self.repeats)
        if not of_repeats.any():  # repeats that are the same to the bit measured nothing
            return Guide(name, ours)
        model = fit(of_repeats, rounding(name, Pair(self.reference, self.repeats[0]).limits))
        places = {step: place for place, step in enumerate(steps.tolist())}
        widest = dict(zip(places, np.abs(of_repeats).max(axis=0).tolist(), strict=True))
        return Band(name, ours, places, Detector(model, self.false_alarms / len(NUMBERS)), widest)
