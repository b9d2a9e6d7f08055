"""Types, loss scales and kernels: the guide's weight and mixed-precision tables, and what the model table of the comparison says."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from align_hooks.checklist.canonical_values import Words, dtype
from align_hooks.checklist.lookup import all_sides, is_on, model
from align_hooks.checklist.mindformers_models import default
from align_hooks.checklist.resolvers import precision as read
from align_hooks.checklist.row import NEVER, CheckRow, Effect, Recommendation, RowGroup, SideSpec, Worded
from align_hooks.configuration.values import Configuration, Setting
from align_hooks.messages import message

row = partial(CheckRow, group=RowGroup.PRECISION)
rounding = partial(row, effect=Effect.ROUNDING)
"""Rows whose differences change the rounding only."""
SCALES = ("scale_sense", *(f"scale_sense.{name}" for name in ("type", "loss_scale_value", "scale_factor")), "loss_scale_value")
"""Keys of ``runner_wrapper`` for a loss scale."""
PRECISION_MODES = ("ge_options.global.ge.opSelectImplmode", "precision_mode", "op_precision_mode")
HIGH_PRECISION = 'context.set_context(ascend_config={"ge_options": {"global": {"ge.opSelectImplmode": "high_precision"}}})'


def moment(name: str) -> CheckRow:
    """Return the row of the type of one of Adam's moments."""
    mindformers = SideSpec(fixed="float32")
    return rounding(name, SideSpec((name,), "float32"), mindformers, form=dtype)


def scaled(name: str, megatron: Setting, mindformers: SideSpec, make: Callable[..., CheckRow] = row) -> CheckRow:
    """Return a row of how a dynamic loss scale moves, which only float16 has."""
    return make(name, SideSpec((name,), megatron), mindformers, when="compute_dtype=float16")


def held(kind: str, own: tuple[str, ...], older: Setting = None, when: str = "") -> CheckRow:
    """Return the row of the type in which one kind of weight is held and updated, in MindFormers without float32 copies."""

    def harmless_if(*sides: Configuration) -> Words | None:
        return message("harmless.as_all_weights") if all_sides(lambda c: read.held_as_all(c, own, older), *sides) else None

    return row(
        Worded(f"type_of_the_{kind}"),
        SideSpec(("main_params_dtype",), "float32"),
        SideSpec(
            own,
            read=lambda c: read.own_type(c, own, older) or read.mindformers_parameter_type(c),
            beside=model("param_init_type", "params_dtype"),
        ),
        form=dtype,
        when=when,
        harmless_if=harmless_if,
    )


PRECISION = (
    row(
        "compute_dtype",
        SideSpec(("bf16", "fp16"), read=read.half_precision),
        SideSpec(model("compute_dtype"), default("compute_dtype")),
        form=dtype,
        fact="training.compute_type",
    ),
    row(
        Worded("type_of_the_main_weights"),
        SideSpec(("main_params_dtype",), "float32"),
        SideSpec(model("param_init_type", "params_dtype"), read=read.mindformers_parameter_type),
        form=dtype,
        advice=Recommendation(message("advice.weights_float32"), lambda kind: kind == "float32"),
    ),
    rounding(
        Worded("type_of_the_gradients_reduction"),
        SideSpec(
            ("accumulate_allreduce_grads_in_fp32", "grad_reduce_in_bf16", "main_grads_dtype", "bf16", "fp16"),
            read=read.megatron_gradient_type,
        ),
        SideSpec(model("param_init_type", "params_dtype"), read=read.mindformers_parameter_type),
    ),
    rounding(
        "layernorm_compute_type",
        SideSpec(fixed="float32"),
        SideSpec(model("layernorm_compute_type", "layernorm_compute_dtype"), default("layernorm_compute_dtype")),
        form=dtype,
    ),
    rounding(
        "softmax_compute_type",
        SideSpec(
            ("attention_softmax_in_fp32", "apply_query_key_layer_scaling", "masked_softmax_fusion", "use_flash_attn", "attention_backend"),
            read=read.megatron_softmax_type,
        ),
        SideSpec(model("softmax_compute_type", "softmax_compute_dtype", "use_flash_attention"), read=read.mindformers_softmax_type),
    ),
    rounding(
        "rotary_dtype",
        SideSpec(),
        SideSpec(model("rotary_dtype"), default("rotary_dtype")),
        form=dtype,
        by_hand=message("by_hand.rotary_type"),
    ),
    held("embedding", model("embedding_init_type")),
    held("norms", model("layernorm_compute_type", "layernorm_compute_dtype"), default("layernorm_compute_dtype")),
    held("router", (*model("router_dense_type"), "moe_config.router_dense_type"), default("moe_router_dtype"), when="expert_num"),
    rounding(
        Worded("type_of_the_output_layer"),
        SideSpec(("bf16", "fp16"), read=read.megatron_compute),
        SideSpec(model("compute_dtype"), default("compute_dtype")),
        form=dtype,
    ),
    rounding(
        Worded("type_in_which_a_bias_is_added"),
        SideSpec(("bf16", "fp16", "add_bias_linear"), read=read.megatron_compute),
        SideSpec(model("compute_dtype"), default("compute_dtype")),
        form=dtype,
        when="bias_of_linear_layers",
    ),
    rounding(
        Worded("type_in_which_the_residual_is_added"),
        SideSpec(("fp32_residual_connection", "bf16", "fp16"), read=read.megatron_residual),
        SideSpec(model("fp32_residual_connection", "residual_dtype"), read=read.mindformers_residual),
    ),
    rounding(
        Worded("types_that_the_built_layers_compute_in"),
        SideSpec(read=read.built_types),
        SideSpec(read=read.built_types),
        describe=read.type_differences,
        harmless_if=read.types_where_both_have_them,
        by_hand=message("by_hand.record_types"),
    ),
    rounding(
        Worded("type_of_the_cross_entropy"), SideSpec(("fp16_lm_cross_entropy",), read=read.megatron_loss_type), SideSpec(fixed="float32")
    ),
    row(
        "fp8",
        SideSpec(("fp8",), None, beside=("fp8_recipe", "fp8_margin", "fp8_amax_history_len", "fp8_amax_compute_algo", "fp8_param_gather")),
        SideSpec(fixed=None),
    ),
    row("fp4", SideSpec(("fp4",), None, beside=("fp4_recipe", "fp4_param_gather")), SideSpec(fixed=None)),
    rounding(
        "first_last_layers_bf16",
        SideSpec(("first_last_layers_bf16",), False, beside=("num_layers_at_start_in_bf16", "num_layers_at_end_in_bf16")),
        NEVER,
    ),
    rounding("use_precision_aware_optimizer", SideSpec(("use_precision_aware_optimizer",), False), NEVER),
    moment("exp_avg_dtype"),
    moment("exp_avg_sq_dtype"),
    rounding(
        "loss_scale",
        SideSpec(("loss_scale", "initial_loss_scale", "fp16", "bf16"), read=read.megatron_loss_scale),
        SideSpec(tuple(f"runner_wrapper.{name}" for name in SCALES), read=read.mindformers_loss_scale),
    ),
    scaled("min_loss_scale", 1.0, SideSpec(fixed=1.0), rounding),
    scaled(
        "loss_scale_window",
        1000,
        SideSpec(("runner_wrapper.scale_sense.scale_window", "runner_wrapper.loss_scale_window"), 1000, writer=read.scale_window_edits),
    ),
    scaled("hysteresis", 2, SideSpec(fixed=1)),
    rounding(
        Worded("high_precision_of_operators"),
        SideSpec(),
        SideSpec(tuple(f"context.ascend_config.{name}" for name in PRECISION_MODES), None),
        by_hand=message("by_hand.high_precision", command=HIGH_PRECISION),
    ),
)


kernel = partial(CheckRow, group=RowGroup.KERNELS_AND_FUSIONS, effect=Effect.ROUNDING)
harmless_kernel = partial(kernel, effect=Effect.NOTHING)
OFF = Recommendation(message("advice.off_while_aligning"), lambda on: not on)


def megatron_only(name: str, key: str, otherwise: bool, advice: Recommendation | None = None, when: str = "") -> CheckRow:
    """Return the row of a switch of Megatron's that MindFormers has no counterpart of."""
    return kernel(name, SideSpec((key,), otherwise), SideSpec(), when=when, advice=advice)


def megatron_recompute(name: str, when: str = "") -> CheckRow:
    """Return the row of what only Megatron can compute again, which changes no result."""
    return harmless_kernel(name, SideSpec((name.replace("-", "_"),), False), SideSpec(), when=when)


FEATURES = (
    kernel(
        "use_flash_attention",
        SideSpec(("use_flash_attn", "attention_backend", "transformer_impl"), read=read.megatron_flash),
        SideSpec(model("use_flash_attention"), read=read.mindformers_flash),
    ),
    megatron_only(Worded("fused_masked_softmax"), "masked_softmax_fusion", True),
    megatron_only(Worded("fused_bias_and_gelu"), "bias_gelu_fusion", True, when="activation_function=gelu"),
    kernel(
        Worded("fused_bias_and_swiglu"),
        SideSpec(("bias_swiglu_fusion",), True),
        SideSpec(model("bias_swiglu_fusion", "use_fused_swiglu"), False, writer=read.fused_swiglu_edits),
    ),
    megatron_only(Worded("fused_bias_and_dropout"), "bias_dropout_fusion", True),
    kernel(
        Worded("fused_rotary_embedding"),
        SideSpec(("apply_rope_fusion",), True),
        SideSpec(model("apply_rope_fusion", "use_fused_rope"), False, beside=model("use_rope_slice")),
    ),
    kernel(
        Worded("fused_norm"),
        SideSpec(("no_persist_layer_norm",), read=lambda c: not is_on(c, "no_persist_layer_norm")),
        SideSpec(model("fused_rms_norm", "fused_norm"), True),
    ),
    megatron_only(Worded("fused_cross_entropy"), "cross_entropy_loss_fusion", False, OFF),
    megatron_only(Worded("gradient_accumulation_fusion"), "gradient_accumulation_fusion", True),
    harmless_kernel(
        Worded("overlap_of_the_gradients_reduction"),
        SideSpec(("overlap_grad_reduce", "overlap_param_gather", "tp_comm_overlap", "overlap_moe_expert_parallel_comm"), read=read.overlap),
        SideSpec(("parallel_config.gradient_aggregation_group", "parallel.comm_fusion"), read=lambda c: None),
        advice=OFF,
    ),
    harmless_kernel(Worded("compressed_attention_mask"), SideSpec(), SideSpec(model("use_attn_mask_compression"), False)),
    harmless_kernel(
        "recompute-activations",
        SideSpec(
            ("recompute_activations", "recompute_granularity", "recompute_method", "recompute_num_layers"), read=read.megatron_recomputes
        ),
        SideSpec(("recompute_config.recompute", "recompute_config.select_recompute"), read=read.mindformers_recomputes),
    ),
    megatron_recompute("distribute-saved-activations"),
    megatron_recompute("checkpoint-activations"),
    megatron_recompute("moe-layer-recompute", "expert_num"),
)
