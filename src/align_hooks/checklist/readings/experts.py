"""Experts, their router and its losses, as each side works them out."""

from __future__ import annotations

import itertools
import re
from typing import Any

from align_hooks.checklist.defaults import EXPERT_SIZE, default, family
from align_hooks.checklist.meaning import Drops, ExpertLayers
from align_hooks.checklist.readings.said import EXPERT_NUM, LAYERS, known, number, said
from align_hooks.checklist.readings.structure import megatron_ffn, mindformers_ffn
from align_hooks.checklist.row import UNSET, is_new, model, text
from align_hooks.configuration.values import MINDFORMERS, Configuration


def megatron_experts(c: Configuration) -> Any:
    """Experts of a layer; none in a dense model."""
    return said(c, ("num_experts",), None) or None


def mindformers_experts(c: Configuration) -> Any:
    """Experts of a layer; the older models' 1 means none."""
    found = number(c, EXPERT_NUM, default("num_moe_experts"))
    return UNSET if found is UNSET else None if not found or (found == 1 and not is_new(c)) else found


def expert_layers(c: Configuration) -> Any:
    """Which layers have experts; UNSET where it cannot be told."""
    digits = _in_mindformers(c) if c.side == MINDFORMERS else _in_megatron(c)
    return ExpertLayers() if digits is None else in_runs(digits)


def _in_megatron(c: Configuration) -> Any:
    """One digit a layer, None in a dense model, from ``--moe-layer-freq``."""
    layers = said(c, ("num_layers", "encoder_num_layers"))
    return _layers(said(c, ("moe_layer_freq",), 1), layers) if megatron_experts(c) else None


def _in_mindformers(c: Configuration) -> Any:
    """The same from ``first_k_dense_replace`` or ``moe_layer_freq``."""
    dense = said(
        c, (*model("first_k_dense_replace"), "moe_config.first_k_dense_replace"), default("first_k_dense_replace") if is_new(c) else 0
    )
    every = said(c, model("moe_layer_freq"), 1)
    layers = number(c, LAYERS, default("num_layers"))
    if not mindformers_experts(c) or mindformers_experts(c) is UNSET:
        return None
    if family(c) == "qwen3_moe":
        return _layers(1, layers)
    if isinstance(dense, bool):
        dense = 0
    if known(dense, layers) and dense:
        return "0" * int(dense) + "1" * int(layers - dense)
    return _layers(every, layers)


LONGEST = 10_000
"""Layers of a model, and no more."""
PART = re.compile(r"(?:\[(?P<listed>[01](?:,[01])*)\]|\((?P<grouped>[^()]*)\))(?:\*(?P<times>\d{1,4}))?")


def in_runs(digits: Any) -> Any:
    """One digit a layer as layers in a row that are alike."""
    if not isinstance(digits, str):
        return digits
    return ExpertLayers(tuple((kind == "1", len(list(run))) for kind, run in itertools.groupby(digits)))


def _layers(every: Any, layers: Any) -> Any:
    """One digit a layer of a frequency, a list, or Megatron's ``([0]+[1]*3)*2``; UNSET where it cannot be told."""
    if not known(layers):
        return UNSET
    if isinstance(every, int):
        return "".join("1" if at % every == 0 else "0" for at in range(int(layers))) if every else UNSET
    if isinstance(every, list | tuple):
        return "".join(str(one) for one in every)
    return _unfold(str(every).replace(" ", ""))


def _unfold(pattern: str) -> Any:
    """Lists of 0 and 1 that are added and repeated, as Megatron evaluates them; nothing else is, and nothing is executed."""
    found, rest = "", pattern
    while rest:
        part = PART.match(rest)
        if part is None:
            return UNSET
        inner = part["listed"].replace(",", "") if part["listed"] else _unfold(part["grouped"])
        if not isinstance(inner, str):
            return UNSET
        found += inner * int(part["times"] or 1)
        rest = rest[part.end() :]
        if len(found) > LONGEST or (rest and not rest.startswith("+")):
            return UNSET
        rest = rest.removeprefix("+")
    return found or UNSET


def megatron_expert_ffn(c: Configuration) -> Any:
    """Hidden size of one expert; that of a dense layer where nothing is said."""
    return said(c, ("moe_ffn_hidden_size",), megatron_ffn)


def mindformers_expert_ffn(c: Configuration) -> Any:
    """The same."""
    given = number(c, model("moe_intermediate_size", "moe_ffn_hidden_size"))
    if not is_new(c):
        return mindformers_ffn(c)
    return given if given is not UNSET else UNSET if c.unread else EXPERT_SIZE.get(family(c) or "", mindformers_ffn(c))


def megatron_shared_ffn(c: Configuration) -> Any:
    """Hidden size of all shared experts together, None without any."""
    return said(c, ("moe_shared_expert_intermediate_size",), None)


def mindformers_shared_ffn(c: Configuration) -> Any:
    """The same: their number times the size of one, unless it is given."""
    given = number(c, model("moe_shared_expert_intermediate_size"), None)
    count = number(c, (*model("n_shared_experts", "shared_expert_num"), "moe_config.shared_expert_num"), default("shared_expert_num"))
    size = mindformers_expert_ffn(c)
    if given or count is UNSET or size is UNSET:
        return given or UNSET
    return count * size if count else None


def megatron_score(c: Configuration) -> Any:
    """How the router scores."""
    return said(c, ("moe_router_score_function",), "softmax")


def mindformers_score(c: Configuration) -> Any:
    """The same; older names are a Boolean for the sigmoid."""
    given = said(c, model("moe_router_score_function"))
    older = said(c, (*model("use_gating_sigmoid"), "moe_config.use_gating_sigmoid"))
    hugging = said(c, model("scoring_func"))
    if given is UNSET and older is not UNSET:
        return "sigmoid" if older else "softmax"
    return given if given is not UNSET else hugging if hugging is not UNSET else default("moe_router_score_function")(c)


def megatron_normalised(c: Configuration) -> Any:
    """Whether the weights of a token's experts add up to one: after the choice for softmax, always for a sigmoid of several."""
    if said(c, ("moe_router_score_function",), "softmax") == "sigmoid":
        return said(c, ("moe_router_topk",), 2) > 1
    return not said(c, ("moe_router_pre_softmax",), False)


def mindformers_normalised(c: Configuration) -> Any:
    """``norm_topk_prob``."""
    c.find(model("moe_router_pre_softmax"))
    return said(c, (*model("norm_topk_prob"), "moe_config.norm_topk_prob"), default("norm_topk_prob"))


def megatron_auxiliary(c: Configuration) -> Any:
    """Weight of the load-balancing loss, 0 where there is none."""
    if said(c, ("moe_router_load_balancing_type",), "aux_loss") in ("none", "sinkhorn"):
        return 0.0
    found = said(c, ("moe_aux_loss_coeff",), 0.0)
    return found[0] if isinstance(found, list) and len(found) == 1 else found


def mindformers_auxiliary(c: Configuration) -> Any:
    """The same."""
    c.find(model("router_aux_loss_coef", "aux_loss_alpha"))
    found = number(c, (*model("moe_aux_loss_coeff"), "moe_config.aux_loss_factor"), default("moe_aux_loss_coeff"))
    return found[0] if isinstance(found, list) and len(found) == 1 else found


def megatron_capacity(c: Configuration) -> Any:
    """Capacity factor of an expert, None where no token is dropped."""
    return said(c, ("moe_expert_capacity_factor",), None)


def mindformers_capacity(c: Configuration) -> Any:
    """The same; a negative factor means none, and the newer models drop no token whatever is said."""
    found = number(c, (*model("capacity_factor", "moe_expert_capacity_factor"), "moe_config.capacity_factor"), None if is_new(c) else 1.1)
    gathered = said(c, ("moe_config.use_gmm",), False)
    return None if is_new(c) or gathered or (known(found) and found < 0) else found


def megatron_dropping(c: Configuration) -> Any:
    """Which tokens an expert that is full drops."""
    return said(c, ("moe_token_drop_policy",), "probs") if megatron_capacity(c) is not None else Drops.NOTHING


def mindformers_dropping(c: Configuration) -> Any:
    """``enable_sdrop`` drops by position."""
    policy = said(c, (*model("moe_token_drop_policy", "enable_sdrop"), "moe_config.enable_sdrop"), False)
    if mindformers_capacity(c) is None:
        return Drops.NOTHING
    return policy if isinstance(policy, str) else "position" if policy else "probs"


def mindformers_balancing(c: Configuration) -> Any:
    """How the newer models balance where nothing is said."""
    return default("moe_router_load_balancing_type")(c) if is_new(c) else "aux_loss"


def balancing(kind: Any) -> Any:
    """One name for one way of balancing."""
    name = text(kind[0] if isinstance(kind, list) and len(kind) == 1 else kind)
    return "global_aux_loss" if name == "gbs_aux_loss" else name
