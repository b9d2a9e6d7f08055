"""MindFormers' learning rate of every step.

The formulas of the classes of ``mindformers.core.lr.lr_schedule``, on what ``lr_schedule`` of a YAML and ``base_trainer`` give them; tests
hold them against those classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from align_hooks.checklist.readings.training import mindformers_steps, rates_of_groups, schedule_keys
from align_hooks.checklist.row import UNSET
from align_hooks.checklist.schedule import Floats, NotTold, Schedule, value_of
from align_hooks.configuration.values import Configuration
from align_hooks.messages import message

Said = Callable[..., Any]
Shape = Callable[[Said, float, int, "int | None"], Callable[[Floats], Floats]]


def mindformers_rate(configuration: Configuration) -> Schedule:
    """What ``lr_schedule`` of a YAML gives; a constant rate where there is none."""

    def said(name: str, default: Any = None) -> Any:
        return value_of(configuration, schedule_keys(name), default)

    found_steps = mindformers_steps(configuration)
    steps = None if found_steps is UNSET else int(found_steps)
    kind = said("type")
    if rates_of_groups(configuration) is not None:
        raise NotTold(message("untold.own_rates"))
    if kind is None:
        alone = value_of(configuration, ("optimizer.learning_rate",))
        if not isinstance(alone, int | float):
            raise NotTold(message("untold.neither_set", name="lr_schedule", other="optimizer.learning_rate"))
        rest = message("schedule.constant", steps=steps) if steps else message("schedule.constant_of_data")
        return Schedule(lambda at: np.full(np.shape(at), float(alone)), steps, message("schedule.peak", rate=float(alone), rest=rest))
    given = said("total_steps")
    total = steps if given in (None, -1) else int(given)
    warm_up = _portion(said("warmup_steps"), said("warmup_ratio"), total, "warmup_ratio")
    peak = said("learning_rate", said("base_lr"))
    if peak is None:
        raise NotTold(message("untold.not_set", name="lr_schedule.learning_rate"))
    shape = SHAPES.get(str(kind))
    if shape is None:
        raise NotTold(message("untold.not_known", name="lr_schedule.type", value=str(kind)))
    start = float(said("warmup_lr_init", 0.0))
    after = shape(said, float(peak), warm_up or 0, total)

    def rate(at: Floats) -> Floats:
        now = np.asarray(at, np.float64)
        found = after(now)
        if not warm_up or str(kind).startswith("CosineAnnealing"):
            return found
        ended = ENDS.get(str(kind))
        rising = start + (float(peak) - start) * now / warm_up
        stop = ended(said, warm_up, total) if ended and total is not None else math.inf
        return np.where((now < warm_up) & (now < stop), rising, found)

    name = str(kind)
    text = message("schedule.of_kind", kind=name, steps=total) if total is not None else message("schedule.of_kind_of_data", kind=name)
    if warm_up:
        text = message("schedule.warmed", warm=warm_up, first=start, last=float(peak), rest=text)
    return Schedule(rate, steps or total, text)


def _portion(steps: Any, ratio: Any, total: int | None, name: str) -> int | None:
    if ratio is not None:
        if float(ratio) == 0.0:
            return 0
        if total is None:
            raise NotTold(message("untold.part_of_steps", name=f"lr_schedule.{name}"))
        return int(total * float(ratio))
    return None if steps is None else int(steps)


def _total(total: int | None) -> int:
    if total is None:
        raise NotTold(message("untold.length_of_data"))
    return total


def _constant(said: Said, peak: float, warm: int, total: int | None) -> Callable[[Floats], Floats]:
    return lambda now: np.full(now.shape, peak)


def _linear(said: Said, peak: float, warm: int, total: int | None) -> Callable[[Floats], Floats]:
    end = _total(total)
    return lambda now: peak * np.maximum(0.0, (end - now) / max(1, end - warm))


def _cosine(said: Said, peak: float, warm: int, total: int | None) -> Callable[[Floats], Floats]:
    if float(said("lr_end", 0.0)) == peak and total is None:
        return _constant(said, peak, warm, total)
    end, last, waves = _total(total), float(said("lr_end", 0.0)), float(said("num_cycles", 0.5))
    stop = _cosine_end(said, warm, total)

    def rate(now: Floats) -> Floats:
        part = (now - warm) / max(1, end - warm)
        left = np.maximum(0.0, 0.5 * (1.0 + np.cos(math.pi * waves * 2.0 * part)))
        return np.where(now >= stop, last, last + (peak - last) * left)

    return rate


def _cosine_end(said: Said, warm: int, total: int | None) -> float:
    decay = said("decay_steps")
    share = said("decay_ratio")
    return int(_total(total) * float(share)) if share is not None else max(1, int(decay)) if decay is not None else max(1, _total(total))


def _restarts(said: Said, peak: float, warm: int, total: int | None) -> Callable[[Floats], Floats]:
    end, last, waves, stop = _total(total), float(said("lr_end", 0.0)), float(said("num_cycles", 1.0)), _restarts_end(said, warm, total)

    def rate(now: Floats) -> Floats:
        part = (now - warm) / max(1, end - warm)
        left = np.maximum(0.0, 0.5 * (1.0 + np.cos(math.pi * ((waves * part) % 1.0))))
        return np.where(now >= stop, last, np.where(part < 1, last + (peak - last) * left, 0.0))

    return rate


def _restarts_end(said: Said, warm: int, total: int | None) -> float:
    decay = said("decay_steps")
    return max(1, int(decay)) if decay is not None else max(1, _total(total))


def _polynomial(said: Said, peak: float, warm: int, total: int | None) -> Callable[[Floats], Floats]:
    end, last, power = _total(total), float(said("lr_end", 1e-7)), float(said("power", 1.0))
    decay = max(1, int(said("decay_steps"))) if said("decay_steps") is not None else max(1, end - warm)

    def rate(now: Floats) -> Floats:
        left = 1.0 - (now - warm) / decay  # below 0 where the decay ends before the run: the class does not stop it
        return np.where(now > end, last, (peak - last) * np.where(now < warm, 0.0, left) ** power + last)

    return rate


def _stable_decay(said: Said, peak: float, warm: int, total: int | None) -> Callable[[Floats], Floats]:
    last = float(said("lr_end", 1e-7))
    begins = _portion(said("decay_start_steps"), said("decay_start_ratio"), total, "decay_start_ratio")
    if begins is None:
        raise NotTold(message("untold.not_set", name="lr_schedule.decay_start_steps"))
    length = max(1, _total(total) - begins)

    def rate(now: Floats) -> Floats:
        found = np.where(now < begins, peak, peak - (peak - last) * (now - begins) / length)
        return np.where((now == 0) & (begins > 0) & (not warm), np.nan, found)  # its stable part multiplies by step / step

    return rate


def _cool_down(said: Said, peak: float, warm: int, total: int | None) -> Callable[[Floats], Floats]:
    keep, last = max(0, int(said("keep_steps", 0) or 0)), max(0, int(said("final_steps", 0) or 0))
    share = said("decay_ratio")
    decay = int(_total(total) * float(share)) if share is not None else max(1, int(said("decay_steps") or _total(total)))
    first, second, waves = float(said("lr_end1", 0.0)), said("lr_end2"), float(said("num_cycles", 0.5))
    end = float(second) if second else first

    def rate(now: Floats) -> Floats:
        left = np.maximum(0.0, 0.5 * (1.0 + np.cos(math.pi * waves * 2.0 * (now - keep - warm) / decay)))
        falling = np.where(now < warm + keep + decay, first + (peak - first) * left, np.where(now < warm + keep + decay + last, first, end))
        return np.where(now < warm + keep, peak, falling)

    return rate


def _annealing(said: Said, peak: float, warm: int, total: int | None) -> Callable[[Floats], Floats]:
    period, lowest = float(said("t_max")), float(said("eta_min", 0.0))
    return lambda now: lowest + (peak - lowest) * np.maximum(0.0, 0.5 * (1.0 + np.cos(math.pi * now / period)))


def _annealing_restarts(said: Said, peak: float, warm: int, total: int | None) -> Callable[[Floats], Floats]:
    first, grows, lowest = float(said("t_0")), float(said("t_mult", 1)), float(said("eta_min", 0.0))

    def rate(now: Floats) -> Floats:
        if grows == 1:
            begun, period = np.floor(now / first) * first, np.full(now.shape, first)
        else:
            which = np.maximum(0.0, np.floor((np.log(now / first * (grows - 1.0) + 1.0) / math.log(grows)).astype(np.float32)))
            begun, period = first * (1.0 - grows**which) / (1.0 - grows), first * grows**which
        left = np.maximum(0.0, 0.5 * (1.0 + np.cos(math.pi * (now - begun) / period)))
        found: Floats = lowest + (peak - lowest) * left
        return found

    return rate


SHAPES: dict[str, Shape] = {
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
ENDS: dict[str, Callable[[Said, int, int | None], float]] = {
    "CosineWithWarmUpLR": _cosine_end,
    "CosineWithRestartsAndWarmUpLR": _restarts_end,
}
"""Schedules that look for their end before they look for their warm-up."""
