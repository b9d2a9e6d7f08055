"""Whether a side keeps to the set-ups that the guide describes."""

from __future__ import annotations

from align_hooks.checklist.defaults import default
from align_hooks.checklist.meaning import ParallelAxis, Switched
from align_hooks.checklist.readings.lookup import are_numbers, value_of
from align_hooks.checklist.readings.schedule import schedule_keys
from align_hooks.checklist.row import model
from align_hooks.configuration.values import MINDFORMERS, Configuration, Setting


def warm(c: Configuration) -> Setting:
    """Return the steps, samples or part of the run that warm up."""
    mindformers, megatron = ("warmup_steps", "warmup_ratio"), ("lr_warmup_iters", "lr_warmup_samples", "lr_warmup_fraction")
    names = [key for name in mindformers for key in schedule_keys(name)] if c.side == MINDFORMERS else megatron
    return next((value for name in names for value in [value_of(c, (name,), 0)] if value), 0)


def dropout(c: Configuration) -> Setting:
    """Return the larger of the two rates."""
    of_mindformers, names = c.side == MINDFORMERS, ("attention_dropout", "hidden_dropout")
    rates = [value_of(c, model(name), default(name)) if of_mindformers else value_of(c, (name,), 0.1) for name in names]
    return max(rates) if are_numbers(*rates) else rates[0]


SPLITS = {
    ParallelAxis.TENSOR: ("tensor_model_parallel_size", "parallel_config.model_parallel"),
    ParallelAxis.PIPELINE: ("pipeline_model_parallel_size", "parallel_config.pipeline_stage"),
    ParallelAxis.CONTEXT: ("context_parallel_size", "parallel_config.context_parallel"),
    ParallelAxis.SEQUENCE: ("sequence_parallel", "parallel_config.use_seq_parallel"),
    ParallelAxis.OPTIMIZER: ("use_distributed_optimizer", "parallel.enable_parallel_optimizer"),
}
"""Ways of splitting a model: Megatron's setting and MindFormers', a number of ranks or a switch."""


def split(c: Configuration) -> Setting:
    """Return the ways of splitting a model that are on."""
    set_to = {way: value_of(c, (keys[c.side == MINDFORMERS],), None) for way, keys in SPLITS.items()}
    switches = (ParallelAxis.SEQUENCE, ParallelAxis.OPTIMIZER)
    return Switched(tuple(way for way, size in set_to.items() if (size is True if way in switches else are_numbers(size) and size > 1)))
