"""Whether a pair keeps to the set-ups that the guide describes."""

from __future__ import annotations

from typing import Any

from align_hooks.checklist.defaults import default
from align_hooks.checklist.meaning import Way, Ways
from align_hooks.checklist.readings.said import known, number, said
from align_hooks.checklist.readings.training import schedule_keys
from align_hooks.checklist.row import model
from align_hooks.configuration.values import MINDFORMERS, Configuration


def warm(c: Configuration) -> Any:
    """Steps, samples or part of the run that warm up."""
    names = (
        (*schedule_keys("warmup_steps"), *schedule_keys("warmup_ratio"))
        if c.side == MINDFORMERS
        else ("lr_warmup_iters", "lr_warmup_samples", "lr_warmup_fraction")
    )
    return next((value for name in names for value in [number(c, (name,), 0)] if value), 0)


def dropout(c: Configuration) -> Any:
    """The larger of the two rates."""
    if c.side == MINDFORMERS:
        rates = [number(c, model(name), default(name)) for name in ("attention_dropout", "hidden_dropout")]
    else:
        rates = [number(c, (name,), 0.1) for name in ("attention_dropout", "hidden_dropout")]
    return max(rates) if known(*rates) else rates[0]


def split(c: Configuration) -> Any:
    """Which ways of splitting a model are on."""
    if c.side == MINDFORMERS:
        sizes = {
            Way.TENSOR: "parallel_config.model_parallel",
            Way.PIPELINE: "parallel_config.pipeline_stage",
            Way.CONTEXT: "parallel_config.context_parallel",
        }
        flags = {Way.SEQUENCE: "parallel_config.use_seq_parallel", Way.OPTIMIZER: "parallel.enable_parallel_optimizer"}
    else:
        sizes = {
            Way.TENSOR: "tensor_model_parallel_size",
            Way.PIPELINE: "pipeline_model_parallel_size",
            Way.CONTEXT: "context_parallel_size",
        }
        flags = {Way.SEQUENCE: "sequence_parallel", Way.OPTIMIZER: "use_distributed_optimizer"}
    on = [way for way, key in sizes.items() for size in [number(c, (key,), 1)] if known(size) and size > 1]
    on += [way for way, key in flags.items() if said(c, (key,), False) is True]
    return Ways(tuple(on))
