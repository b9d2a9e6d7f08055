"""Experts: the guide's MoE structure, and the MoE table of the comparison with Megatron-LM."""

from __future__ import annotations

from functools import partial

from align_hooks.checklist.defaults import default
from align_hooks.checklist.readings import experts as read
from align_hooks.checklist.readings import precision
from align_hooks.checklist.readings.said import EXPERT_NUM, LAYERS, known
from align_hooks.checklist.row import Advice, Effect, Group, Row, Says, boolean, model, numeric, text
from align_hooks.messages import message

row = partial(Row, group=Group.EXPERTS, when="expert_num")
rounding, harmless = partial(row, effect=Effect.ROUNDING), partial(row, effect=Effect.NOTHING)
"""Rows whose differences change the rounding alone, or nothing. All hold of models with experts, unless ``when`` says otherwise."""


def moe(*names: str) -> tuple[str, ...]:
    """Keys of the older models' ``moe_config``, which counts at the top of the YAML."""
    return tuple(f"moe_config.{name}" for name in names)


EXPERTS = (
    row(
        "expert_num",
        Says(("num_experts",), read=read.megatron_experts),
        Says(EXPERT_NUM, read=read.mindformers_experts, note=message("note.experts_older")),
        when="",
        form=numeric,
        sources=("CheckList: experts: expert_num", "comparison: experts: num-experts"),
    ),
    row(
        message("row.layers_with_experts"),
        Says(("moe_layer_freq", "num_layers", "encoder_num_layers", "num_experts"), read=read.expert_layers),
        Says((*model("first_k_dense_replace", "moe_layer_freq"), *moe("first_k_dense_replace")), read=read.expert_layers, beside=LAYERS),
        sources=("comparison: experts: moe-layer-freq",),
    ),
    row(
        "num_experts_chosen",
        Says(("moe_router_topk",), 2),
        Says(
            (*model("num_experts_per_tok", "moe_router_topk", "num_experts_chosen"), *moe("num_experts_chosen")), default("moe_router_topk")
        ),
        form=numeric,
        sources=("CheckList: experts: num_experts_chosen", "comparison: experts: moe-router-topk"),
    ),
    row(
        message("row.size_of_an_expert"),
        Says(("moe_ffn_hidden_size", "ffn_hidden_size", "hidden_size", "swiglu"), read=read.megatron_expert_ffn),
        Says(
            (*model("moe_intermediate_size", "moe_ffn_hidden_size"), *moe("moe_intermediate_size")),
            read=read.mindformers_expert_ffn,
            note=message("note.expert_size_older"),
        ),
        form=numeric,
        sources=("comparison: experts: moe-ffn-hidden-size",),
    ),
    row(
        message("row.size_of_the_shared_experts"),
        Says(("moe_shared_expert_intermediate_size",), read=read.megatron_shared_ffn),
        Says(
            (*model("moe_shared_expert_intermediate_size", "n_shared_experts", "shared_expert_num"), *moe("shared_expert_num")),
            read=read.mindformers_shared_ffn,
            note=message("note.shared_size"),
        ),
        form=numeric,
        sources=("CheckList: experts: shared_expert_num", "comparison: experts: moe-shared-expert-intermediate-size"),
    ),
    row(
        "use_shared_expert_gating",
        Says(("moe_shared_expert_gate", "moe_use_shared_expert_gate"), False),
        Says((*model("use_shared_expert_gating"), *moe("use_shared_expert_gating")), False),
        form=boolean,
        sources=("CheckList: experts: use_shared_expert_gating",),
    ),
    row(
        message("row.score_function"),
        Says(("moe_router_score_function",), read=read.megatron_score),
        Says(
            (*model("moe_router_score_function", "use_gating_sigmoid", "scoring_func"), *moe("use_gating_sigmoid")),
            read=read.mindformers_score,
            note=message("note.gating_sigmoid"),
        ),
        form=text,
        sources=("comparison: experts: moe-router-score-function",),
    ),
    row(
        message("row.weights_of_the_chosen_add_up_to_one"),
        Says(
            ("moe_router_pre_softmax", "moe_router_score_function", "moe_router_topk"),
            read=read.megatron_normalised,
            note=message("note.softmax_chosen"),
        ),
        Says((*model("norm_topk_prob", "moe_router_pre_softmax"), *moe("norm_topk_prob")), read=read.mindformers_normalised),
        sources=("comparison: experts: moe-router-pre-softmax",),
    ),
    row(
        message("row.groups_of_experts"),
        Says(("moe_router_num_groups",), None),
        Says((*model("n_group", "n_groups", "moe_router_num_groups"), *moe("n_group")), default("moe_router_num_groups")),
        form=lambda groups: None if groups in (0, 1) else numeric(groups),
        sources=("comparison: experts: moe-router-num-groups",),
    ),
    row(
        message("row.groups_chosen"),
        Says(("moe_router_group_topk",), None),
        Says((*model("topk_group", "moe_router_group_topk"), *moe("topk_group")), default("moe_router_group_topk")),
        form=lambda groups: None if groups in (0, 1) else numeric(groups),
        sources=("comparison: experts: moe-router-group-topk",),
    ),
    row(
        "routed_scaling_factor",
        Says(("moe_router_topk_scaling_factor",), None),
        Says(
            (*model("routed_scaling_factor", "moe_router_topk_scaling_factor"), *moe("routed_scaling_factor")),
            default("moe_router_topk_scaling_factor"),
        ),
        form=lambda factor: 1.0 if factor is None else numeric(factor),
        sources=("comparison: experts: moe-router-topk-scaling-factor",),
    ),
    row(
        message("row.bias_of_the_experts"),
        Says(("moe_router_enable_expert_bias",), False),
        Says(
            (*model("moe_router_enable_expert_bias", "balance_via_topk_bias"), *moe("balance_via_topk_bias")),
            default("moe_router_enable_expert_bias"),
        ),
        form=boolean,
        sources=("comparison: experts: moe-router-enable-expert-bias",),
    ),
    row(
        message("row.update_rate_of_that_bias"),
        Says(("moe_router_bias_update_rate",), 0.001),
        Says(
            (*model("moe_router_bias_update_rate", "topk_bias_update_rate"), *moe("topk_bias_update_rate")),
            default("moe_router_bias_update_rate"),
        ),
        form=numeric,
        when="bias_of_the_experts",
        sources=("comparison: experts: moe-router-bias-update-rate",),
    ),
    row(
        "aux_loss_factor",
        Says(("moe_aux_loss_coeff", "moe_router_load_balancing_type"), read=read.megatron_auxiliary),
        Says(
            (*model("moe_aux_loss_coeff", "router_aux_loss_coef", "aux_loss_alpha"), *moe("aux_loss_factor")),
            read=read.mindformers_auxiliary,
            note=message("note.aux_newer"),
        ),
        form=numeric,
        advice=Advice(message("advice.no_auxiliary_loss"), lambda factor: factor == 0),
        sources=("CheckList: experts: aux_loss_factor", "comparison: experts: moe-aux-loss-coeff"),
    ),
    row(
        message("row.load_balancing_type"),
        Says(("moe_router_load_balancing_type",), "aux_loss"),
        Says(
            (*model("moe_router_load_balancing_type"), *moe("aux_loss_types")),
            read.mindformers_balancing,
            note=message("note.gbs_aux_loss"),
            choices=("sub_seq_aux_loss", "seq_aux_loss", "gbs_aux_loss"),
        ),
        form=read.balancing,
        when="aux_loss_factor",
        sources=("comparison: experts: moe-router-load-balancing-type",),
    ),
    row(
        "z-loss",
        Says(("moe_z_loss_coeff",), None),
        Says((*model("moe_z_loss_coeff", "z_loss_factor"), *moe("z_loss_factor")), None, note=message("note.newer_not_read")),
        form=lambda factor: numeric(factor) or 0.0,
        sources=("comparison: experts: moe-z-loss-coeff",),
    ),
    row(
        "capacity_factor",
        Says(("moe_expert_capacity_factor",), read=read.megatron_capacity),
        Says(
            (*model("capacity_factor", "moe_expert_capacity_factor"), *moe("capacity_factor", "use_gmm")),
            read=read.mindformers_capacity,
            note=message("note.never_drop"),
        ),
        form=numeric,
        advice=Advice(message("advice.capacity"), lambda factor: factor is None or (known(factor) and factor >= 1)),
        sources=("CheckList: experts: capacity_factor", "comparison: experts: moe-expert-capacity-factor"),
    ),
    row(
        message("row.tokens_that_are_dropped"),
        Says(("moe_token_drop_policy", "moe_expert_capacity_factor"), read=read.megatron_dropping),
        Says(
            (*model("moe_token_drop_policy", "enable_sdrop"), *moe("enable_sdrop")),
            read=read.mindformers_dropping,
            note=message("note.sdrop_drops"),
        ),
        advice=Advice(message("advice.drop_by_position"), lambda policy: policy != "probs"),
        sources=("CheckList: experts: enable_sdrop", "comparison: experts: moe-token-drop-policy"),
    ),
    rounding(
        message("row.experts_padded_to_their_capacity"),
        Says(("moe_pad_expert_input_to_capacity",), False),
        Says((*model("moe_pad_expert_input_to_capacity", "enable_sdrop"), *moe("enable_sdrop")), False, note=message("note.sdrop_pads")),
        form=boolean,
        when="capacity_factor",
        sources=("CheckList: experts: enable_sdrop", "comparison: experts: moe-pad-expert-input-to-capacity"),
    ),
    rounding(
        "router_dense_type",
        Says(("moe_router_dtype",), read=precision.megatron_router_type, note=message("note.compute_type_unless_set")),
        Says((*model("router_dense_type", "moe_router_dtype"), *moe("router_dense_type")), read=precision.mindformers_router_type),
        advice=Advice(message("advice.router_float32"), lambda kind: kind in ("float32", "float64")),
        sources=("CheckList: experts: router_dense_type", "comparison: experts: moe-router-dtype"),
    ),
    row(
        message("row.jitter_of_the_input"),
        Says(("moe_input_jitter_eps",), None),
        Says(model("moe_input_jitter_eps"), None),
        form=lambda eps: numeric(eps) or 0.0,
        sources=("comparison: experts: moe-input-jitter-eps",),
    ),
    harmless(
        "routing_policy",
        Says(),
        Says((*model("routing_policy"), *moe("routing_policy")), None),
        advice=Advice(message("advice.topk_router_v2"), lambda policy: policy in (None, "TopkRouterV2")),
        sources=("CheckList: experts: routing_policy",),
    ),
    rounding(
        "use_fused_ops_topkrouter",
        Says(("moe_router_fusion",), False),
        Says((*model("use_fused_ops_topkrouter", "moe_router_fusion"), *moe("use_fused_ops_topkrouter")), False),
        form=boolean,
        sources=("CheckList: experts: use_fused_ops_topkrouter",),
    ),
    rounding(
        message("row.grouped_matrix_product_of_experts"),
        Says(("moe_grouped_gemm",), False, beside=("moe_use_legacy_grouped_gemm",)),
        Says((*model("moe_grouped_gemm", "use_gmm"), *moe("use_gmm")), default("moe_grouped_gemm")),
        form=boolean,
        sources=("comparison: experts: moe-grouped-gemm", "comparison: experts: moe-use-legacy-grouped-gemm"),
    ),
    rounding(
        message("row.token_dispatcher"),
        Says(("moe_token_dispatcher_type",), "allgather", beside=("moe_enable_deepep", "moe_flex_dispatcher_backend")),
        Says(model("moe_token_dispatcher_type"), "alltoall", beside=(*model("moe_enable_deepep"), *moe("use_allgather_dispatcher"))),
        sources=("comparison: experts: moe-token-dispatcher-type", "comparison: experts: moe-enable-deepep"),
    ),
    rounding(
        message("row.fused_permutation"),
        Says(("moe_permute_fusion",), False),
        Says((*model("moe_permute_fusion", "use_fused_ops_permute"), *moe("use_fused_ops_permute")), False),
        form=boolean,
        sources=("comparison: experts: moe-permute-fusion",),
    ),
    harmless(
        message("row.overlap_of_the_shared_experts"),
        Says(("moe_shared_expert_overlap",), False),
        Says(model("moe_shared_expert_overlap"), False),
        form=boolean,
        sources=("comparison: experts: moe-shared-expert-overlap",),
    ),
    row(
        message("row.upcycling"),
        Says(("moe_use_upcycling",), False),
        Says(fixed=False, note=message("note.none")),
        sources=("comparison: experts: moe-use-upcycling",),
    ),
    rounding(
        message("row.extended_tensor_parallelism_of_experts"),
        Says(("moe_extended_tp",), False),
        Says(fixed=False, note=message("note.none")),
        sources=("comparison: experts: moe-extended-tp",),
    ),
    harmless(
        message("row.log_of_every_layer"),
        Says(("moe_per_layer_logging",), False),
        Says(model("moe_per_layer_logging"), False),
        form=boolean,
        sources=("comparison: experts: moe-per-layer-logging",),
    ),
    row(
        "mtp_num_layers",
        Says(("mtp_num_layers",), None),
        Says(model("num_nextn_predict_layers", "mtp_num_layers", "mtp_depth"), default("mtp_num_layers")),
        when="",
        form=lambda layers: numeric(layers) or 0,
        sources=("comparison: experts: mtp-num-layers",),
    ),
    row(
        "mtp_loss_scaling_factor",
        Says(("mtp_loss_scaling_factor",), 0.1),
        Says(model("mtp_loss_factor", "mtp_loss_scaling_factor")),
        form=numeric,
        when="mtp_num_layers",
        sources=("comparison: experts: mtp-loss-scaling-factor",),
    ),
)
