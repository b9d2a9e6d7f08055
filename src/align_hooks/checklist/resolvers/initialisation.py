"""Where a side loads its first weights from, and how it spreads those that it draws."""

from __future__ import annotations

from align_hooks.checklist.canonical_values import UNSET, Spread, Words
from align_hooks.checklist.edits import named
from align_hooks.checklist.lookup import Unstated, all_sides, is_new, model, value_of
from align_hooks.checklist.mindformers_models import default
from align_hooks.checklist.resolvers.experts import mindformers_experts
from align_hooks.checklist.resolvers.hybrid import is_of_blocks
from align_hooks.configuration.hybrid import PATTERNS
from align_hooks.configuration.values import MINDFORMERS, Configuration, Setting
from align_hooks.messages import Message, Side, message

HYBRID = (*PATTERNS, "is_hybrid_model")
"""Settings of a HybridModel, each of whose layers adds to the residual once; a pair of them twice, as a layer of a GPTModel."""
RULES = model("param_init_std_rules")
LOADED, OF_MODEL = ("load_checkpoint", "checkpoint.load_path"), model("checkpoint_name_or_path")


def loads(c: Configuration) -> Setting:
    """Return where the weights are loaded from; None where they are random."""
    if recorded := c.fact("settings.load_weights"):
        return recorded
    names: tuple[str, ...] = LOADED if c.side == MINDFORMERS else ("load", "pretrained_checkpoint")
    if value_of(c, ("run_mode",), None) == "finetune" and value_of(c, ("auto_trans_ckpt",), False) is True:
        names = (*LOADED, *OF_MODEL)  # Trainer.finetune loads the model's own weights then, Trainer.train never
    return next((value for name in names for value in [value_of(c, (name,), None)] if value and value is not True), None)


def weights_loaded(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why initial weights need not agree: both sides load theirs."""
    if reference.fact("settings.load_weights") or candidate.fact("settings.load_weights"):
        return message("harmless.recorded_weights")
    return message("harmless.both_load") if all_sides(loads, reference, candidate) else None


def megatron_spread(c: Configuration) -> Setting:
    """Return the spread of ``scaled_init_method_normal``, as in MindSpeed-LLM; Xavier's initialisation replaces it."""
    if value_of(c, ("init_method_xavier_uniform",), False):
        return Spread.ALIKE
    given = [value for name in HYBRID if (value := value_of(c, (name,), None))]
    return Spread.BY_DEPTH if not given or is_of_blocks(c) else Spread.BY_DEPTH_ONCE


def both_draw(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why first weights are checked by hand: two files do not say whether ALIGN_HOOKS_LOAD_WEIGHTS gives both the same."""
    sides = (reference, candidate)
    files = all_sides(lambda c: c.facts is None and not loads(c), *sides)
    both_frameworks = {c.side == MINDFORMERS for c in sides} == {True, False}
    # where each draws its own, no setting makes MindFormers spread them as Megatron-LM does
    usual = all(megatron_spread(c) is Spread.BY_DEPTH for c in sides if c.side != MINDFORMERS)
    return message("by_hand.first_weights") if files and both_frameworks and usual else None


def load_too(reference: Configuration, candidate: Configuration) -> tuple[str, Message] | None:
    """Return the key and words for the weights that only one side loads; None where both or none do."""
    drawing = [(side, c) for side, c in zip(Side, (reference, candidate), strict=True) if not loads(c)]
    if len(drawing) != 1 or reference.side == candidate.side:
        return None
    side, c = drawing[0]
    key = "load_checkpoint" if c.side == MINDFORMERS else "load"
    return key, message("change.load_too", name=named(key, c.side), side=side)


def mindformers_spread(c: Configuration) -> Setting:
    """Return how newer models divide: as Megatron-LM, but not an expert's second layer (``FFNGroupedGEMM``); older ones never.

    :raises Unknown: the YAML gives weights a standard deviation of their own, by name.
    """
    if not is_new(c) or c.trainer:
        return Spread.ALIKE
    if value_of(c, RULES, None):
        raise Unstated(message("untold.initialised_by_name", name="param_init_std_rules"))
    experts = mindformers_experts(c)
    return UNSET if experts is UNSET else Spread.BY_DEPTH if experts is None else Spread.BY_DEPTH_BUT_EXPERTS


PYNATIVE_STD = 0.01
"""The standard deviation of every weight that the PyNative trainer draws (2.0, 2.1: ``reset_parameter`` of each Cell)."""


def spread(c: Configuration) -> Setting:
    """Return the standard deviation of MindFormers' first weights where no key says it."""
    return PYNATIVE_STD if c.trainer else default("init_method_std")(c)


def draws_alike(c: Configuration) -> Words | None:
    """Return why no key changes the first weights' standard deviation; None where one does."""
    return message("cannot.draws_alike", std=PYNATIVE_STD) if c.trainer else None
