"""Experts, their router and its losses, as each side computes them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from align_hooks.checklist.canonical_values import UNSET, Drops, ExpertLayers, Words
from align_hooks.checklist.lookup import EXPERT_NUM, LAYERS, LONGEST, Read, all_sides, are_numbers, by_side, is_new, is_on, model, value_of
from align_hooks.checklist.mindformers_models import DEEPSEEK, EXPERT_FFN, EXPERT_SIZE, FIRST_DENSE, default, family
from align_hooks.checklist.resolver import EditRequest, Edits, Resolver, one_key, one_more, resolver
from align_hooks.checklist.resolvers import mindspeed
from align_hooks.checklist.resolvers.structure import megatron_ffn, mindformers_ffn
from align_hooks.configuration.values import MEGATRON, Configuration, Setting
from align_hooks.messages import message

MOVES_THE_BIAS = "TopkBiasBalanceCallback"


def megatron_experts(c: Configuration) -> Setting:
    """Return the experts of a layer; None in a dense model."""
    return value_of(c, ("num_experts",), None) or None


def mindformers_experts(c: Configuration) -> Setting:
    """Return the experts of a layer; None in a dense model, which older models write as 1."""
    number = value_of(c, EXPERT_NUM, default("num_moe_experts"))
    return UNSET if number is UNSET else None if not number or (number == 1 and not is_new(c)) else number


@resolver
def megatron_expert_layers(c: Configuration) -> Setting:
    """Return which layers have experts by ``--moe-layer-freq``; none in a dense model, UNSET where that is not known."""
    if mindspeed.of_mindspeed(c):
        return in_runs(mindspeed.sparse_layers(c) if megatron_experts(c) else "")
    layers = value_of(c, ("num_layers", "encoder_num_layers"))
    return in_runs(layer_digits(value_of(c, ("moe_layer_freq",), 1), layers) if megatron_experts(c) else "")


@megatron_expert_layers.writer
def pattern_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield layers with experts by a frequency, or by a pattern as Megatron evaluates it."""
    yield from one_key(request)
    if isinstance(request.wanted, ExpertLayers):
        yield {"moe_layer_freq": "+".join(f"[{int(experts)}]*{count}" for experts, count in request.wanted.runs)}


@resolver
def mindformers_expert_layers(c: Configuration) -> Setting:
    """Return which layers have experts by ``first_k_dense_replace`` or ``moe_layer_freq``; none in a dense model, UNSET where not known."""
    dense = value_of(c, model("first_k_dense_replace"), default("first_k_dense_replace")) if is_new(c) else _dense_at_first(c)
    every, layers = value_of(c, model("moe_layer_freq"), 1), value_of(c, LAYERS, default("num_layers"))
    if (experts := mindformers_experts(c)) in (None, UNSET):
        return ExpertLayers() if experts is None else UNSET
    if family(c) != "qwen3_moe" and are_numbers(dense, layers) and dense and layers <= LONGEST:
        return in_runs("0" * int(dense) + "1" * int(layers - dense))
    return in_runs(layer_digits(1 if family(c) == "qwen3_moe" else every, layers))


@mindformers_expert_layers.writer
def expert_layers_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield layers with experts by how many dense ones come first, or by a list with a digit a layer."""
    yield from one_key(request)
    first, every = model("first_k_dense_replace", "moe_layer_freq")
    if isinstance(request.wanted, ExpertLayers) and {first, every} <= set(request.keys):
        yield {first: 0, every: [int(experts) for experts, count in request.wanted.runs for _ in range(count)]}


expert_layers = by_side(megatron_expert_layers, mindformers_expert_layers)


def _dense_at_first(c: Configuration) -> Setting:
    """Return the layers of an older model before its experts: 1, which is written True, by default in DeepSeek's; else 0."""
    dense = value_of(c, ("moe_config.first_k_dense_replace",), FIRST_DENSE)
    return (dense if are_numbers(dense) else int(bool(dense))) if family(c) in DEEPSEEK else 0


PART = re.compile(r"(?:\[(?P<listed>[01](?:,[01])*)\]|\((?P<grouped>[^()]*)\))(?:\*(?P<times>\d{1,4}))?")


def in_runs(digits: Setting) -> Setting:
    """Return digits, 1 for a layer with experts, as runs of alike layers."""
    if not isinstance(digits, str):
        return digits
    return ExpertLayers(tuple((kind == "1", len(list(run))) for kind, run in itertools.groupby(digits)))


def layer_digits(every: Setting, layers: Setting) -> Setting:
    """Return one digit a layer, from a frequency, a list, or Megatron's ``([0]+[1]*3)*2``; UNSET where not known."""
    if not are_numbers(layers) or layers > LONGEST:
        return UNSET
    if isinstance(every, int):
        return "".join("1" if at % every == 0 else "0" for at in range(int(layers))) if every else UNSET
    if isinstance(every, list | tuple):
        return "".join(map(str, every))
    return _unfold(str(every).replace(" ", ""))


def _unfold(pattern: str) -> Setting:
    """Return added and repeated lists of 0 and 1 as Megatron evaluates them, executing nothing; UNSET for any other text."""
    digits = ""
    while pattern:
        part = PART.match(pattern)
        inner = UNSET if part is None else part["listed"].replace(",", "") if part["listed"] else _unfold(part["grouped"])
        if part is None or not isinstance(inner, str):
            return UNSET
        digits += inner * int(part["times"] or 1)
        pattern = pattern[part.end() :]
        if len(digits) > LONGEST or (pattern and not pattern.startswith("+")):
            return UNSET
        pattern = pattern.removeprefix("+")
    return digits or UNSET


def megatron_expert_ffn(c: Configuration) -> Setting:
    """Return the hidden size of an expert, by default a dense layer's."""
    return value_of(c, ("moe_ffn_hidden_size",), megatron_ffn)


def mindformers_expert_ffn(c: Configuration) -> Setting:
    """Return the hidden size of an expert; newer families have defaults, and DeepSeek's older models with shared experts one."""
    size = value_of(c, model("moe_intermediate_size", "moe_ffn_hidden_size"))
    if not is_new(c):
        own = family(c) in DEEPSEEK and value_of(c, ("moe_config.shared_expert_num",), 0)
        return value_of(c, ("moe_config.moe_intermediate_size",), EXPERT_FFN) if own else mindformers_ffn(c)
    return size if size is not UNSET else UNSET if c.unread else EXPERT_SIZE.get(family(c) or "", mindformers_ffn(c))


def megatron_shared_ffn(c: Configuration) -> Setting:
    """Return the hidden size of all shared experts, None without any; MindSpeed-LLM may compute it of their number."""
    together = value_of(c, ("moe_shared_expert_intermediate_size",), None)
    if together is not None or not (count := value_of(c, ("n_shared_experts",), None)):
        return together
    return count * size if are_numbers(count, size := megatron_expert_ffn(c)) else UNSET


@resolver
def mindformers_shared_ffn(c: Configuration) -> Setting:
    """Return the hidden size of all shared experts, None without any; by default their number times an expert's."""
    together = value_of(c, model("moe_shared_expert_intermediate_size"), None)
    count = value_of(c, (*model("n_shared_experts", "shared_expert_num"), "moe_config.shared_expert_num"), default("shared_expert_num"))
    size = mindformers_expert_ffn(c)
    if together or count is UNSET or size is UNSET:
        return together or UNSET
    return count * size if count else None


@mindformers_shared_ffn.writer
def shared_experts_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield shared experts by their number, which times the size of an expert makes the size of all."""
    size = mindformers_expert_ffn(request.candidate)
    counts = [key for key in request.keys if not key.endswith("_intermediate_size")]
    if request.wanted is None:
        yield from ({key: 0} for key in counts)
    elif are_numbers(request.wanted, size) and size and request.wanted % size == 0:
        yield from ({key: int(request.wanted // size)} for key in counts)
    yield from one_key(request)


def mindformers_score(c: Configuration) -> Setting:
    """Return the router's score function; older models have a Boolean for the sigmoid."""
    function = value_of(c, model("moe_router_score_function"))
    sigmoid = value_of(c, (*model("use_gating_sigmoid"), "moe_config.use_gating_sigmoid"))
    of_hugging_face = value_of(c, model("scoring_func"), default("moe_router_score_function"))
    if function is UNSET and sigmoid is not UNSET:
        return "sigmoid" if sigmoid else "softmax"
    return of_hugging_face if function is UNSET else function


@resolver
def bias_is_moved(c: Configuration) -> Setting:
    """Return whether MindFormers moves the experts' bias after a step, which only a callback does."""
    callbacks = value_of(c, ("callbacks",), [])
    if not isinstance(callbacks, list):
        return UNSET
    return any(isinstance(one, dict) and one.get("type") == MOVES_THE_BIAS for one in callbacks)


bias_is_moved.writer(one_more({"type": MOVES_THE_BIAS}))


def megatron_normalised(c: Configuration) -> Setting:
    """Return whether the weights of a token's experts add up to one: softmax after the choice, a sigmoid of several."""
    if (by_type := mindspeed.weights_add_up(c) if mindspeed.of_mindspeed(c) else UNSET) is not UNSET:
        return by_type
    if value_of(c, ("moe_router_score_function",), "softmax") == "sigmoid":
        return value_of(c, ("moe_router_topk",), 2) > 1
    return not value_of(c, ("moe_router_pre_softmax",), False)


def mindformers_normalised(c: Configuration) -> Setting:
    """Return ``norm_topk_prob``; ``moe_router_pre_softmax`` has no effect."""
    return value_of(c, (*model("norm_topk_prob"), "moe_config.norm_topk_prob"), default("norm_topk_prob"))


def listed_loss(kind: str) -> Read:
    """Return a reader of the weight of one kind of load-balancing loss, which only DeepSeek's older models add."""

    def read(c: Configuration) -> Setting:
        kinds, weights = (value_of(c, (f"moe_config.aux_loss_{name}",), []) for name in ("types", "factors"))
        if family(c) not in DEEPSEEK:
            return 0.0
        listed = isinstance(kinds, list) and isinstance(weights, list)
        return dict(zip(kinds, weights, strict=False)).get(kind, 0.0) if listed else UNSET

    return read


def mindformers_expert_groups(field: str, *names: str) -> Resolver:
    """Return the resolver of the groups of experts, or of those chosen; older models need a ``topk_method`` of groups."""

    def read(c: Configuration) -> Setting:
        if is_new(c):
            return value_of(c, (*model(*names, field), f"moe_config.{names[0]}"), default(field))
        grouped = value_of(c, ("moe_config.topk_method",), "greedy") in ("group_limited_greedy", "noaux_tc")
        by_group = grouped and not value_of(c, ("moe_config.use_gmm",), False)
        return value_of(c, (f"moe_config.{names[0]}",), default(field)) if by_group else None

    groups = Resolver(read)
    groups.writer(groups_edits)
    return groups


def groups_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield groups of experts, with as many chosen where more would be chosen than exist."""
    yield from one_key(request)
    if is_new(request.candidate):
        yield dict.fromkeys(model("n_group", "topk_group"), request.wanted or 1)
    elif request.reference.side == MEGATRON:
        yield from _older_groups(request)


def _older_groups(request: EditRequest) -> Iterator[Edits]:
    """Yield all settings by which an older router chooses among groups."""
    groups, chosen = (mindspeed.groups(f"moe_router_{name}")(request.reference) for name in ("num_groups", "group_topk"))
    experts = value_of(request.reference, ("moe_router_topk",), 2)
    # a group scores its best expert or its two best, where Megatron-LM adds up as many as are chosen of a group
    method = {1: "group_limited_greedy", 2: "noaux_tc"}.get(experts // chosen) if are_numbers(groups, chosen, experts) and chosen else None
    if method is not None:
        way = {"n_group": groups, "topk_group": chosen, "topk_method": method}
        # the grouped matrix product ignores groups; without it a factor of 0 drops no token
        product = {"use_gmm": False, "capacity_factor": 0.0} if is_on(request.candidate, "moe_config.use_gmm") else {}
        yield {f"moe_config.{name}": value for name, value in {**way, **product}.items()}


def mindformers_capacity(c: Configuration) -> Setting:
    """Return the capacity factor of an expert, None where no token is dropped, as in newer models and with a factor of 0."""
    keys = (*model("capacity_factor", "moe_expert_capacity_factor"), "moe_config.capacity_factor")
    factor, grouped = value_of(c, keys, None if is_new(c) else 1.1), value_of(c, ("moe_config.use_gmm",), False)
    return None if is_new(c) or grouped or (are_numbers(factor) and factor <= 0) else factor


def megatron_dropping(c: Configuration) -> Setting:
    """Return which tokens an expert that is full drops."""
    drops = value_of(c, ("moe_expert_capacity_factor",), None) is not None
    return value_of(c, ("moe_token_drop_policy",), "probs") if drops else Drops.NOTHING


def mindformers_dropping(c: Configuration) -> Setting:
    """Return which tokens a full expert drops: by position with ``enable_sdrop``, else second choices first."""
    policy = value_of(c, (*model("moe_token_drop_policy", "enable_sdrop"), "moe_config.enable_sdrop"), False)
    if mindformers_capacity(c) is None:
        return Drops.NOTHING
    return policy if isinstance(policy, str) else "position" if policy else Drops.BY_CHOICE


def no_dense_layer(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why the size of a dense layer need not agree: every layer has experts."""

    def sparse(c: Configuration) -> Setting:
        return isinstance(runs := expert_layers(c), ExpertLayers) and runs.sparse and not runs.dense

    return message("harmless.no_dense_layer") if all_sides(sparse, reference, candidate) else None
