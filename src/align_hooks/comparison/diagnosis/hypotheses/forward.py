"""Causes in the forward pass."""

from __future__ import annotations

from align_hooks.comparison.data.token_losses import AffectedRows, Where
from align_hooks.comparison.diagnosis.hypothesis import Fault, Grounds, Hypothesis
from align_hooks.comparison.diagnosis.observations import ROUTERS, router_of
from align_hooks.comparison.stage_result import FaultLocation
from align_hooks.configuration.pynative import PYNATIVE

FORWARD = (FaultLocation.FORWARD,)
BLOCK_NORMS, RESIDUALS = ("input_layernorm", "post_attention_layernorm", "model.norm"), ("residual", ".", "input")
NORMS = (*BLOCK_NORMS, "enorm", "hnorm", "shared_head.norm")
QK_NORMS, QK_WEIGHTS = ("self_attn.q_norm", "self_attn.k_norm"), ("*.q_norm.weight", "*.k_norm.weight")
LATENT_NORMS = ("self_attn.q_a_layernorm", "self_attn.kv_a_layernorm")
LATENT_WEIGHTS = ("*.q_a_layernorm.weight", "*.kv_a_layernorm.weight")
PROJECTIONS = ("self_attn.?_proj", "self_attn.q_a_proj", "self_attn.q_b_proj", "self_attn.kv_a*", "self_attn.kv_b_proj", "eh_proj")
ROTARY, ROTATED = ("rope*", "partial_rotary*"), ("self_attn.query", "self_attn.key")
OF_ROUTING = ("norm_topk_prob", "routed_scaling_factor", "num_experts_per_tok", "n_group", "topk_group")
LATENT_SCALE, STUDY = "MindFormers 1.9 and 2.1; zoo", "the guide's case study; zoo"
OUTPUT, OUTPUT_WEIGHTS = ("lm_head", "token_losses", "shared_head.head"), ("lm_head*", "model.norm*")
NAMED = (
    Hypothesis("norm_epsilon", FORWARD, settings=("rms_norm_eps*",)),
    Hypothesis("latent_scale", FORWARD, settings=("rotary_scaling_factor*",), source=LATENT_SCALE),
    Hypothesis("routing_settings", FORWARD, settings=OF_ROUTING),
    Hypothesis("embedding", FORWARD, points=("model.embed_tokens",), part=("*embed_tokens*",), source=STUDY),
    Hypothesis("query_and_key_norms", FORWARD, points=QK_NORMS, part=QK_WEIGHTS),
    Hypothesis("latent_norms", FORWARD, points=LATENT_NORMS, part=LATENT_WEIGHTS, outranks=("projection",)),
    Hypothesis("norm", FORWARD, points=NORMS, kind=("*norm.weight*",)),
    Hypothesis("attention_core", FORWARD, points=("self_attn.core", "self_attn.value")),
    Hypothesis("residual", FORWARD, points=RESIDUALS),
    Hypothesis("shared_experts", FORWARD, points=("mlp.shared_experts*",), part=("*.shared_experts.*",), outranks=("mlp",)),
    Hypothesis("experts", FORWARD, points=("mlp.experts.*", "mlp"), part=("*.experts.*",), outranks=("mlp",)),
    Hypothesis("mlp", FORWARD, points=("mlp.*",), block=("*.mlp.*",)),
    Hypothesis("mlp_or_its_norm", FORWARD, part=("*post_attention_layernorm*",)),
    Hypothesis("attention_biases", FORWARD, part=("*.self_attn.*.bias",)),
    Hypothesis("logits_or_loss", FORWARD, points=OUTPUT, part=OUTPUT_WEIGHTS),
)


@Hypothesis("rotary_positions", FORWARD, settings=ROTARY).by(Grounds.POINT)
def rotary_positions(fault: Fault) -> bool:
    """Queries or keys differ, and values, which are not turned, do not."""
    return fault.is_at(*ROTATED) and not fault.seen.values_differ


@Hypothesis("projection", FORWARD, points=PROJECTIONS).by(Grounds.POINT)
def projection(fault: Fault) -> bool:
    """Queries or keys differ, and so do values: what they share is how heads are taken out of the projections."""
    return fault.is_at(*ROTATED) and fault.seen.values_differ


@Hypothesis("loss_function", FORWARD).by(Grounds.TOKENS)
def loss_function(fault: Fault) -> bool:
    """All points agree up to the logits, and the first loss differs."""
    return fault.seen.logits_agree


@Hypothesis("rounded_hidden_states", FORWARD, source="MindFormers d8f48c6ea to 933f01422: 2.0").by(Grounds.PATTERN)
def rounded_hidden_states(fault: Fault) -> bool:
    """The error arises at the output layer, and MindFormers 2.0's PyNative trainer computes in fp32 on one side."""
    known = [run.facts for run in fault.seen.pair.runs]
    of_2_0 = [one.trainer == PYNATIVE and str(one.versions.get("mindformers", "")).startswith("2.0.") for one in known]
    rounding = [old and one.training.compute_type == "float32" for old, one in zip(of_2_0, known, strict=True)]
    return rounding.count(True) == 1 and (fault.is_at(*OUTPUT) or fault.is_of(*OUTPUT_WEIGHTS))


@Hypothesis("across_documents", FORWARD, source="Megatron-LM: --reset-attention-mask; field").by(Grounds.PATTERN)
def across_documents(fault: Fault) -> bool:
    """Only tokens behind the end of a row's first document differ, and not from queries and keys on, which no other token is in yet."""
    return fault.seen.divergence.rows.rows is AffectedRows.DOCUMENTS and not fault.is_at(*ROTATED)


@Hypothesis("loss_type", FORWARD, source="Modalities pull request 464").by(Grounds.PATTERN)
def loss_type(fault: Fault) -> bool:
    """All losses of one side are numbers of a half type, and the other's are not."""
    return fault.seen.divergence.half is not None


@Hypothesis("softmax_sum", FORWARD, source="Megatron-LM issue 7452; zoo", outranks=("rank_alone", "stale_weights")).by(Grounds.TOKENS)
def softmax_sum(fault: Fault) -> bool:
    """Every token is off by one number."""
    return fault.seen.divergence.shift is not None


@Hypothesis("stale_weights", FORWARD, source="Megatron-LM issues 663 and 950; zoo", outranks=("rank_alone",)).by(Grounds.TOKENS)
def stale_weights(fault: Fault) -> bool:
    """Only rows of one data-parallel rank differ, and an earlier step on equal weights agrees."""
    return fault.seen.divergence.rows.rows is AffectedRows.RANK and fault.seen.divergence.later


@Hypothesis("rank_alone", FORWARD).by(Grounds.TOKENS)
def rank_alone(fault: Fault) -> bool:
    """Only rows of one data-parallel rank differ."""
    return fault.seen.divergence.rows.rows is AffectedRows.RANK


@Hypothesis("attention_scores", FORWARD).by(Grounds.POSITIONS)
def attention_scores(fault: Fault) -> bool:
    """The first token of each row, which attends to itself only, agrees, and all later ones differ."""
    return fault.seen.divergence.where is Where.AFTER_THE_FIRST


@Hypothesis("attention_forgets", FORWARD).by(Grounds.POSITIONS)
def attention_forgets(fault: Fault) -> bool:
    """Early tokens of each row agree, and all later ones differ."""
    return fault.seen.divergence.where is Where.FROM_ONE_ON


@Hypothesis("attention", FORWARD).by(Grounds.BLOCK)
def attention(fault: Fault) -> bool:
    """A tensor of the attention differs most, and the first token of a row differs too, so that scores are no better guess."""
    return fault.is_of("*.self_attn.*") and fault.seen.divergence.where is not Where.AFTER_THE_FIRST


@Hypothesis("dropout", FORWARD, source="field", outranks=("norm", "residual")).by(Grounds.POINT)
def dropout(fault: Fault) -> bool:
    """A model draws random numbers, and the error arises at a norm of a block, or at what is added to a residual."""
    return fault.seen.pair.draws and fault.is_at(*BLOCK_NORMS, *RESIDUALS)


@Hypothesis("router", FORWARD, points=("mlp.gate", "mlp.gate.weights"), part=ROUTERS, outranks=("mlp",)).by(Grounds.KIND)
def router(fault: Fault) -> bool:
    """Several experts of one layer differ most, and their router differs too."""
    return router_of([finding.name for finding in fault.seen.wrong]) is not None
