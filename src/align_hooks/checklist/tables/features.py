"""Features that are not deterministic, or not the same on two frameworks: kernels, fusions, overlaps; and recomputation."""

from __future__ import annotations

from align_hooks.checklist.readings import features
from align_hooks.checklist.readings import precision as read
from align_hooks.checklist.row import Advice, Effect, Group, Row, Says, boolean, model
from align_hooks.messages import Message, message

GROUP = Group.KERNELS_AND_FUSIONS
OFF = Advice(message("advice.off_while_aligning"), lambda on: not on)
NOT_THERE = message("note.no_such_switch")


def megatron_only(name: Message, key: str, otherwise: bool, advice: Advice | None = None, when: str = "") -> Row:
    """A switch of Megatron's that MindFormers has no counterpart of."""
    flag = f"{'no-' if otherwise else ''}{key.replace('_', '-')}"
    sources = () if key == "gradient_accumulation_fusion" else (f"comparison: attention: {flag}",)
    return Row(
        name,
        GROUP,
        Says((key,), otherwise),
        Says(note=NOT_THERE),
        form=boolean,
        effect=Effect.ROUNDING,
        when=when,
        advice=advice,
        sources=(*sources, "CheckList: structure: Fusion computation"),
    )


FEATURES = (
    Row(
        "use_flash_attention",
        GROUP,
        Says(
            ("use_flash_attn", "attention_backend", "transformer_impl"),
            read=read.megatron_flash,
            note=message("note.attention_backend"),
        ),
        Says(model("use_flash_attention"), read=read.mindformers_flash),
        form=boolean,
        effect=Effect.ROUNDING,
        sources=(
            "CheckList: structure: Fusion computation",
            "comparison: attention: attention-backend",
            "comparison: attention: use-flash-attn",
        ),
    ),
    megatron_only(message("row.fused_masked_softmax"), "masked_softmax_fusion", True),
    megatron_only(message("row.fused_bias_and_gelu"), "bias_gelu_fusion", True, when="activation_function=gelu"),
    Row(
        message("row.fused_bias_and_swiglu"),
        GROUP,
        Says(("bias_swiglu_fusion",), True),
        Says(model("bias_swiglu_fusion", "use_fused_swiglu"), False),
        form=boolean,
        effect=Effect.ROUNDING,
        sources=("CheckList: structure: Fusion computation", "comparison: attention: no-bias-swiglu-fusion"),
    ),
    megatron_only(message("row.fused_bias_and_dropout"), "bias_dropout_fusion", True),
    Row(
        message("row.fused_rotary_embedding"),
        GROUP,
        Says(("apply_rope_fusion",), True),
        Says(model("apply_rope_fusion", "use_fused_rope"), False, beside=model("use_rope_slice")),
        form=boolean,
        effect=Effect.ROUNDING,
        sources=("CheckList: structure: Fusion computation", "comparison: attention: no-rope-fusion"),
    ),
    Row(
        message("row.fused_norm"),
        GROUP,
        Says(("no_persist_layer_norm",), read=features.fused_norm),
        Says(model("fused_rms_norm", "fused_norm"), True),
        form=boolean,
        effect=Effect.ROUNDING,
        sources=("CheckList: structure: Fusion computation", "comparison: model: no-persist-layer-norm"),
    ),
    megatron_only(message("row.fused_cross_entropy"), "cross_entropy_loss_fusion", False, OFF),
    megatron_only(message("row.gradient_accumulation_fusion"), "gradient_accumulation_fusion", True),
    Row(
        message("row.overlap_of_the_gradients_reduction"),
        GROUP,
        Says(
            ("overlap_grad_reduce", "overlap_param_gather", "tp_comm_overlap", "overlap_moe_expert_parallel_comm"),
            read=features.overlap,
        ),
        Says(("parallel_config.gradient_aggregation_group", "parallel.comm_fusion"), read=features.no_overlap),
        effect=Effect.NOTHING,
        advice=OFF,
        sources=("CheckList: parallel: data_parallel",),
    ),
    Row(
        message("row.compressed_attention_mask"),
        GROUP,
        Says(),
        Says(model("use_attn_mask_compression"), False),
        form=boolean,
        effect=Effect.NOTHING,
        sources=("CheckList: structure: Fusion computation",),
    ),
    Row(
        "recompute-activations",
        GROUP,
        Says(("recompute_activations", "recompute_granularity", "recompute_method", "recompute_num_layers"), read=features.recomputes),
        Says(("recompute_config.recompute", "recompute_config.select_recompute"), read=features.recomputes_too),
        effect=Effect.NOTHING,
        sources=(
            "comparison: recompute: recompute-activations",
            "comparison: recompute: recompute-granularity",
            "comparison: recompute: recompute-method",
            "comparison: recompute: recompute-num-layers",
        ),
    ),
    Row(
        "distribute-saved-activations",
        GROUP,
        Says(("distribute_saved_activations",), False),
        Says(note=NOT_THERE),
        effect=Effect.NOTHING,
        sources=("comparison: recompute: distribute-saved-activations",),
    ),
    Row(
        "checkpoint-activations",
        GROUP,
        Says(("checkpoint_activations",), False),
        Says(note=NOT_THERE),
        effect=Effect.NOTHING,
        sources=("comparison: recompute: checkpoint-activations",),
    ),
    Row(
        "moe-layer-recompute",
        GROUP,
        Says(("moe_layer_recompute",), False),
        Says(note=NOT_THERE),
        when="expert_num",
        effect=Effect.NOTHING,
        sources=("comparison: recompute: moe-layer-recompute",),
    ),
)
