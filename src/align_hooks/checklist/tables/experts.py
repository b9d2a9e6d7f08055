"""Experts: the guide's MoE structure, and the MoE table of the comparison with Megatron-LM."""

from __future__ import annotations

from functools import partial

from align_hooks.checklist.canonical_values import Drops, Printed, dtype, plain, text
from align_hooks.checklist.lookup import EXPERT_NUM, LAYERS, are_numbers, is_new, model, value_of
from align_hooks.checklist.mindformers_models import default
from align_hooks.checklist.resolvers import balancing, mindspeed, precision
from align_hooks.checklist.resolvers import experts as read
from align_hooks.checklist.row import NEVER, CheckRow, Effect, Recommendation, RowGroup, SideSpec, Worded
from align_hooks.messages import message

row = partial(CheckRow, group=RowGroup.EXPERTS, when="expert_num")
rounding, harmless = partial(row, effect=Effect.ROUNDING), partial(row, effect=Effect.NOTHING)
"""Rows whose differences change the rounding only, or nothing. All hold of models with experts, unless ``when`` says otherwise."""


def keys(*names: str, older: str) -> tuple[str, ...]:
    """Return keys of ``model_config``, and names of the older models' ``moe_config``, which counts at the top of the YAML."""
    return (*model(*names), *(f"moe_config.{name}" for name in older.split()))


def of_groups(kind: str, name: str) -> CheckRow:
    """Return a load-balancing loss over groups of experts, by MindSpeed-LLM's name; the guides do not ask for it."""
    mindformers = SideSpec(("moe_config.aux_loss_factors", "moe_config.aux_loss_types"), read=read.listed_loss(kind))
    return row(name, SideSpec((name,), 0.0), mindformers)


EXPERTS = (
    row("expert_num", SideSpec(("num_experts",), read=read.megatron_experts), SideSpec(EXPERT_NUM, read=read.mindformers_experts), when=""),
    row(
        Worded("layers_with_experts"),
        SideSpec(
            ("moe_layer_freq", "first_k_dense_replace", "num_layers", "encoder_num_layers", "num_experts", "noop_layers"),
            read=read.megatron_expert_layers,
        ),
        SideSpec(
            keys("first_k_dense_replace", "moe_layer_freq", older="first_k_dense_replace"),
            read=read.mindformers_expert_layers,
            beside=LAYERS,
        ),
    ),
    row(
        "num_experts_chosen",
        SideSpec(("moe_router_topk",), 2),
        SideSpec(
            keys("num_experts_per_tok", "moe_router_topk", "num_experts_chosen", older="num_experts_chosen"), default("moe_router_topk")
        ),
    ),
    row(
        Worded("size_of_an_expert"),
        SideSpec(("moe_ffn_hidden_size", "ffn_hidden_size", "hidden_size", "swiglu"), read=read.megatron_expert_ffn),
        SideSpec(keys("moe_intermediate_size", "moe_ffn_hidden_size", older="moe_intermediate_size"), read=read.mindformers_expert_ffn),
    ),
    row(
        Worded("size_of_the_shared_experts"),
        SideSpec(("moe_shared_expert_intermediate_size", "n_shared_experts", "moe_ffn_hidden_size"), read=read.megatron_shared_ffn),
        SideSpec(
            keys("moe_shared_expert_intermediate_size", "n_shared_experts", "shared_expert_num", older="shared_expert_num"),
            read=read.mindformers_shared_ffn,
        ),
    ),
    row(
        "use_shared_expert_gating",
        SideSpec(("moe_shared_expert_gate", "moe_use_shared_expert_gate"), False),
        SideSpec(keys("use_shared_expert_gating", older="use_shared_expert_gating"), False),
    ),
    row(
        Worded("score_function"),
        SideSpec(("moe_router_score_function",), read=lambda c: value_of(c, ("moe_router_score_function",), "softmax")),
        SideSpec(
            keys("moe_router_score_function", "use_gating_sigmoid", "scoring_func", older="use_gating_sigmoid"), read=read.mindformers_score
        ),
        form=text,
    ),
    row(
        Worded("weights_of_the_chosen_add_up_to_one"),
        SideSpec(
            (
                *("moe_router_pre_softmax", "moe_router_score_function", "moe_router_topk"),
                *("norm_topk_prob", "moe_router_load_balancing_type"),
            ),
            read=read.megatron_normalised,
        ),
        SideSpec(keys("norm_topk_prob", "moe_router_pre_softmax", older="norm_topk_prob"), read=read.mindformers_normalised),
    ),
    row(
        Worded("groups_of_experts"),
        SideSpec(
            ("moe_router_num_groups", "moe_router_load_balancing_type", "expert_model_parallel_size"),
            read=mindspeed.groups("moe_router_num_groups"),
        ),
        SideSpec(
            keys("n_group", "n_groups", "moe_router_num_groups", older="n_group topk_method"),
            read=read.mindformers_expert_groups("moe_router_num_groups", "n_group", "n_groups"),
        ),
        form=lambda groups: None if groups in (0, 1) else plain(groups),
    ),
    row(
        Worded("groups_chosen"),
        SideSpec(("moe_router_group_topk", "moe_router_load_balancing_type"), read=mindspeed.groups("moe_router_group_topk")),
        SideSpec(
            keys("topk_group", "moe_router_group_topk", older="topk_group topk_method"),
            read=read.mindformers_expert_groups("moe_router_group_topk", "topk_group"),
        ),
        form=lambda groups: None if groups in (0, 1) else plain(groups),
    ),
    row(
        "routed_scaling_factor",
        SideSpec(("moe_router_topk_scaling_factor", "norm_topk_prob", "moe_router_load_balancing_type"), read=mindspeed.weights_scale),
        SideSpec(
            keys("routed_scaling_factor", "moe_router_topk_scaling_factor", older="routed_scaling_factor"),
            default("moe_router_topk_scaling_factor"),
        ),
        form=lambda factor: 1.0 if factor is None else plain(factor),
    ),
    row(
        Worded("bias_of_the_experts"),
        SideSpec(("moe_router_enable_expert_bias",), False),
        SideSpec(
            keys("moe_router_enable_expert_bias", "balance_via_topk_bias", older="balance_via_topk_bias"),
            default("moe_router_enable_expert_bias"),
        ),
    ),
    row(Worded("that_bias_is_moved"), SideSpec(fixed=True), SideSpec(("callbacks",), read=read.bias_is_moved), when="bias_of_the_experts"),
    row(
        Worded("update_rate_of_that_bias"),
        SideSpec(("moe_router_bias_update_rate",), 0.001),
        SideSpec(
            keys("moe_router_bias_update_rate", "topk_bias_update_rate", older="topk_bias_update_rate"),
            default("moe_router_bias_update_rate"),
        ),
        when="bias_of_the_experts",
    ),
    row(
        "aux_loss_factor",
        SideSpec(
            ("moe_aux_loss_coeff", "moe_router_load_balancing_type", "seq_aux"),
            read=balancing.megatron_weight,
            beside=("data_parallel_size",),
        ),
        SideSpec(
            keys("moe_aux_loss_coeff", "router_aux_loss_coef", "aux_loss_alpha", older="aux_loss_factors aux_loss_types"),
            read=balancing.mindformers_weight,
            beside=("moe_config.aux_loss_factor",),
        ),
        advice=Recommendation(message("advice.no_auxiliary_loss"), lambda factor: factor == 0),
    ),
    row(
        Worded("load_balancing_type"),
        SideSpec(("moe_router_load_balancing_type", "seq_aux", "micro_batch_size"), read=balancing.megatron_balancing),
        SideSpec((*balancing.KIND, "runner_config.batch_size", *balancing.LAYOUT), read=balancing.mindformers_balancing),
        when="aux_loss_factor",
        harmless_if=balancing.no_loss_is_wanted,
    ),
    row(
        Worded("choices_that_this_loss_counts"),
        SideSpec(("moe_router_enable_expert_bias", "moe_router_num_groups", "moe_router_group_topk"), read=balancing.megatron_counts),
        SideSpec(model("moe_router_enable_expert_bias", "n_group", "topk_group"), read=balancing.mindformers_counts),
        when="aux_loss_factor",
        harmless_if=balancing.no_loss_is_wanted,
        way_out=message("way_out.no_auxiliary_loss"),
    ),
    row(
        Worded("groups_that_are_not_chosen"),
        SideSpec(read=balancing.unchosen_groups),
        SideSpec(read=balancing.unchosen_groups),
        when="groups_of_experts",
        uncertain_if=lambda reference, candidate: message("by_hand.groups_not_chosen"),
    ),
    of_groups("device", "moe_device_level_aux_loss_coeff"),
    of_groups("comm", "moe_comm_aux_loss_coeff"),
    row(
        "z-loss",
        SideSpec(("moe_z_loss_coeff",), None),
        SideSpec(keys("moe_z_loss_coeff", "z_loss_factor", older="z_loss_factor"), None),
        form=lambda factor: plain(factor) or 0.0,
    ),
    row(
        "capacity_factor",
        SideSpec(("moe_expert_capacity_factor",), None),
        SideSpec(keys("capacity_factor", "moe_expert_capacity_factor", older="capacity_factor use_gmm"), read=read.mindformers_capacity),
        advice=Recommendation(message("advice.capacity"), lambda factor: factor is None or (are_numbers(factor) and factor >= 1)),
    ),
    row(
        Worded("tokens_that_are_dropped"),
        SideSpec(("moe_token_drop_policy", "moe_expert_capacity_factor"), read=read.megatron_dropping),
        SideSpec(keys("moe_token_drop_policy", "enable_sdrop", older="enable_sdrop"), read=read.mindformers_dropping),
        advice=Recommendation(message("advice.drop_by_position"), lambda policy: policy not in ("probs", Drops.BY_CHOICE)),
    ),
    rounding(
        Worded("experts_padded_to_their_capacity"),
        SideSpec(("moe_pad_expert_input_to_capacity",), False),
        SideSpec(keys("moe_pad_expert_input_to_capacity", "enable_sdrop", older="enable_sdrop"), False),
        when="capacity_factor",
    ),
    rounding(
        "router_dense_type",
        SideSpec(("moe_router_dtype", "router_gating_in_fp32"), read=precision.megatron_router_type),
        SideSpec(keys("router_dense_type", "moe_router_dtype", older="router_dense_type"), read=precision.mindformers_router_type),
        form=dtype,
        advice=Recommendation(message("advice.router_float32"), lambda kind: kind in ("float32", "float64")),
    ),
    row(
        Worded("jitter_of_the_input"),
        SideSpec(("moe_input_jitter_eps", "input_jitter"), read=mindspeed.jitter),
        SideSpec(model("moe_input_jitter_eps"), None),
        form=lambda eps: plain(eps) or 0.0,
    ),
    harmless(
        "routing_policy",
        SideSpec(),
        SideSpec(keys("routing_policy", older="routing_policy"), None),
        advice=Recommendation(message("advice.topk_router_v2"), lambda policy: policy in (None, "TopkRouterV2")),
    ),
    rounding(
        "use_fused_ops_topkrouter",
        SideSpec(("moe_router_fusion",), False),
        SideSpec(keys("use_fused_ops_topkrouter", "moe_router_fusion", older="use_fused_ops_topkrouter"), False),
    ),
    rounding(
        Worded("grouped_matrix_product_of_experts"),
        SideSpec(("moe_grouped_gemm",), False, beside=("moe_use_legacy_grouped_gemm",)),
        SideSpec(keys("moe_grouped_gemm", "use_gmm", older="use_gmm"), default("moe_grouped_gemm")),
    ),
    rounding(
        Worded("token_dispatcher"),
        SideSpec(("moe_token_dispatcher_type",), "allgather", beside=("moe_enable_deepep", "moe_flex_dispatcher_backend")),
        SideSpec(model("moe_token_dispatcher_type"), "alltoall", beside=keys("moe_enable_deepep", older="use_allgather_dispatcher")),
    ),
    rounding(
        Worded("fused_permutation"),
        SideSpec(("moe_permute_fusion",), False),
        SideSpec(keys("moe_permute_fusion", "use_fused_ops_permute", older="use_fused_ops_permute"), False),
    ),
    harmless(
        Worded("overlap_of_the_shared_experts"),
        SideSpec(("moe_shared_expert_overlap",), False),
        SideSpec(model("moe_shared_expert_overlap"), False),
    ),
    row(Worded("upcycling"), SideSpec(("moe_use_upcycling",), False), NEVER),
    rounding(Worded("extended_tensor_parallelism_of_experts"), SideSpec(("moe_extended_tp",), False), NEVER),
    harmless(Worded("log_of_every_layer"), SideSpec(("moe_per_layer_logging",), False), SideSpec(model("moe_per_layer_logging"), False)),
    row(
        "mtp_num_layers",
        SideSpec(("mtp_num_layers", "num_nextn_predict_layers"), None),
        SideSpec(model("num_nextn_predict_layers", "mtp_num_layers", "mtp_depth"), default("mtp_num_layers")),
        when="",
        form=lambda layers: plain(layers) or 0,
    ),
    row(
        "mtp_loss_scaling_factor",
        SideSpec(("mtp_loss_scaling_factor", "mtp_loss_scale"), mindspeed.extra_loss_scale),
        SideSpec(model("mtp_loss_factor", "mtp_loss_scaling_factor"), default("mtp_loss_scaling_factor")),
        when="mtp_num_layers",
    ),
    row(
        Worded("tokens_that_the_loss_of_further_tokens_is_divided_by"),
        SideSpec(read=balancing.shares),
        SideSpec(("calculate_per_token_loss",), read=balancing.shares),
        when="mtp_num_layers",
        way_out=message("way_out.no_loss_of_every_token_alike"),
    ),
    row(
        Worded("loss_that_is_printed"),
        SideSpec(read=lambda c: Printed.LANGUAGE_MODEL),
        SideSpec(read=lambda c: Printed.SUM if is_new(c) else Printed.LANGUAGE_MODEL),
        when="mtp_num_layers",
        uncertain_if=lambda reference, candidate: message("by_hand.printed_loss"),
    ),
)
