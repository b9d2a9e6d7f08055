"""Fusions, overlaps and recomputation, as each side works them out."""

from __future__ import annotations

from typing import Any

from align_hooks.checklist.meaning import Names
from align_hooks.configuration.values import Configuration


def fused_norm(c: Configuration) -> Any:
    """Whether the norm is one kernel."""
    found = c.find(("no_persist_layer_norm",))
    return not (found is not None and found.value is True)


def overlap(c: Configuration) -> Any:
    """Which communication runs beside the computation."""
    names = ("overlap_grad_reduce", "overlap_param_gather", "tp_comm_overlap", "overlap_moe_expert_parallel_comm")
    on = [name for name in names for found in [c.find((name,))] if found is not None and found.value is True]
    return Names(tuple(on)) if on else None


def recomputes(c: Configuration) -> Any:
    """What is computed again in the backward pass."""
    found = c.find(("recompute_granularity",))
    flag = c.find(("recompute_activations",))
    return found.value if found is not None else "selective" if flag is not None and flag.value is True else None


def recomputes_too(c: Configuration) -> Any:
    """The same in MindFormers."""
    whole, parts = c.find(("recompute_config.recompute",)), c.find(("recompute_config.select_recompute",))
    return "full" if whole is not None and whole.value else "selective" if parts is not None and parts.value else None


def no_overlap(c: Configuration) -> Any:
    """MindFormers' groups of gradients change when they are reduced, and nothing that a name could say."""
    return None
