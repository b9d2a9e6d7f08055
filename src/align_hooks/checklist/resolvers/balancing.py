"""The loss that balances experts: among which tokens each side counts choices, which choices it counts, and how much the loss weighs.

Both frameworks average, over experts, how often an expert is chosen times its mean score. The frequencies are of other tokens,
and names differ: MindFormers' ``sub_seq_aux_loss`` is Megatron-LM's ``aux_loss``, and ``seq_aux_loss`` is not the same loss
(``moe/router.py``: Megatron-LM 0.19, ``_apply_aux_loss`` and its neighbours; MindFormers 1.9, ``_expert_load_balancing``).
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from align_hooks.checklist.canonical_values import UNSET, Balanced, Counts, Printed, Shares, Unchosen, Words, text
from align_hooks.checklist.lookup import Unstated, are_numbers, is_new, is_older_core, is_on, model, value_of
from align_hooks.checklist.mindformers_models import DEEPSEEK, default, family
from align_hooks.checklist.resolver import EditRequest, Edits, no_edits, resolver
from align_hooks.checklist.resolvers import layout, mindspeed
from align_hooks.checklist.resolvers.experts import listed_loss, mindformers_expert_groups
from align_hooks.configuration.values import MEGATRON, MINDFORMERS, Configuration, Setting
from align_hooks.messages import message

GLOBAL = "global_aux_loss"
OF_MEGATRON = ("aux_loss", "seq_aux_loss", GLOBAL)
OF_MINDFORMERS = ("sub_seq_aux_loss", "seq_aux_loss", "gbs_aux_loss")
"""A newer model's types; the first is its default."""
WITHOUT_A_LOSS = ("none", "sinkhorn", "quantile_balancing", "softmax_topk", "sparsemixer_topk")
"""Types of Megatron-LM and MindSpeed-LLM that add no loss."""
KIND = model("moe_router_load_balancing_type")
LAYOUT = ("use_parallel", "parallel.parallel_mode", "parallel_config.model_parallel", "parallel_config.context_parallel")
"""Settings that cut a micro-batch before MindFormers' router."""


def single(value: Setting) -> Setting:
    """Return the only value of a list of one; else the value unchanged."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


# ---- among which tokens choices are counted


@resolver
def megatron_balancing(c: Configuration) -> Setting:
    """Return a micro-batch, single sequences, or all ranks with the step's earlier micro-batches; no layout cuts sequences."""
    kind = text(single(mindspeed.balances(c)))
    rows = value_of(c, ("micro_batch_size",))
    if kind == "seq_aux_loss":
        return Balanced(1, kind=kind)
    if kind not in OF_MEGATRON or not are_numbers(rows):
        return kind
    ranks = ranks_of_megatron(c) if kind == GLOBAL else 1
    return Balanced(int(rows * ranks), of_step=kind == GLOBAL, kind=kind)


def ranks_of_megatron(c: Configuration) -> int:
    """Return the data-parallel size; one where a step is one micro-batch.

    :raises Unknown: nothing says it.
    """
    ranks, rows, batch = layout.megatron_data_parallel(c), value_of(c, ("micro_batch_size",)), layout.megatron_global_batch(c)
    if not are_numbers(ranks) and are_numbers(rows, batch) and rows == batch:
        return 1
    if not are_numbers(ranks):
        raise Unstated(message("untold.ranks_of_balancing", kind=GLOBAL))
    return int(ranks)


@resolver
def mindformers_balancing(c: Configuration) -> Setting:
    """Return the tokens of one device, of a tensor-parallel group, or of all devices with the step's earlier micro-batches.

    Tensor and context parallelism cut every sequence before the router: ``sub_seq_aux_loss`` counts each piece separately,
    ``seq_aux_loss`` those of context parallelism. Older models count on one device, which ``use_seq_parallel`` cuts.
    """
    kind = text(single(value_of(c, KIND, default("moe_router_load_balancing_type") if is_new(c) else "aux_loss")))
    rows, (tensor, context) = layout.mindformers_micro_batch(c), _cuts(c)
    if kind not in _kinds(c) or not are_numbers(rows):
        return kind
    if c.trainer:  # whose losses have Megatron-LM's names, and add up what tensor and context parallelism cut
        return Balanced(1 if kind == "seq_aux_loss" else int(rows), of_step=kind == GLOBAL, kind=kind)
    if not is_new(c):
        return Balanced(int(rows), tensor if is_on(c, "parallel_config.use_seq_parallel") else 1, kind=kind)
    if kind == "gbs_aux_loss":
        ranks = 1 if layout.is_data_parallel(c) or not _is_parallel(c) else layout.mindformers_data_parallel(c)
        return Balanced(int(rows * ranks), of_step=True, kind=kind)
    return Balanced(int(rows), context * (tensor if kind == "sub_seq_aux_loss" else 1), kind=kind)


@megatron_balancing.writer
@mindformers_balancing.writer
def balanced_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield a load-balancing loss that counts among the same tokens, by its kind, the size of a micro-batch, or both."""
    of_megatron = request.candidate.side == MEGATRON
    kinds = [key for key in request.keys if key.endswith("load_balancing_type")]
    named = [{key: kind} for key in kinds for kind in _kinds(request.candidate)]
    yield from named
    if isinstance(request.wanted, Balanced) and not request.wanted.of_step:
        rows = request.wanted.sequences
        sizes: list[Edits] = [{"micro_batch_size": rows}] if of_megatron else list(layout.micro_batch_edits(replace(request, wanted=rows)))
        if not of_megatron and not is_new(request.candidate):  # whose router reads the tokens of one device
            sizes += [{"parallel_config.use_seq_parallel": False, **size} for size in ({}, *sizes)]
        yield from sizes
        yield from ({**kind, **size} for kind in named for size in sizes)


def _kinds(c: Configuration) -> tuple[str, ...]:
    """Return the names of the losses that a run may have."""
    return OF_MINDFORMERS if c.side == MINDFORMERS and _is_newer_graph(c) else OF_MEGATRON


def _is_newer_graph(c: Configuration) -> bool:
    """Return whether a newer model is trained by the static graph, and not by the PyNative trainer."""
    return is_new(c) and not c.trainer


def _is_parallel(c: Configuration) -> bool:
    return value_of(c, ("use_parallel",), False) is not False


def _cuts(c: Configuration) -> tuple[int, int]:
    """Return into how many pieces tensor and context parallelism cut a sequence; pure data parallelism has neither."""
    if is_new(c) and (not _is_parallel(c) or layout.is_data_parallel(c)):
        return 1, 1
    tensor, context = (value_of(c, (f"parallel_config.{name}",), 1) for name in ("model_parallel", "context_parallel"))
    return int(tensor), int(context)


def no_loss_is_wanted(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why the kind of loss need not agree: the reference adds none, or the candidate can add none."""
    if (mindformers_weight if reference.side == MINDFORMERS else megatron_weight)(reference) == 0:
        return message("harmless.no_loss_wanted")
    without = candidate.side == MINDFORMERS and not is_new(candidate) and family(candidate) not in DEEPSEEK
    return message("harmless.no_loss_possible") if without else None


# ---- how much it weighs


def megatron_weight(c: Configuration) -> Setting:
    """Return the weight of the load-balancing loss, 0 without one."""
    kind = mindspeed.balances(c)
    if kind in WITHOUT_A_LOSS:
        return 0.0
    # mean scores of global_aux_loss are divided by the tokens of all ranks, and gradients are averaged over these again
    weight = single(value_of(c, ("moe_aux_loss_coeff",), 0.0))
    return weight / ranks_of_megatron(c) if text(single(kind)) == GLOBAL and are_numbers(weight) and weight else weight


def mindformers_weight(c: Configuration) -> Setting:
    """Return the weight of the load-balancing loss, 0 without one."""
    c.find(model("router_aux_loss_coef", "aux_loss_alpha"))
    if family(c) in DEEPSEEK:  # the only older models with one, as a list beside its type; aux_loss_factor is never read
        return listed_loss("expert")(c)
    return single(value_of(c, model("moe_aux_loss_coeff") if is_new(c) else (), default("moe_aux_loss_coeff")))


# ---- which choices are counted


@resolver
def megatron_counts(c: Configuration) -> Setting:
    """Return the choices that Megatron-LM counts: by scores, in core 0.12 and MindSpeed-LLM as routed."""
    # compute_routing_scores_for_aux_loss is not in core 0.12, on which MindSpeed-LLM is built
    biased = value_of(c, ("moe_router_enable_expert_bias",), False)
    groups, chosen = (mindspeed.groups(name)(c) for name in ("moe_router_num_groups", "moe_router_group_topk"))
    older = mindspeed.of_mindspeed(c) or is_older_core(c)
    return Counts.AS_ROUTED if older and routed_otherwise(biased, groups, chosen) else Counts.BY_SCORES


megatron_counts.writer(no_edits)


@resolver
def mindformers_counts(c: Configuration) -> Setting:
    """Return what MindFormers counts: in the static graph choices as routed, which without bias and groups are those by scores."""
    biased = value_of(c, model("moe_router_enable_expert_bias"), default("moe_router_enable_expert_bias"))
    groups = mindformers_expert_groups("moe_router_num_groups", "n_group", "n_groups")(c)
    chosen = mindformers_expert_groups("moe_router_group_topk", "topk_group")(c)
    if _is_newer_graph(c) and c.unread and UNSET in (biased, groups, chosen):
        return UNSET
    return Counts.AS_ROUTED if _is_newer_graph(c) and routed_otherwise(biased, groups, chosen) else Counts.BY_SCORES


mindformers_counts.writer(no_edits)


def routed_otherwise(biased: Setting, groups: Setting, chosen: Setting) -> bool:
    """Return whether experts may be chosen that the scores by themselves would not choose."""
    return biased is True or (are_numbers(groups, chosen) and 0 < chosen < groups)


# ---- the loss of further tokens


@resolver
def shares(c: Configuration) -> Setting:
    """Return what the loss of further tokens is divided by."""
    # labels are rolled, so fewer: MindFormers and core 0.12 divide by the main loss's where every token counts alike,
    # core 0.19 always by the rolled ones (process_mtp_loss)
    recorded = c.fact("training.per_token_loss")
    alike = value_of(c, ("calculate_per_token_loss",), False) if recorded is None else recorded
    by_all = is_new(c) if c.side == MINDFORMERS else mindspeed.of_mindspeed(c) or is_older_core(c)
    return Shares.ALL_TOKENS if alike is True and by_all else Shares.OWN_TOKENS


shares.writer(no_edits)


def unchosen_groups(c: Configuration) -> Setting:
    """Return the score of groups that are not chosen, which shows only where a bias can make a score fall below it."""
    newer = c.side == MINDFORMERS and is_new(c)
    biased = value_of(c, model("moe_router_enable_expert_bias"), default("moe_router_enable_expert_bias")) if newer else False
    return Unchosen.ZERO if biased is True else Unchosen.LOWEST


def groups_by_hand(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return what is watched by hand, since no setting says whether a score with its bias falls below 0."""
    return message("by_hand.groups_not_chosen")


def printed(c: Configuration) -> Setting:
    """Return what a side prints as its loss where further tokens are predicted."""
    return Printed.SUM if c.side == MINDFORMERS and is_new(c) else Printed.LANGUAGE_MODEL


def printed_by_hand(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return how printed losses that are of different things are compared."""
    return message("by_hand.printed_loss")
