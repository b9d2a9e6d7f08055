"""Overlaps and recomputation, as each side sets them."""

from __future__ import annotations

from align_hooks.checklist.meaning import Switched
from align_hooks.checklist.readings.lookup import is_on, value_of
from align_hooks.configuration.values import Configuration, Setting


def overlap(c: Configuration) -> Setting:
    """Return which communication runs beside the computation."""
    names = ("overlap_grad_reduce", "overlap_param_gather", "tp_comm_overlap", "overlap_moe_expert_parallel_comm")
    on = tuple(name for name in names if is_on(c, name))
    return Switched(on) if on else None


def megatron_recomputes(c: Configuration) -> Setting:
    """Return what is computed again in the backward pass."""
    return value_of(c, ("recompute_granularity",), lambda c: "selective" if is_on(c, "recompute_activations") else None)


def mindformers_recomputes(c: Configuration) -> Setting:
    """Return what is computed again in the backward pass."""
    full, selective = (value_of(c, (f"recompute_config.{name}",), False) for name in ("recompute", "select_recompute"))
    return "full" if full else "selective" if selective else None
