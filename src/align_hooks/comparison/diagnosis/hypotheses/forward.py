"""Causes in the forward pass."""

from __future__ import annotations

from align_hooks.comparison.data.token_losses import AffectedRows, Where
from align_hooks.comparison.diagnosis.hypothesis import Fault, Grounds, hypothesis
from align_hooks.comparison.diagnosis.observations import ROUTERS, router_of
from align_hooks.comparison.stage_result import FaultLocation

FORWARD = FaultLocation.FORWARD
BLOCK_NORMS = ("input_layernorm", "post_attention_layernorm", "model.norm")
RESIDUALS = ("residual", ".", "input")

# ---- by what the tokens show


@hypothesis(FORWARD)
def loss_function(fault: Fault) -> Grounds | None:
    """All points agree up to the logits, and the first loss differs."""
    return Grounds.TOKENS if fault.seen.logits_agree else None


@hypothesis(FORWARD, source="Megatron-LM: --reset-attention-mask; field")
def across_documents(fault: Fault) -> Grounds | None:
    """Only tokens behind the end of a row's first document differ."""
    return Grounds.PATTERN if fault.seen.divergence.rows.rows is AffectedRows.DOCUMENTS else None


@hypothesis(FORWARD, source="Megatron-LM issue 7452; zoo", outranks=("rank_alone", "stale_weights"))
def softmax_sum(fault: Fault) -> Grounds | None:
    """Every token is off by one number."""
    return Grounds.TOKENS if fault.seen.divergence.shift is not None else None


@hypothesis(FORWARD, source="Megatron-LM issues 663 and 950; zoo", outranks=("rank_alone",))
def stale_weights(fault: Fault) -> Grounds | None:
    """Only rows of one data-parallel rank differ, and an earlier step on equal weights agrees."""
    losses = fault.seen.divergence
    return Grounds.TOKENS if losses.rows.rows is AffectedRows.RANK and losses.later else None


@hypothesis(FORWARD)
def rank_alone(fault: Fault) -> Grounds | None:
    """Only rows of one data-parallel rank differ."""
    return Grounds.TOKENS if fault.seen.divergence.rows.rows is AffectedRows.RANK else None


@hypothesis(FORWARD)
def attention_scores(fault: Fault) -> Grounds | None:
    """The first token of each row, which attends to itself only, agrees, and all later ones differ."""
    return Grounds.POSITIONS if fault.seen.divergence.where is Where.AFTER_THE_FIRST else None


@hypothesis(FORWARD)
def attention_forgets(fault: Fault) -> Grounds | None:
    """Early tokens of each row agree, and all later ones differ."""
    return Grounds.POSITIONS if fault.seen.divergence.where is Where.FROM_ONE_ON else None


# ---- by a setting; where a point is known, it says whether such a part is off


@hypothesis(FORWARD)
def norm_epsilon(fault: Fault) -> Grounds | None:
    """`rms_norm_eps` differs, and no point is known."""
    return Grounds.SETTING if fault.is_of("rms_norm_eps*") else None


@hypothesis(FORWARD, source="MindFormers 1.9 and 2.1; zoo")
def latent_scale(fault: Fault) -> Grounds | None:
    """The scale of latent attention (`rotary_scaling_factor`) differs, and no point is known."""
    return Grounds.SETTING if fault.is_of("rotary_scaling_factor*") else None


@hypothesis(FORWARD)
def routing_settings(fault: Fault) -> Grounds | None:
    """A setting of the choice of experts differs."""
    names = ("norm_topk_prob", "routed_scaling_factor", "num_experts_per_tok", "n_group", "topk_group")
    return Grounds.SETTING if fault.is_named(*names) else None


# ---- by the point at which the error arises, by a setting, or by the tensors whose gradients differ most


@hypothesis(FORWARD)
def rotary_positions(fault: Fault) -> Grounds | None:
    """`rope_theta` or another setting of rotary positions differs, or the error arises behind rotary positions."""
    if fault.is_of("rope*", "partial_rotary*"):
        return Grounds.SETTING
    return Grounds.POINT if fault.is_at("self_attn.query", "self_attn.key") else None


@hypothesis(FORWARD, source="field", outranks=("norm", "residual"))
def dropout(fault: Fault) -> Grounds | None:
    """A model draws random numbers, and the error arises where dropout may be: at a norm of a block, or at what is added to a residual."""
    return Grounds.POINT if fault.seen.pair.draws and fault.is_at(*BLOCK_NORMS, *RESIDUALS) else None


@hypothesis(FORWARD, source="the guide's case study; zoo")
def embedding(fault: Fault) -> Grounds | None:
    """The error arises at the embedding, or its weight differs most."""
    if fault.is_at("model.embed_tokens"):
        return Grounds.POINT
    return Grounds.PART if fault.is_of("*embed_tokens*") else None


@hypothesis(FORWARD)
def query_and_key_norms(fault: Fault) -> Grounds | None:
    """The error arises at a norm of queries or keys, or the weight of one differs most."""
    if fault.is_at("self_attn.q_norm", "self_attn.k_norm"):
        return Grounds.POINT
    return Grounds.PART if fault.is_of("*.q_norm.weight", "*.k_norm.weight") else None


@hypothesis(FORWARD, outranks=("projection",))
def latent_norms(fault: Fault) -> Grounds | None:
    """The error arises at a norm of compressed queries or keys, or the weight of one differs most."""
    if fault.is_at("self_attn.q_a_layernorm", "self_attn.kv_a_layernorm"):
        return Grounds.POINT
    return Grounds.PART if fault.is_of("*.q_a_layernorm.weight", "*.kv_a_layernorm.weight") else None


@hypothesis(FORWARD)
def norm(fault: Fault) -> Grounds | None:
    """The error arises at a norm, or the weight of one differs most."""
    if fault.is_at(*BLOCK_NORMS, "enorm", "hnorm", "shared_head.norm"):
        return Grounds.POINT
    return Grounds.KIND if fault.is_of("*norm.weight*") else None


@hypothesis(FORWARD)
def projection(fault: Fault) -> Grounds | None:
    """The error arises at a projection of the attention."""
    names = ("self_attn.?_proj", "self_attn.q_a_proj", "self_attn.q_b_proj", "self_attn.kv_a*", "self_attn.kv_b_proj", "eh_proj")
    return Grounds.POINT if fault.is_at(*names) else None


@hypothesis(FORWARD)
def attention_core(fault: Fault) -> Grounds | None:
    """The error arises at the core of the attention, or at the values that it is given."""
    return Grounds.POINT if fault.is_at("self_attn.core", "self_attn.value") else None


@hypothesis(FORWARD)
def residual(fault: Fault) -> Grounds | None:
    """The error arises at what is added to a residual."""
    return Grounds.POINT if fault.is_at(*RESIDUALS) else None


@hypothesis(FORWARD, outranks=("mlp",))
def router(fault: Fault) -> Grounds | None:
    """The error arises at the router, its weight differs most, or several experts of one layer, and their router too, differ most."""
    if fault.is_at("mlp.gate", "mlp.gate.weights"):
        return Grounds.POINT
    if fault.is_of(*ROUTERS):
        return Grounds.PART
    return Grounds.KIND if router_of([finding.name for finding in fault.seen.wrong]) is not None else None


@hypothesis(FORWARD, outranks=("mlp",))
def shared_experts(fault: Fault) -> Grounds | None:
    """The error arises at the shared experts, or a tensor of one differs most."""
    if fault.is_at("mlp.shared_experts*"):
        return Grounds.POINT
    return Grounds.PART if fault.is_of("*.shared_experts.*") else None


@hypothesis(FORWARD, outranks=("mlp",))
def experts(fault: Fault) -> Grounds | None:
    """The error arises at an expert, or at the sum of all; or a tensor of one differs most."""
    if fault.is_at("mlp.experts.*", "mlp"):
        return Grounds.POINT
    return Grounds.PART if fault.is_of("*.experts.*") else None


@hypothesis(FORWARD)
def mlp(fault: Fault) -> Grounds | None:
    """The error arises within an MLP, or a tensor of one differs most."""
    if fault.is_at("mlp.*"):
        return Grounds.POINT
    return Grounds.BLOCK if fault.is_of("*.mlp.*") else None


@hypothesis(FORWARD)
def mlp_or_its_norm(fault: Fault) -> Grounds | None:
    """The weight of the norm before an MLP differs most."""
    return Grounds.PART if fault.is_of("*post_attention_layernorm*") else None


@hypothesis(FORWARD)
def attention_biases(fault: Fault) -> Grounds | None:
    """A bias of the attention differs most."""
    return Grounds.PART if fault.is_of("*.self_attn.*.bias") else None


@hypothesis(FORWARD)
def attention(fault: Fault) -> Grounds | None:
    """A tensor of the attention differs most, and the first token of a row, which attends to itself only, differs too."""
    scores = fault.seen.divergence.where is Where.AFTER_THE_FIRST
    return Grounds.BLOCK if fault.is_of("*.self_attn.*") and not scores else None


@hypothesis(FORWARD)
def logits_or_loss(fault: Fault) -> Grounds | None:
    """The error arises at the logits or at the token losses, or the weight of the output layer or of the norm before differs most."""
    if fault.is_at("lm_head", "token_losses", "shared_head.head"):
        return Grounds.POINT
    return Grounds.PART if fault.is_of("lm_head*", "model.norm*") else None
