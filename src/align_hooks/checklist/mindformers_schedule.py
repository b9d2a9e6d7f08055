"""MindFormers' learning rate of every step.

The formulas of the classes of ``mindformers.core.lr.lr_schedule`` on a YAML's ``lr_schedule``; tests compare them with these classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from align_hooks.checklist.readings.lookup import Unstated, value_of
from align_hooks.checklist.readings.schedule import mindformers_steps, rates_of_groups, schedule_class, schedule_keys
from align_hooks.checklist.row import UNSET
from align_hooks.checklist.schedule import Floats, Schedule
from align_hooks.configuration.values import Configuration, Setting
from align_hooks.messages import message

Rates: TypeAlias = Callable[[Floats], Floats]
"""Steps to the rate of each."""


def _setting(configuration: Configuration, name: str, default: Setting = None) -> Setting:
    return value_of(configuration, schedule_keys(name), default)


@dataclass(frozen=True, slots=True)
class Setup:
    """The settings of a schedule."""

    configuration: Configuration
    peak: float
    warm: int
    """Steps of warm-up."""
    length: int | None
    """Steps; None where only the data has that."""

    def value(self, name: str, default: Setting = None) -> Setting:
        """Return a setting of the schedule."""
        return _setting(self.configuration, name, default)

    def number(self, name: str, default: Setting) -> float:
        """Return a setting of the schedule that is a number."""
        return float(self.value(name, default))

    @property
    def total(self) -> int:
        """The length.

        :raises Unknown: only the data has it.
        """
        if self.length is None:
            raise Unstated(message("untold.length_of_data"))
        return self.length

    def steps(self, kind: str) -> int | None:
        """Return a number of steps, by ``kind`` as such or as a part of the length, which wins; None where neither is set."""
        steps, ratio = self.value(f"{kind}_steps"), self.value(f"{kind}_ratio")
        if ratio is None:
            return None if steps is None else int(steps)
        if float(ratio) == 0.0:
            return 0
        if self.length is None:
            raise Unstated(message("untold.part_of_steps", name=f"lr_schedule.{kind}_ratio"))
        return int(self.length * float(ratio))

    def end(self, *, by_ratio: bool) -> float:
        """Return the step at which a cosine ends: by its steps, or before those by a part of the length."""
        share, steps = self.value("decay_ratio") if by_ratio else None, self.value("decay_steps")
        return int(self.total * float(share)) if share is not None else max(1, int(self.total if steps is None else steps))


def mindformers_rate(configuration: Configuration) -> Schedule:
    """Return what ``lr_schedule`` of a YAML gives; a constant rate where there is none."""
    run_steps, value = mindformers_steps(configuration), partial(_setting, configuration)
    steps = None if run_steps is UNSET else int(run_steps)
    kind = value("type")
    if rates_of_groups(configuration) is not None:
        raise Unstated(message("untold.own_rates"))
    if kind is None:
        rate = value_of(configuration, ("optimizer.learning_rate",), None)
        if not isinstance(rate, int | float):
            raise Unstated(message("untold.neither_set", name="lr_schedule", other="optimizer.learning_rate"))
        rest = message("schedule.constant", steps=steps) if steps else message("schedule.constant_of_data")
        return Schedule(lambda at: np.full(np.shape(at), float(rate)), steps, message("schedule.peak", rate=float(rate), rest=rest))
    kind, total = schedule_class(kind), value("total_steps", -1)
    length = steps if total == -1 else int(total)
    warm = Setup(configuration, 0.0, 0, length).steps("warmup") or 0
    if (peak := value("learning_rate", value("base_lr"))) is None:
        raise Unstated(message("untold.not_set", name="lr_schedule.learning_rate"))
    if kind not in SHAPES:
        raise Unstated(message("untold.not_known", name="lr_schedule.type", value=kind))
    start, setup = float(value("warmup_lr_init", 0.0)), Setup(configuration, float(peak), warm, length)
    after = SHAPES[kind](setup)

    def rates(at: Floats) -> Floats:
        step = np.asarray(at, np.float64)
        if not warm or kind.startswith("CosineAnnealing"):
            return after(step)
        stop = setup.end(by_ratio=BY_RATIO[kind]) if kind in BY_RATIO and length is not None else math.inf
        return np.where((step < warm) & (step < stop), start + (setup.peak - start) * step / warm, after(step))

    text = message("schedule.of_kind_of_data", kind=kind) if length is None else message("schedule.of_kind", kind=kind, steps=length)
    if warm:
        text = message("schedule.warmed", warm=warm, first=start, last=setup.peak, rest=text)
    return Schedule(rates, steps or length, text)


def lowest_rate(configuration: Configuration) -> Setting:
    """Return the rate at which the schedule ends; of one without an end, its ``lr_end``."""
    kind = schedule_class(value_of(configuration, schedule_keys("type"), None))
    if kind == "LinearWithWarmUpLR":
        return 0.0
    name, otherwise = LOWEST.get(kind, ("lr_end", 0.0))
    return value_of(configuration, schedule_keys(name), otherwise) or 0.0


def style(configuration: Configuration) -> Setting:
    """Return the class of the schedule, by the shape that it gives: a polynomial of power 1 is linear."""
    kind = schedule_class(value_of(configuration, schedule_keys("type"), "constant"))
    straight = kind == "PolynomialWithWarmUpLR" and float(value_of(configuration, schedule_keys("power"), 1.0)) == 1.0
    return "LinearWithWarmUpLR" if straight else kind


def _wave(angle: Floats) -> Floats:
    return np.maximum(0.0, 0.5 * (1.0 + np.cos(angle)))


def _constant(setup: Setup) -> Rates:
    return lambda step: np.full(step.shape, setup.peak)


def _linear(setup: Setup) -> Rates:
    end = setup.total
    return lambda step: setup.peak * np.maximum(0.0, (end - step) / max(1, end - setup.warm))


def _cosine(setup: Setup) -> Rates:
    peak, last = setup.peak, setup.number("lr_end", 0.0)
    if last == peak and setup.length is None:
        return _constant(setup)
    length, waves, stop = max(1, setup.total - setup.warm), setup.number("num_cycles", 0.5), setup.end(by_ratio=True)
    return lambda step: np.where(step >= stop, last, last + (peak - last) * _wave(math.pi * waves * 2.0 * ((step - setup.warm) / length)))


def _restarts(setup: Setup) -> Rates:
    peak, last, length = setup.peak, setup.number("lr_end", 0.0), max(1, setup.total - setup.warm)
    waves, stop = setup.number("num_cycles", 1.0), setup.end(by_ratio=False)

    def rates(step: Floats) -> Floats:
        part = (step - setup.warm) / length
        left = _wave(math.pi * ((waves * part) % 1.0))
        return np.where(step >= stop, last, np.where(part < 1, last + (peak - last) * left, 0.0))

    return rates


def _polynomial(setup: Setup) -> Rates:
    end, last, power, warm = setup.total, setup.number("lr_end", 1e-7), setup.number("power", 1.0), setup.warm
    decay = max(1, int(setup.value("decay_steps", end - warm)))

    def rates(step: Floats) -> Floats:
        left = 1.0 - (step - warm) / decay  # below 0 where the decay ends before the run: the class does not stop it
        return np.where(step > end, last, (setup.peak - last) * np.where(step < warm, 0.0, left) ** power + last)

    return rates


def _stable_decay(setup: Setup) -> Rates:
    peak, last, begins = setup.peak, setup.number("lr_end", 1e-7), setup.steps("decay_start")
    if begins is None:
        raise Unstated(message("untold.not_set", name="lr_schedule.decay_start_steps"))
    length = max(1, setup.total - begins)

    def rates(step: Floats) -> Floats:
        falling = np.where(step < begins, peak, peak - (peak - last) * (step - begins) / length)
        return np.where((step == 0) & (begins > 0) & (not setup.warm), np.nan, falling)  # its stable part multiplies by step / step

    return rates


def _cool_down(setup: Setup) -> Rates:
    peak, share = setup.peak, setup.value("decay_ratio")
    kept, final = (max(0, int(setup.value(name, 0) or 0)) for name in ("keep_steps", "final_steps"))
    decay = int(setup.total * float(share)) if share is not None else max(1, int(setup.value("decay_steps") or setup.total))
    first, waves = setup.number("lr_end1", 0.0), setup.number("num_cycles", 0.5)
    end, begins = float(setup.value("lr_end2") or first), setup.warm + kept

    def rates(step: Floats) -> Floats:
        left = _wave(math.pi * waves * 2.0 * (step - kept - setup.warm) / decay)
        falling = np.where(step < begins + decay, first + (peak - first) * left, np.where(step < begins + decay + final, first, end))
        return np.where(step < begins, peak, falling)

    return rates


def _annealing(setup: Setup) -> Rates:
    period, lowest = float(setup.value("t_max")), setup.number("eta_min", 0.0)
    return lambda step: lowest + (setup.peak - lowest) * _wave(math.pi * step / period)


def _annealing_restarts(setup: Setup) -> Rates:
    first, grows, lowest = float(setup.value("t_0")), setup.number("t_mult", 1), setup.number("eta_min", 0.0)

    def rates(step: Floats) -> Floats:
        if grows == 1:
            begun, period = np.floor(step / first) * first, np.full(step.shape, first)
        else:
            which = np.maximum(0.0, np.floor((np.log(step / first * (grows - 1.0) + 1.0) / math.log(grows)).astype(np.float32)))
            begun, period = first * (1.0 - grows**which) / (1.0 - grows), first * grows**which
        return lowest + (setup.peak - lowest) * _wave(math.pi * (step - begun) / period)

    return rates


SHAPES: dict[str, Callable[[Setup], Rates]] = {
    "ConstantWarmUpLR": _constant,
    "LinearWithWarmUpLR": _linear,
    "CosineWithWarmUpLR": _cosine,
    "CosineWithRestartsAndWarmUpLR": _restarts,
    "PolynomialWithWarmUpLR": _polynomial,
    "WarmUpStableDecayLR": _stable_decay,
    "ConstantWithCoolDownLR": _cool_down,
    "CosineAnnealingLR": _annealing,
    "CosineAnnealingWarmRestarts": _annealing_restarts,
}
"""MindFormers' schedules after their warm-up."""
LOWEST = {
    **dict.fromkeys(("CosineWithWarmUpLR", "CosineWithRestartsAndWarmUpLR"), ("lr_end", 0.0)),
    **dict.fromkeys(("PolynomialWithWarmUpLR", "WarmUpStableDecayLR"), ("lr_end", 1e-7)),
    "ConstantWithCoolDownLR": ("lr_end1", 0.0),
    **dict.fromkeys(("CosineAnnealingLR", "CosineAnnealingWarmRestarts"), ("eta_min", 0.0)),
}
"""Schedules that end at a rate that can be set: the name that the class has for it, and its default. A linear one ends at 0."""
BY_RATIO = {"CosineWithWarmUpLR": True, "CosineWithRestartsAndWarmUpLR": False}
"""Schedules that check for their end before their warm-up, and whether ``decay_ratio`` may say it."""
