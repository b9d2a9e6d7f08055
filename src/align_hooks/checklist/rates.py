"""Learning rate and weight decay of either side."""

from __future__ import annotations

import math

import numpy as np

from align_hooks.checklist.megatron_schedule import is_in_samples, megatron_rate
from align_hooks.checklist.mindformers_schedule import mindformers_rate
from align_hooks.checklist.readings.lookup import value_of
from align_hooks.checklist.schedule import Floats, Schedule, needed
from align_hooks.checklist.side_value import ODD
from align_hooks.configuration.values import MINDFORMERS, Configuration, Unknown
from align_hooks.messages import message


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
