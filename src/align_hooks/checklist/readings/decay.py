"""Which weights decay, and how much: of a record as the optimizers' own groups hold it, else by each framework's rule.

Megatron's rule is ``_get_param_groups`` of ``megatron.core.optimizer``, MindFormers' ``get_optimizer_grouped_parameters``: both spare
biases and one-dimensional weights.
"""

from __future__ import annotations

from typing import Any

from align_hooks.checklist.readings.said import number, said
from align_hooks.configuration.values import MINDFORMERS, Configuration

RULE = "all but biases and one-dimensional weights"


def decaying(c: Configuration) -> Any:
    """The rule in words, or the canonical names of the weights that decay where a record shows that it was another."""
    groups = c.fact("optimizer.groups")
    if isinstance(groups, list) and groups:
        everything = {name for group in groups for name in group.get("parameters") or ()}
        decays = frozenset(name for group in groups if group.get("weight_decay") for name in group.get("parameters") or ())
        if not decays:
            return "none"
        return RULE if decays == {name for name in everything if not spared(name)} else decays
    if not strength(c):
        return "none"
    if c.side != MINDFORMERS and (said(c, ("apply_wd_to_qk_layernorm",), False) or said(c, ("no_weight_decay_cond_type",), None)):
        return f"{RULE}, and norms of queries and keys"
    return RULE


def without(one: Configuration, other: Configuration) -> str:
    """Whether one side decays nothing, which the strength says already."""
    return "one side decays nothing: weight_decay says so" if not (strength(one) and strength(other)) else ""


def spared(name: str) -> bool:
    """Whether a canonical name is of a bias or of a norm, whose weights have one dimension."""
    return name.endswith(".bias") or "norm" in name.rpartition(".")[0].rpartition(".")[2]


def strength(c: Configuration) -> Any:
    """Weight decay of the weights that decay."""
    groups = c.fact("optimizer.groups")
    if isinstance(groups, list) and groups:
        return max((group.get("weight_decay") or 0.0 for group in groups), default=0.0)
    return number(c, ("optimizer.weight_decay",), 0.0) if c.side == MINDFORMERS else number(c, ("weight_decay",), 0.01)


def told(one: Any, other: Any) -> str:
    """Which weights decay on one side only."""
    if not (isinstance(one, frozenset) or isinstance(other, frozenset)):
        return ""
    if not (isinstance(one, frozenset) and isinstance(other, frozenset)):
        names = sorted(name for name in (one if isinstance(one, frozenset) else other) if spared(name))
        return (
            f"{names[0]} decays on one side" + (f", and {len(names) - 1} more that the rule spares" if len(names) > 1 else "")
            if names
            else ""
        )
    names = sorted(one ^ other)
    return f"{names[0]} decays on one side only" + (f", and {len(names) - 1} more" if len(names) > 1 else "")
