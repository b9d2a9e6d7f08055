"""Overlaps and recomputation, as each side works them out."""

from __future__ import annotations

from align_hooks.checklist.meaning import Switched
from align_hooks.checklist.readings.lookup import is_on
from align_hooks.configuration.values import Configuration, Setting


def overlap(c: Configuration) -> Setting:
    """Which communication runs beside the computation."""
    names = ("overlap_grad_reduce", "overlap_param_gather", "tp_comm_overlap", "overlap_moe_expert_parallel_comm")
    on = tuple(name for name in names if is_on(c, name))
    return Switched(on) if on else None


def megatron_recomputes(c: Configuration) -> Setting:
    """What is computed again in the backward pass."""
    granularity = c.find(("recompute_granularity",))
    return granularity.value if granularity is not None else "selective" if is_on(c, "recompute_activations") else None


def mindformers_recomputes(c: Configuration) -> Setting:
    """What is computed again in the backward pass."""
    whole, parts = c.find(("recompute_config.recompute",)), c.find(("recompute_config.select_recompute",))
    return "full" if whole is not None and whole.value else "selective" if parts is not None and parts.value else None
