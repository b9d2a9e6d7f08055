"""Which weights decay, and how much: by a record's groups of the optimizer, else by each framework's rule.

Megatron's ``_get_param_groups`` and MindFormers' ``get_optimizer_grouped_parameters`` both spare biases and one-dimensional weights.
"""

from __future__ import annotations

from align_hooks.checklist.meaning import Decays, Words
from align_hooks.checklist.readings.lookup import all_sides, value_of
from align_hooks.configuration.values import MINDFORMERS, Configuration, Setting
from align_hooks.messages import message


def decaying(c: Configuration) -> Setting:
    """Return the framework's rule; where a record shows another, the canonical names of the weights that decay."""
    groups = c.fact("optimizer.groups")
    if isinstance(groups, list) and groups:
        everything = {name for group in groups for name in group.get("parameters") or ()}
        decays = frozenset(name for group in groups if group.get("weight_decay") for name in group.get("parameters") or ())
        if not decays:
            return Decays.NOTHING
        return Decays.RULE if decays == {name for name in everything if not spared(name)} else decays
    if not strength(c):
        return Decays.NOTHING
    if c.side != MINDFORMERS and (value_of(c, ("apply_wd_to_qk_layernorm",), False) or value_of(c, ("no_weight_decay_cond_type",), None)):
        return Decays.RULE_AND_NORMS
    return Decays.RULE


def nothing_decays(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why weights that decay need not agree: a side decays nothing, which the strength says."""
    return None if all_sides(strength, reference, candidate) else message("harmless.no_decay")


def spared(name: str) -> bool:
    """Return whether a canonical name is of a bias or of a norm, whose weights have one dimension."""
    return name.endswith(".bias") or "norm" in name.rpartition(".")[0].rpartition(".")[2]


def strength(c: Configuration) -> Setting:
    """Return the weight decay of the weights that decay."""
    groups = c.fact("optimizer.groups")
    if isinstance(groups, list) and groups:
        return max((group.get("weight_decay") or 0.0 for group in groups), default=0.0)
    return value_of(c, ("optimizer.weight_decay",), 0.0) if c.side == MINDFORMERS else value_of(c, ("weight_decay",), 0.01)


def unless_constant(c: Configuration, name: str) -> Setting:
    """Return an end of the weight decay's change; None where the decay is constant."""
    constant = value_of(c, ("weight_decay_incr_style",), "constant") == "constant"
    return None if constant else value_of(c, (name,), None)


def differences(reference: Setting, candidate: Setting) -> Words | None:
    """Return the weights that decay on one side only; where only one side has names, those that the other's rule spares."""
    by_name = [names for names in (reference, candidate) if isinstance(names, frozenset)]
    names = sorted(reference ^ candidate) if len(by_name) == 2 else sorted(name for names in by_name for name in names if spared(name))
    if not names:
        return None
    name, more = names[0], len(names) - 1
    if more:
        return message("apart.decays_only_and_more" if len(by_name) == 2 else "apart.decays_and_more", name=name, more=more)
    return message("apart.decays_only" if len(by_name) == 2 else "apart.decays", name=name)
