"""Features that are not deterministic, or not the same on two frameworks: kernels, fusions, overlaps; and recomputation."""

from __future__ import annotations

from align_hooks.checklist.readings import features
from align_hooks.checklist.readings import precision as read
from align_hooks.checklist.row import Advice, Effect, Row, Says, boolean, model

GROUP = "kernels and fusions"
OFF = Advice("off while the runs are aligned, then on again one by one", lambda on: not on)
NOT_THERE = "MindFormers has no such switch"


def megatron_only(name: str, key: str, otherwise: bool, advice: Advice | None = None, when: str = "") -> Row:
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
            note="--attention-backend auto takes a flash or fused kernel on a GPU",
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
    megatron_only("fused masked softmax", "masked_softmax_fusion", True),
    megatron_only("fused bias and GELU", "bias_gelu_fusion", True, when="activation function=gelu"),
    Row(
        "fused bias and SwiGLU",
        GROUP,
        Says(("bias_swiglu_fusion",), True),
        Says(model("bias_swiglu_fusion", "use_fused_swiglu"), False),
        form=boolean,
        effect=Effect.ROUNDING,
        sources=("CheckList: structure: Fusion computation", "comparison: attention: no-bias-swiglu-fusion"),
    ),
    megatron_only("fused bias and dropout", "bias_dropout_fusion", True),
    Row(
        "fused rotary embedding",
        GROUP,
        Says(("apply_rope_fusion",), True),
        Says(model("apply_rope_fusion", "use_fused_rope"), False, beside=model("use_rope_slice")),
        form=boolean,
        effect=Effect.ROUNDING,
        sources=("CheckList: structure: Fusion computation", "comparison: attention: no-rope-fusion"),
    ),
    Row(
        "fused norm",
        GROUP,
        Says(("no_persist_layer_norm",), read=features.fused_norm),
        Says(model("fused_rms_norm", "fused_norm"), True),
        form=boolean,
        effect=Effect.ROUNDING,
        sources=("CheckList: structure: Fusion computation", "comparison: model: no-persist-layer-norm"),
    ),
    megatron_only("fused cross entropy", "cross_entropy_loss_fusion", False, OFF),
    megatron_only("gradient accumulation fusion", "gradient_accumulation_fusion", True),
    Row(
        "overlap of the gradients' reduction",
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
        "compressed attention mask",
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
