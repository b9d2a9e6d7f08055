"""Types and loss scales: the guide's weight and mixed-precision tables, and what the comparison's model table says of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from align_hooks.checklist import tries
from align_hooks.checklist.defaults import default
from align_hooks.checklist.meaning import Words
from align_hooks.checklist.readings import precision as read
from align_hooks.checklist.readings.lookup import all_sides
from align_hooks.checklist.row import NEVER, CheckRow, Effect, Recommendation, RowGroup, Says, dtype, model
from align_hooks.configuration.values import Configuration, Setting
from align_hooks.messages import Message, message

row = partial(CheckRow, group=RowGroup.PRECISION)
rounding = partial(row, effect=Effect.ROUNDING)
"""Rows whose differences change the rounding only."""
SCALES = ("scale_sense", *(f"scale_sense.{name}" for name in ("type", "loss_scale_value", "scale_factor")), "loss_scale_value")
"""Keys of ``runner_wrapper`` for a loss scale."""
PRECISION_MODES = ("ge_options.global.ge.opSelectImplmode", "precision_mode", "op_precision_mode")
HIGH_PRECISION = 'context.set_context(ascend_config={"ge_options": {"global": {"ge.opSelectImplmode": "high_precision"}}})'


def moment(name: str) -> CheckRow:
    """Return the row of the type of one of Adam's moments."""
    mindformers = Says(fixed="float32", note=message("note.holds_float32"))
    return rounding(name, Says((name,), "float32"), mindformers, form=dtype)


def scaled(name: str, megatron: Setting, mindformers: Says, make: Callable[..., CheckRow] = row) -> CheckRow:
    """Return a row of how a dynamic loss scale moves, which only float16 has."""
    return make(name, Says((name,), megatron), mindformers, when="compute_dtype=float16")


def held(kind: str, own: tuple[str, ...], older: Setting = None, *, note: Message | None = None, when: str = "") -> CheckRow:
    """Return the row of the type in which one kind of weight is held and updated, in MindFormers without float32 copies."""

    def harmless_if(*sides: Configuration) -> Words | None:
        return message("harmless.as_all_weights") if all_sides(lambda c: read.held_as_all(c, own, older), *sides) else None

    return row(
        message(f"row.type_of_the_{kind}"),
        Says(("main_params_dtype",), "float32", note=message("note.float32_copies")),
        Says(
            own,
            read=lambda c: read.own_type(c, own, older) or read.mindformers_parameter_type(c),
            note=note or message("note.weights_updated"),
            beside=model("param_init_type", "params_dtype"),
        ),
        form=dtype,
        when=when,
        harmless_if=harmless_if,
    )


PRECISION = (
    row(
        "compute_dtype",
        Says(("bf16", "fp16"), read=read.megatron_compute, note=message("note.compute_float32"), tries=tries.half_precision),
        Says(model("compute_dtype"), default("compute_dtype")),
        form=dtype,
        fact="training.compute_type",
    ),
    row(
        message("row.type_of_the_main_weights"),
        Says(("main_params_dtype",), "float32", note=message("note.float32_copies")),
        Says(model("param_init_type", "params_dtype"), read=read.mindformers_parameter_type, note=message("note.weights_updated")),
        form=dtype,
        advice=Recommendation(message("advice.weights_float32"), lambda kind: kind == "float32"),
    ),
    rounding(
        message("row.type_of_the_gradients_reduction"),
        Says(
            ("accumulate_allreduce_grads_in_fp32", "grad_reduce_in_bf16", "main_grads_dtype", "bf16", "fp16"),
            read=read.megatron_gradient_type,
            note=message("note.reduced_float32"),
        ),
        Says(model("param_init_type", "params_dtype"), read=read.mindformers_parameter_type, note=message("note.of_the_weights")),
    ),
    rounding(
        "layernorm_compute_type",
        Says(fixed="float32", note=message("note.norms_float32")),
        Says(model("layernorm_compute_type", "layernorm_compute_dtype"), default("layernorm_compute_dtype")),
        form=dtype,
    ),
    rounding(
        "softmax_compute_type",
        Says(
            ("attention_softmax_in_fp32", "apply_query_key_layer_scaling", "masked_softmax_fusion", "use_flash_attn", "attention_backend"),
            read=read.megatron_softmax_type,
            note=message("note.softmax_float32"),
        ),
        Says(
            model("softmax_compute_type", "softmax_compute_dtype", "use_flash_attention"),
            read=read.mindformers_softmax_type,
            note=message("note.flash_float32"),
        ),
    ),
    rounding(
        "rotary_dtype",
        Says(note=message("note.rotary_megatron")),
        Says(model("rotary_dtype"), default("rotary_dtype")),
        form=dtype,
        by_hand=message("by_hand.rotary_type"),
    ),
    held("embedding", model("embedding_init_type"), note=message("note.embedding_mindformers")),
    held("norms", model("layernorm_compute_type", "layernorm_compute_dtype"), default("layernorm_compute_dtype")),
    held("router", (*model("router_dense_type"), "moe_config.router_dense_type"), default("moe_router_dtype"), when="expert_num"),
    rounding(
        message("row.type_of_the_output_layer"),
        Says(("bf16", "fp16"), read=read.megatron_compute),
        Says(model("compute_dtype"), default("compute_dtype"), note=message("note.cast_before")),
        form=dtype,
    ),
    rounding(
        message("row.type_in_which_a_bias_is_added"),
        Says(("bf16", "fp16", "add_bias_linear"), read=read.megatron_compute),
        Says(model("compute_dtype"), default("compute_dtype")),
        form=dtype,
        when="bias_of_linear_layers",
    ),
    rounding(
        message("row.type_in_which_the_residual_is_added"),
        Says(("fp32_residual_connection", "bf16", "fp16"), read=read.megatron_residual, note=message("note.residual_type")),
        Says(model("fp32_residual_connection", "residual_dtype"), read=read.mindformers_residual),
    ),
    rounding(
        message("row.types_that_the_built_layers_compute_in"),
        Says(read=read.built_types, note=message("note.types_megatron")),
        Says(read=read.built_types, note=message("note.types_mindformers")),
        describe=read.type_differences,
        harmless_if=read.types_where_both_have_them,
        by_hand=message("by_hand.record_types"),
    ),
    rounding(
        message("row.type_of_the_cross_entropy"),
        Says(("fp16_lm_cross_entropy",), read=read.megatron_loss_type),
        Says(fixed="float32", note=message("note.logits_float32")),
    ),
    row(
        "fp8",
        Says(("fp8",), None, beside=("fp8_recipe", "fp8_margin", "fp8_amax_history_len", "fp8_amax_compute_algo", "fp8_param_gather")),
        Says(fixed=None, note=message("note.no_fp8")),
    ),
    rounding(
        "first_last_layers_bf16",
        Says(("first_last_layers_bf16",), False, beside=("num_layers_at_start_in_bf16", "num_layers_at_end_in_bf16")),
        NEVER,
    ),
    rounding("use_precision_aware_optimizer", Says(("use_precision_aware_optimizer",), False), NEVER),
    moment("exp_avg_dtype"),
    moment("exp_avg_sq_dtype"),
    rounding(
        "loss_scale",
        Says(("loss_scale", "initial_loss_scale", "fp16", "bf16"), read=read.megatron_loss_scale, note=message("note.loss_scale_megatron")),
        Says(
            tuple(f"runner_wrapper.{name}" for name in SCALES),
            read=read.mindformers_loss_scale,
            tries=tries.loss_scale,
            note=message("note.loss_scale_mindformers"),
        ),
    ),
    scaled("min_loss_scale", 1.0, Says(fixed=1.0, note=message("note.scale_no_lower")), rounding),
    scaled(
        "loss_scale_window",
        1000,
        Says(("runner_wrapper.scale_sense.scale_window", "runner_wrapper.loss_scale_window"), 1000, tries=tries.scale_window),
    ),
    scaled("hysteresis", 2, Says(fixed=1, note=message("note.first_overflow"))),
    rounding(
        message("row.high_precision_of_operators"),
        Says(),
        Says(tuple(f"context.ascend_config.{name}" for name in PRECISION_MODES), None),
        by_hand=message("by_hand.high_precision", command=HIGH_PRECISION),
    ),
)
