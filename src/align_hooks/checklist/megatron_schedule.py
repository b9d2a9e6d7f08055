"""Megatron-LM's learning rate and weight decay of every step.

The formulas of ``OptimizerParamScheduler`` on what ``get_optimizer_param_scheduler`` gives it; tests compare them with that class,
which counts in samples, here in steps where its length is in steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from align_hooks.checklist.readings.lookup import Unstated, value_of
from align_hooks.checklist.schedule import Floats, Schedule, needed
from align_hooks.configuration.values import Configuration, Setting
from align_hooks.messages import message

LONGEST = 10**12
"""The most steps of a run."""
STYLES = ("constant", "linear", "cosine", "inverse-square-root", "WSD")


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
    if not math.isfinite(length + warm) or total > LONGEST:
        raise Unstated(message("untold.too_long"))
    if style not in STYLES:
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
