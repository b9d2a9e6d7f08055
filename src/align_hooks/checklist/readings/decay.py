"""Which weights decay, and how much: of a record as the optimizers' own groups hold it, else by each framework's rule.

Megatron's rule is ``_get_param_groups`` of ``megatron.core.optimizer``, MindFormers' ``get_optimizer_grouped_parameters``: both spare
biases and one-dimensional weights.
"""

from __future__ import annotations

from typing import Any

from align_hooks.checklist.meaning import Decays, Words
from align_hooks.checklist.readings.said import number, said
from align_hooks.configuration.values import MINDFORMERS, Configuration
from align_hooks.messages import message


def decaying(c: Configuration) -> Any:
    """The rule, or the canonical names of the weights that decay where a record shows that it was another."""
    groups = c.fact("optimizer.groups")
    if isinstance(groups, list) and groups:
        everything = {name for group in groups for name in group.get("parameters") or ()}
        decays = frozenset(name for group in groups if group.get("weight_decay") for name in group.get("parameters") or ())
        if not decays:
            return Decays.NOTHING
        return Decays.RULE if decays == {name for name in everything if not spared(name)} else decays
    if not strength(c):
        return Decays.NOTHING
    if c.side != MINDFORMERS and (said(c, ("apply_wd_to_qk_layernorm",), False) or said(c, ("no_weight_decay_cond_type",), None)):
        return Decays.RULE_AND_NORMS
    return Decays.RULE


def without(one: Configuration, other: Configuration) -> Words | None:
    """Whether one side decays nothing, which the strength says already."""
    return message("harmless.no_decay") if not (strength(one) and strength(other)) else None


def spared(name: str) -> bool:
    """Whether a canonical name is of a bias or of a norm, whose weights have one dimension."""
    return name.endswith(".bias") or "norm" in name.rpartition(".")[0].rpartition(".")[2]


def strength(c: Configuration) -> Any:
    """Weight decay of the weights that decay."""
    groups = c.fact("optimizer.groups")
    if isinstance(groups, list) and groups:
        return max((group.get("weight_decay") or 0.0 for group in groups), default=0.0)
    return number(c, ("optimizer.weight_decay",), 0.0) if c.side == MINDFORMERS else number(c, ("weight_decay",), 0.01)


def told(one: Any, other: Any) -> Words | None:
    """Which weights decay on one side only."""
    if not (isinstance(one, frozenset) or isinstance(other, frozenset)):
        return None
    if not (isinstance(one, frozenset) and isinstance(other, frozenset)):
        names = sorted(name for name in (one if isinstance(one, frozenset) else other) if spared(name))
        if not names:
            return None
        more = len(names) - 1
        return message("apart.decays_and_more", name=names[0], more=more) if more else message("apart.decays", name=names[0])
    names = sorted(one ^ other)
    more = len(names) - 1
    return message("apart.decays_only_and_more", name=names[0], more=more) if more else message("apart.decays_only", name=names[0])
