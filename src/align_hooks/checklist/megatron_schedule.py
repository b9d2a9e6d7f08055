"""Megatron-LM's learning rate and weight decay of every step.

The formulas of ``megatron.core.optimizer_param_scheduler.OptimizerParamScheduler`` on what ``get_optimizer_param_scheduler`` of
``megatron.training`` gives it; tests hold them against that class. It counts in samples, here in steps where its length is in steps.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from align_hooks.checklist.schedule import Floats, NotTold, Schedule, needed, value_of
from align_hooks.configuration.values import Configuration
from align_hooks.messages import message

MIXED = {
    True: ("lr_decay_iters", "lr_warmup_iters"),
    False: ("lr_decay_samples", "lr_warmup_samples"),
}
"""Whether a run is counted in samples, and what ``validate_args`` refuses of it."""
LONGEST = 10**12
STYLES = ("constant", "linear", "cosine", "inverse-square-root", "WSD")


def is_in_samples(configuration: Configuration) -> bool:
    """Whether a run is counted in samples. Of such a run Megatron fills the iterations in, so that a record holds both."""
    samples, steps = (value_of(configuration, (name,)) for name in ("train_samples", "train_iters"))
    return bool(samples and (not steps or configuration.facts is not None))


def megatron_rate(configuration: Configuration) -> Schedule:
    """What ``get_optimizer_param_scheduler`` builds and ``OptimizerParamScheduler.get_lr`` gives."""

    def said(name: str, default: Any = None) -> Any:
        return value_of(configuration, (name,), default)

    peak, lowest, start = float(needed(configuration, "lr", "--lr")), float(said("min_lr") or 0.0), float(said("lr_warmup_init") or 0.0)
    style = str(said("lr_decay_style", "linear"))
    samples, steps = said("train_samples"), said("train_iters")
    in_samples = is_in_samples(configuration)
    mixed = [name for name in MIXED[in_samples] if said(name)]
    if mixed:
        flag = "--" + mixed[0].replace("_", "-")
        raise NotTold(message("untold.counted_in_samples" if in_samples else "untold.counted_in_iterations", flag=flag))
    if in_samples:
        batch = _batch(configuration)
        length = float(samples if said("lr_decay_samples") is None else said("lr_decay_samples"))
        warm, annealed = float(said("lr_warmup_samples") or 0), said("lr_wsd_decay_samples")
        total, unit = int(samples // batch), float(batch)
    elif steps:
        length = float(steps if said("lr_decay_iters") is None else said("lr_decay_iters"))
        warm, annealed, total, unit = float(said("lr_warmup_iters") or 0), said("lr_wsd_decay_iters"), int(steps), 1.0
    else:
        raise NotTold(message("untold.neither_set", name="--train-iters", other="--train-samples"))
    if length <= 0 or total <= 0:
        raise NotTold(message("untold.no_length"))
    if not math.isfinite(length + warm) or total > LONGEST:
        raise NotTold(message("untold.too_long"))
    if style not in STYLES:
        raise NotTold(message("untold.not_known", name="--lr-decay-style", value=style))
    fraction = said("lr_warmup_fraction")
    warm = float(fraction) * length if fraction is not None else warm
    wsd_style = str(said("lr_wsd_decay_style", "exponential"))
    if style == "WSD" and annealed is None:
        raise NotTold(message("untold.without", name="--lr-decay-style WSD", other="--lr-wsd-decay-iters"))

    def rate(at: Floats) -> Floats:
        now = np.asarray(at, np.float64) * unit
        found = np.full(now.shape, peak)
        if style != "constant":
            part = np.clip((now - warm) / max(length - warm, 1e-300), 0.0, 1.0)
            if style == "inverse-square-root":
                found = np.maximum(
                    lowest, peak * math.sqrt(max(_scaled(warm, unit, configuration), 1)) / np.sqrt(_counted(now, unit, configuration))
                )
            else:
                found = lowest + _decay(style, part, now, length, annealed, wsd_style) * (peak - lowest)
            found = np.where(now > length, lowest, found)
        return np.where((warm > 0) & (now <= warm), start + (peak - start) * now / max(warm, 1e-300), found)

    shape = (
        message("schedule.constant", steps=total)
        if style == "constant"
        else message("schedule.falling", style=style, lowest=lowest, last=length / unit, steps=total)
    )
    if warm:
        return Schedule(rate, total, message("schedule.warmed", warm=warm / unit, first=start, last=peak, rest=shape))
    return Schedule(rate, total, message("schedule.peak", rate=peak, rest=shape))


def _batch(configuration: Configuration) -> int:
    batch = value_of(configuration, ("global_batch_size",))
    if batch is None:
        raise NotTold(message("untold.without", name="--train-samples", other="--global-batch-size"))
    return int(batch)


def _scaled(warm: float, unit: float, configuration: Configuration) -> float:
    """Megatron counts the inverse square root in samples, whichever way its length was given."""
    return warm if unit != 1.0 else warm * _batch(configuration)


def _counted(now: Floats, unit: float, configuration: Configuration) -> Floats:
    found: Floats = np.maximum(now if unit != 1.0 else now * _batch(configuration), 1)
    return found


def _decay(style: str, part: Floats, now: Floats, length: float, annealed: Any, wsd_style: str) -> Floats:
    """How much of the way from the lowest to the peak is left."""
    if style == "linear":
        return 1.0 - part
    if style == "cosine":
        left: Floats = 0.5 * (np.cos(math.pi * part) + 1.0)
        return left
    if style == "WSD":
        gone = np.clip((now - (length - float(annealed))) / float(annealed), 0.0, 1.0)
        shapes = {
            "linear": 1.0 - gone,
            "cosine": 0.5 * (np.cos(math.pi * gone) + 1.0),
            "exponential": 2.0 * 0.5**gone - 1.0,
            "minus_sqrt": 1.0 - np.sqrt(gone),
        }
        if wsd_style in shapes:
            found: Floats = shapes[wsd_style]
            return found
        raise NotTold(message("untold.not_known", name="--lr-wsd-decay-style", value=wsd_style))
    raise NotTold(message("untold.not_known", name="--lr-decay-style", value=style))
