"""A running job held against a finished reference, row by row, with constant work a row.

With repeats of the reference each number has a detector (:mod:`.detector`), whose false alarms are bounded. Without repeats nobody knows
what honest differences are, and the mean of the last steps is held against the guide's acceptance limits instead. A number that is not
finite where the reference's is ends the watch at once.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from statistics import fmean

import numpy as np

from align_hooks.comparison.acceptance import GLOBAL_NORM, MEAN
from align_hooks.comparison.control_band.detector import FALSE_ALARMS, Detector
from align_hooks.comparison.control_band.level import honest
from align_hooks.comparison.control_band.series import NUMBERS, PARTS_OF_ROUNDING, differences, of_rounding, values
from align_hooks.comparison.curves import side
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.verdict import Curve, Judgement, RunSummary, relative
from align_hooks.record.format.schema import ScalarRow
from align_hooks.record.reader import Run

WINDOW = 100
"""Steps whose mean difference is held against the guide's limits."""


class Watched(Judgement):
    """How a watch ends, with the command's exit code."""

    STAYED = ("stayed", 0)
    LEFT = ("left", 1)
    STOPPED = ("stopped", 3)
    OPEN = ("open", 4)


class Sign(Enum):
    """Why a job is called off: its differences are no honest ones, they are beyond the guide's limits, or a number is not finite."""

    LEFT_BAND = "left the band"
    BEYOND_GUIDE = "beyond the guide's limits"
    NOT_FINITE = "not finite"


@dataclass(frozen=True, slots=True)
class Alarm:
    """What is wrong with a number: seen at ``step``, likely from the step ``start`` on."""

    number: str
    sign: Sign
    step: int
    start: int


@dataclass(slots=True)
class Band:
    """One number with repeats: the reference's values by step, the place of each step in the detector's model, and by step how far the
    repeats are from the reference at most, relative."""

    name: str
    reference: Mapping[int, float]
    places: Mapping[int, int]
    detector: Detector
    widest: Mapping[int, float]

    @property
    def evidence(self) -> float:
        """How far the evidence is towards an alarm: 1 at the alarm, 0 without any."""
        return max(0.0, self.detector.evidence / self.detector.enough)

    def see(self, step: int, value: float) -> Alarm | None:
        """Judge a finite value."""
        place = self.places.get(step)
        if place is None:
            return None
        if not self.detector.see(step, place, relative(self.reference[step], value)):
            return None
        return Alarm(self.name, Sign.LEFT_BAND, step, step if self.detector.start is None else self.detector.start)


@dataclass(slots=True)
class Guide:
    """One number without repeats: the last pairs of values, of which the mean difference is judged."""

    name: str
    reference: Mapping[int, float]
    last: deque[tuple[int, float, float]] = field(default_factory=lambda: deque(maxlen=WINDOW))

    @property
    def evidence(self) -> float:
        """How far the mean difference is towards its limit: 1 at the limit."""
        if not self.last:
            return 0.0
        apart = fmean(abs(theirs - ours) for _, ours, theirs in self.last)
        of_size = fmean(abs(relative(ours, theirs)) for _, ours, theirs in self.last)
        return of_size / GLOBAL_NORM if self.name == "grad_norm" else min(apart / MEAN.absolute, of_size / MEAN.relative)

    def see(self, step: int, value: float) -> Alarm | None:
        """Judge a finite value of a step that the reference has."""
        self.last.append((step, self.reference[step], value))
        if len(self.last) < WINDOW or self.evidence <= 1:
            return None
        return Alarm(self.name, Sign.BEYOND_GUIDE, step, self.last[0][0])


@dataclass
class JobWatch:
    """A reference and its repeats, both finished, and what a job showed so far. ``seen`` counts its steps that the reference has too,
    ``shown`` is what it had of each number, by step."""

    reference: Run
    repeats: Sequence[Run]
    false_alarms: float = FALSE_ALARMS
    numbers: dict[str, Band | Guide] = field(init=False)
    alarms: list[Alarm] = field(default_factory=list)
    seen: int = 0
    shown: dict[str, dict[int, float]] = field(default_factory=lambda: {name: {} for name in NUMBERS})

    def __post_init__(self) -> None:
        self.numbers = {name: self._number(name) for name in NUMBERS}

    @property
    def has_bands(self) -> bool:
        """Whether repeats showed how far honest runs are apart."""
        return any(isinstance(number, Band) for number in self.numbers.values())

    @property
    def trusted(self) -> RunSummary:
        """The reference, for a report."""
        return side(self.reference)

    @property
    def last(self) -> int:
        """The last step that the reference has."""
        return self.reference.steps[-1] if self.reference.steps else -1

    def see(self, row: ScalarRow) -> list[Alarm]:
        """Judge one row of the job, of a step after the last; returns the alarms that are new."""
        new = []
        for name, number in self.numbers.items():
            value = getattr(row, name)
            if row.step not in number.reference or value is None or row.skipped:
                continue
            self.shown[name][row.step] = value
            if any(alarm.number == name for alarm in self.alarms):
                continue
            alarm = number.see(row.step, value) if math.isfinite(value) else Alarm(name, Sign.NOT_FINITE, row.step, row.step)
            new += [] if alarm is None else [alarm]
        self.seen += row.step in self.numbers["loss"].reference
        self.alarms += new
        return new

    def latest(self, name: str) -> int | None:
        """The last step of which the job had a number; None before the first. Steps come in their order, and none is looked for."""
        return next(reversed(self.shown[name]), None)

    def outcome(self, *, ended: bool) -> Watched:
        """How a watch ends; ``ended`` says that the job ended by itself, or went beyond the reference's last step."""
        if self.alarms:
            return Watched.LEFT
        if not ended:
            return Watched.STOPPED
        return Watched.STAYED if self.shown["loss"] else Watched.OPEN

    @property
    def lacks_loss(self) -> bool:
        """Whether steps of the job were seen, and none of them had a loss that the reference has too."""
        return not self.shown["loss"] and (self.seen > 0 or any(self.shown.values()))

    def curves(self, most: int) -> list[Curve]:
        """Both sides of each number, at no more than ``most`` steps: every one, or every n-th and the last."""
        drawn = []
        for name, number in self.numbers.items():
            steps = sorted(self.shown[name])
            kept = sorted({*steps[:: max(1, -(-len(steps) // most))], *steps[-1:]})
            noise = [number.widest.get(step) for step in kept] if isinstance(number, Band) else []
            ours, theirs = [number.reference[step] for step in kept], [self.shown[name][step] for step in kept]
            drawn += [Curve(name, kept, ours, theirs, noise=noise)] if kept else []
        return drawn

    def _number(self, name: str) -> Band | Guide:
        ours = values(self.reference, name)
        of_repeats, apart = differences(name, self.reference, self.repeats)
        if not apart.any():  # repeats that are the same to the bit measured nothing
            return Guide(name, ours)
        model = honest(apart, of_rounding(name, Pair(self.reference, self.repeats[0]).limits) / PARTS_OF_ROUNDING)
        steps = of_repeats.tolist()
        places = {step: place for place, step in enumerate(steps)}
        widest = dict(zip(steps, np.abs(apart).max(axis=0).tolist(), strict=True))
        return Band(name, ours, places, Detector(model, self.false_alarms / len(NUMBERS)), widest)
