"""Features that are not deterministic, or not the same on two frameworks: kernels, fusions, overlaps; and recomputation."""

from __future__ import annotations

from functools import partial

from align_hooks.checklist import tries
from align_hooks.checklist.readings import features
from align_hooks.checklist.readings import precision as read
from align_hooks.checklist.readings.lookup import is_on
from align_hooks.checklist.row import CheckRow, Effect, Recommendation, RowGroup, Says, model
from align_hooks.messages import Message, message

row = partial(CheckRow, group=RowGroup.KERNELS_AND_FUSIONS)
rounding, harmless = partial(row, effect=Effect.ROUNDING), partial(row, effect=Effect.NOTHING)
"""Rows whose differences change the rounding only, or nothing."""
OFF = Recommendation(message("advice.off_while_aligning"), lambda on: not on)
NOT_THERE = message("note.no_such_switch")


def megatron_only(name: Message, key: str, otherwise: bool, advice: Recommendation | None = None, when: str = "") -> CheckRow:
    """Return the row of a switch of Megatron's that MindFormers has no counterpart of."""
    return rounding(name, Says((key,), otherwise), Says(note=NOT_THERE), when=when, advice=advice)


def megatron_recompute(name: str, when: str = "") -> CheckRow:
    """Return the row of what only Megatron can compute again, which changes no result."""
    return harmless(name, Says((name.replace("-", "_"),), False), Says(note=NOT_THERE), when=when)


FEATURES = (
    rounding(
        "use_flash_attention",
        Says(("use_flash_attn", "attention_backend", "transformer_impl"), read=read.megatron_flash, note=message("note.attention_backend")),
        Says(model("use_flash_attention"), read=read.mindformers_flash),
    ),
    megatron_only(message("row.fused_masked_softmax"), "masked_softmax_fusion", True),
    megatron_only(message("row.fused_bias_and_gelu"), "bias_gelu_fusion", True, when="activation_function=gelu"),
    rounding(
        message("row.fused_bias_and_swiglu"),
        Says(("bias_swiglu_fusion",), True),
        Says(model("bias_swiglu_fusion", "use_fused_swiglu"), False, tries=tries.fused_swiglu),
    ),
    megatron_only(message("row.fused_bias_and_dropout"), "bias_dropout_fusion", True),
    rounding(
        message("row.fused_rotary_embedding"),
        Says(("apply_rope_fusion",), True),
        Says(model("apply_rope_fusion", "use_fused_rope"), False, beside=model("use_rope_slice")),
    ),
    rounding(
        message("row.fused_norm"),
        Says(("no_persist_layer_norm",), read=lambda c: not is_on(c, "no_persist_layer_norm")),
        Says(model("fused_rms_norm", "fused_norm"), True),
    ),
    megatron_only(message("row.fused_cross_entropy"), "cross_entropy_loss_fusion", False, OFF),
    megatron_only(message("row.gradient_accumulation_fusion"), "gradient_accumulation_fusion", True),
    harmless(
        message("row.overlap_of_the_gradients_reduction"),
        Says(("overlap_grad_reduce", "overlap_param_gather", "tp_comm_overlap", "overlap_moe_expert_parallel_comm"), read=features.overlap),
        Says(("parallel_config.gradient_aggregation_group", "parallel.comm_fusion"), read=lambda c: None),
        advice=OFF,
    ),
    harmless(message("row.compressed_attention_mask"), Says(), Says(model("use_attn_mask_compression"), False)),
    harmless(
        "recompute-activations",
        Says(
            ("recompute_activations", "recompute_granularity", "recompute_method", "recompute_num_layers"),
            read=features.megatron_recomputes,
        ),
        Says(("recompute_config.recompute", "recompute_config.select_recompute"), read=features.mindformers_recomputes),
    ),
    megatron_recompute("distribute-saved-activations"),
    megatron_recompute("checkpoint-activations"),
    megatron_recompute("moe-layer-recompute", "expert_num"),
)
