"""Learning rate and weight decay of every step, from a configuration only; and how two such schedules differ.

The formulas are those of MindFormers' ``mindformers.core.lr.lr_schedule``, and of ``OptimizerParamScheduler`` on what Megatron-LM's
``get_optimizer_param_scheduler`` gives it; tests compare them with these classes. The latter counts in samples, here in steps where
its length is in steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from align_hooks.checklist.canonical_values import UNSET, Words, text
from align_hooks.checklist.lookup import Unstated, are_numbers, value_of
from align_hooks.checklist.resolver import ODD
from align_hooks.checklist.resolvers.schedule import (
    length_of_schedule,
    megatron_decay_length,
    megatron_warmup,
    mindformers_steps,
    mindformers_warmup,
    rates_of_groups,
    schedule_class,
    schedule_keys,
)
from align_hooks.configuration.values import MINDFORMERS, Configuration, Setting, Unknown
from align_hooks.messages import Argument, message

Floats = NDArray[np.float64]
MOST = 20_000
"""Steps of a schedule that are compared; of a longer one so many, evenly, and every one of its first thousand."""
FIRST = 1_000
RATE = 1e-6
"""Relative difference of two rates that count as one: MindFormers works them out in float32."""


class Schedule(Struct, frozen=True):
    """The rate of every step."""

    rate: Callable[[Floats], Floats]
    """Step numbers to the rates that these steps' updates use, float64."""
    steps: int | None
    """The steps of the run; None where only its data has that."""
    text: Argument

    def at(self, steps: NDArray[np.int64]) -> Floats:
        """Return the rate of each of ``steps``; not finite where the formula gives no number, as the framework's own would not."""
        with np.errstate(all="ignore"):
            return self.rate(steps.astype(np.float64))


def sampled(steps: int) -> NDArray[np.int64]:
    """Return the steps at which schedules are compared."""
    if steps <= MOST:
        return np.arange(steps, dtype=np.int64)
    even: NDArray[np.int64] = np.linspace(0, steps - 1, MOST - FIRST).astype(np.int64)
    return np.union1d(np.arange(FIRST, dtype=np.int64), even)


def differences(reference: Schedule, candidate: Schedule) -> tuple[NDArray[np.int64], Floats]:
    """Return the steps that both make, and the :func:`relative_differences` of the two rates at these."""
    lengths = [schedule.steps for schedule in (reference, candidate) if schedule.steps]
    steps = sampled(min(lengths) if lengths else FIRST)
    return steps, relative_differences(reference.at(steps), candidate.at(steps))


def relative_differences(ours: Floats, theirs: Floats) -> Floats:
    """Return the relative difference of two rates of each step, ``[steps]``: 0 where both are 0, inf where either is no number."""
    numbers = np.isfinite(ours) & np.isfinite(theirs)
    ours, theirs = np.where(numbers, ours, 0.0), np.where(numbers, theirs, 0.0)
    scale = np.maximum(np.maximum(np.abs(ours), np.abs(theirs)), np.finfo(np.float64).tiny)
    peak = max(float(np.abs(ours).max(initial=0.0)), float(np.abs(theirs).max(initial=0.0)))
    error = np.abs(ours - theirs)
    return np.where(numbers, np.where(error <= peak * 1e-12, 0.0, error / scale), np.inf)


def needed(configuration: Configuration, key: str) -> float:
    """Return an argument that a schedule of Megatron-LM needs; raises Unknown where it is not set."""
    if (value := value_of(configuration, (key,), None)) is None:
        raise Unstated(message("untold.not_set", name="--" + key.replace("_", "-")))
    return float(value)


# ---- Megatron-LM

MOST_STEPS = 10**12
"""The most steps of a run."""
MEGATRON_STYLES = ("constant", "linear", "cosine", "inverse-square-root", "WSD")


def is_in_samples(configuration: Configuration) -> bool:
    """Return whether a run is counted in samples. Megatron fills the iterations of such a run in, so that a record holds both."""
    samples, steps = (value_of(configuration, (name,), None) for name in ("train_samples", "train_iters"))
    return bool(samples and (not steps or configuration.facts is not None))


def megatron_rate(configuration: Configuration) -> Schedule:
    """Return what ``get_optimizer_param_scheduler`` builds and ``OptimizerParamScheduler.get_lr`` gives."""

    def value(name: str, default: Setting = None) -> Setting:
        return value_of(configuration, (name,), default)

    peak, lowest, start = needed(configuration, "lr"), float(value("min_lr") or 0.0), float(value("lr_warmup_init") or 0.0)
    style = str(value("lr_decay_style", "linear"))
    in_samples = is_in_samples(configuration)
    counted, refused = ("samples", "iters") if in_samples else ("iters", "samples")
    for name in (f"lr_decay_{refused}", f"lr_warmup_{refused}"):  # validate_args refuses them
        if value(name):
            flag = "--" + name.replace("_", "-")
            raise Unstated(message("untold.counted_in_samples" if in_samples else "untold.counted_in_iterations", flag=flag))
    if not (given := value(f"train_{counted}")):
        raise Unstated(message("untold.neither_set", name="--train-iters", other="--train-samples"))
    batch = _batch(configuration) if in_samples else 1
    total, unit = int(given // batch) if in_samples else int(given), float(batch)
    length = float(value(f"lr_decay_{counted}", given))
    warm, annealed = float(value(f"lr_warmup_{counted}") or 0), value(f"lr_wsd_decay_{counted}")
    if length <= 0 or total <= 0:
        raise Unstated(message("untold.no_length"))
    if not math.isfinite(length + warm) or total > MOST_STEPS:
        raise Unstated(message("untold.too_long"))
    if style not in MEGATRON_STYLES:
        raise Unstated(message("untold.not_known", name="--lr-decay-style", value=style))
    fraction = value("lr_warmup_fraction")
    warm = float(fraction) * length if fraction is not None else warm
    wsd_style = str(value("lr_wsd_decay_style", "exponential"))
    if style == "WSD" and annealed is None:
        raise Unstated(message("untold.without", name="--lr-decay-style WSD", other="--lr-wsd-decay-iters"))

    def rate(at: Floats) -> Floats:
        count = np.asarray(at, np.float64) * unit
        rates = np.full(count.shape, peak)
        if style == "inverse-square-root":  # which Megatron counts in samples, whichever way the length was given
            samples = 1 if unit != 1.0 else _batch(configuration)
            rates = np.maximum(lowest, peak * math.sqrt(max(warm * samples, 1)) / np.sqrt(np.maximum(count * samples, 1)))
        elif style != "constant":
            part = np.clip((count - warm) / max(length - warm, 1e-300), 0.0, 1.0)
            rates = lowest + _decay(style, part, count, length, annealed, wsd_style) * (peak - lowest)
        if style != "constant":
            rates = np.where(count > length, lowest, rates)
        return np.where((warm > 0) & (count <= warm), start + (peak - start) * count / max(warm, 1e-300), rates)

    shape = message("schedule.constant", steps=total)
    if style != "constant":
        shape = message("schedule.falling", style=style, lowest=lowest, last=length / unit, steps=total)
    if warm:
        return Schedule(rate, total, message("schedule.warmed", warm=warm / unit, first=start, last=peak, rest=shape))
    return Schedule(rate, total, message("schedule.peak", rate=peak, rest=shape))


def _batch(configuration: Configuration) -> int:
    if (batch := value_of(configuration, ("global_batch_size",), None)) is None:
        raise Unstated(message("untold.without", name="--train-samples", other="--global-batch-size"))
    return int(batch)


LEFT: dict[str, Callable[[Floats], Floats]] = {
    "linear": lambda part: 1.0 - part,
    "cosine": lambda part: 0.5 * (np.cos(math.pi * part) + 1.0),
    "exponential": lambda part: 2.0 * 0.5**part - 1.0,
    "minus_sqrt": lambda part: 1.0 - np.sqrt(part),
}
"""A style to how much of the way from the lowest rate to the peak is left after a part of a decay."""


def _decay(style: str, part: Floats, count: Floats, length: float, annealed: Setting, wsd_style: str) -> Floats:
    """Return how much of the way from the lowest rate to the peak is left; WSD decays only at the end, in a style of its own."""
    if style != "WSD":
        return LEFT[style](part)
    if wsd_style not in LEFT:
        raise Unstated(message("untold.not_known", name="--lr-wsd-decay-style", value=wsd_style))
    return LEFT[wsd_style](np.clip((count - (length - float(annealed))) / float(annealed), 0.0, 1.0))


# ---- MindFormers

Rates: TypeAlias = Callable[[Floats], Floats]
"""Steps to the rate of each."""


def _setting(configuration: Configuration, name: str, default: Setting = None) -> Setting:
    return value_of(configuration, schedule_keys(name), default)


class Setup(Struct, frozen=True):
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
        """The length; raises Unknown where only the data has it."""
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
BY_RATIO = {"CosineWithWarmUpLR": True, "CosineWithRestartsAndWarmUpLR": False}
"""Schedules that check for their end before their warm-up, and whether ``decay_ratio`` may say it."""


# ---- either


def learning_rate(configuration: Configuration) -> Schedule:
    """Return the learning rate of a configuration.

    :raises Unknown: something that the schedule needs is not set, or is not known.
    """
    return mindformers_rate(configuration) if configuration.side == MINDFORMERS else megatron_rate(configuration)


def steps_made(configuration: Configuration) -> int | None:
    """Return the steps of a run by its learning rate's schedule; None where that does not say it."""
    try:
        return learning_rate(configuration).steps
    except (Unknown, *ODD):
        return None


def weight_decay(configuration: Configuration) -> Schedule:
    """Return the weight decay of every step, which changes only by Megatron's ``--start-`` and ``--end-weight-decay``.

    :raises Unknown: something that the schedule needs is not set, or is not known.
    """
    keys, default = (("optimizer.weight_decay",), 0.0) if configuration.side == MINDFORMERS else (("weight_decay",), 0.01)
    decay, style = float(value_of(configuration, keys, default)), str(value_of(configuration, ("weight_decay_incr_style",), "constant"))
    if style == "constant":
        return Schedule(lambda at: np.full(np.shape(at), decay), steps_made(configuration), f"{decay:.7g}")
    first, last = needed(configuration, "start_weight_decay"), needed(configuration, "end_weight_decay")
    steps = megatron_rate(configuration).steps or 1
    samples, batch = value_of(configuration, ("train_samples",), None), value_of(configuration, ("global_batch_size",), None)
    length = samples / batch if batch and is_in_samples(configuration) else steps

    def rate(at: Floats) -> Floats:
        part = np.clip(np.asarray(at, np.float64) / length, 0.0, 1.0)
        return first + (part if style == "linear" else 0.5 * (np.cos(math.pi * (1 - part)) + 1.0)) * (last - first)

    return Schedule(rate, steps, message("schedule.ramp", style=style, first=first, last=last))


# ---- why settings of two schedules need not agree

STYLES = {
    "ConstantWarmUpLR": "constant",
    "LinearWithWarmUpLR": "linear",
    "CosineWithWarmUpLR": "cosine",
    "CosineAnnealingLR": "cosine",
    "WarmUpStableDecayLR": "wsd",
    "WSD": "wsd",
}
"""Names of the same shape of a schedule."""


def shape_of(kind: Setting) -> Setting:
    """Return the one name of a schedule's shape, whatever the framework calls it."""
    return STYLES.get(schedule_class(kind), text(schedule_class(kind)))


def same_schedule(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why two schedules' settings need not agree: both give the same rate, within float32's rounding, at every step."""
    try:
        errors = differences(learning_rate(reference), learning_rate(candidate))[1]
    except Unstated:
        return None
    return None if (errors > RATE).any() else message("harmless.same_rates")


def same_rates(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why the highest rates need not agree; None where these differ, whatever else is not known."""
    with suppress(Unknown):
        return same_schedule(reference, candidate)
    return None


def same_end(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why the lowest rates need not agree: the schedules are the same, or constant."""
    kinds = [c.find(("lr_decay_style", *schedule_keys("type"))) for c in (reference, candidate)]
    constant = all(kind is not None and shape_of(kind.value) == "constant" for kind in kinds)
    return same_schedule(reference, candidate) or (message("harmless.constant_rates") if constant else None)


def warms_by_a_part(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why steps of warm-up need not agree: a side has them as a part of the schedule, which is another row."""
    by_parts = any(map(_part, (reference, candidate))) and not _may_be_those_steps(reference, candidate)
    return same_schedule(reference, candidate) or (message("harmless.as_a_part") if by_parts else None)


def warms_by_steps(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why parts of a schedule need not agree: one of unknown length may come to the other side's steps."""
    by_steps = _may_be_those_steps(reference, candidate)
    return same_schedule(reference, candidate) or (message("harmless.as_steps") if by_steps else None)


def _part(c: Configuration) -> Setting:
    return value_of(c, ("lr_warmup_fraction", *schedule_keys("warmup_ratio")), None)


def _may_be_those_steps(*sides: Configuration) -> bool:
    """Return whether a side warms up by a part of an unknown length, and the other by as many steps of its own."""
    of_mindformers = mindformers_warmup, length_of_schedule
    kinds = [of_mindformers if c.side == MINDFORMERS else (megatron_warmup, megatron_decay_length) for c in sides]
    for at, other in ((0, 1), (1, 0)):
        part, steps, length = _part(sides[at]), *(of_side(sides[other]) for of_side in kinds[other])
        if part and not _part(sides[other]) and kinds[at][0](sides[at]) is UNSET:
            return not are_numbers(part, steps, length) or abs(part * length - steps) < 1
    return False


def by_steps(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why a length in samples need not agree: schedules are compared in steps."""
    return message("harmless.in_steps")
