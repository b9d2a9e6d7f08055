"""Where a dump has the points of a model: tables of data, a framework's module paths each.

A point is a place in the forward pass with one canonical name, whatever the framework calls the module (Hugging Face's names). Its value is
[rows, sequence, width]; its gradient is that of the objective. What a module was given says the gradient of its input alone, not of a
tensor that others were given too: such points have a value only.

A dump of MindSpore's has operators and not modules. There a point is the input or the output of an operator of a known kind, and only where
the Cell has exactly as many of that kind as the row says. Where a compiler has fused operators, or where those of a backward pass or of
several micro-batches bear the same names, the count differs and the point is left out: "the last operator of a Cell" would be another
tensor there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TypeAlias

from align_hooks.evidence.dumps.entry import INPUT, OUTPUT, Dump

SB, BS = "sb", "bs"
"""The order of the first two axes, or of the tokens where these are one: sequence and rows, or rows and sequence."""
LAYER = "model.layers.{layer}"
ATTENTION, MLP = f"{LAYER}.self_attn", f"{LAYER}.mlp"
PREFIX = r"(?:(?P<chunk>\d+)\.)?(?:(?:module|_orig_mod|network|_backbone|backbone|model|language_model)\.)*?"
"""What may stand before a path: the model's number in a list, and what wraps it."""


Operators: TypeAlias = tuple[tuple[tuple[str, ...], int], ...]
"""Kinds of operators and how many of them stand in a Cell, and in no Cell within it. The first that fits counts; of several operators the
one that ran last."""
MATMUL = ("MatMul", "BatchMatMul", "MatMulExt", "BatchMatMulExt", "MatMulV2", "Dense")
ADD = ("Add", "AddExt", "BiasAdd", "TensorAdd")
FUSED_NORM = ("RmsNorm", "LayerNorm", "LayerNormV3", "LayerNormExt")
LINEAR_IN: Operators = ((MATMUL, 1),)
LINEAR_OUT: Operators = ((ADD, 1), (MATMUL, 1))
NORM_IN: Operators = ((FUSED_NORM, 1), (("Square", "Pow", "PowTensorScalar"), 1))
NORM_OUT: Operators = ((FUSED_NORM, 1), (("Mul", "Muls"), 2))
LAYER_OUT: Operators = ((ADD, 2),)
EMBEDDING_OUT: Operators = ((("Gather", "GatherV2", "Embedding", "EmbeddingLookup"), 1),)


class Fusion(Enum):
    """How a module's output is cut into the points of its row."""

    GROUPS = "query groups"
    HALVES = "gate and up"


GROUPS, HALVES = Fusion.GROUPS, Fusion.HALVES


@dataclass(frozen=True, slots=True)
class Row:
    """One module that has points.

    ``path`` is its path, ``{layer}`` a number. ``side`` and ``index`` say which of its inputs or outputs it is; several names of an
    argument stand between bars. ``kinds`` is a regular expression of its class, where that matters. ``operators`` say which operator it is
    in a dump of operators, none where it is not to be found there. ``alone`` says that nothing but this module was given its input, so that
    the gradient of it is the point's. ``modules`` is False where a module has more inside than the point.
    """

    path: str
    points: tuple[str, ...]
    order: str
    side: str = OUTPUT
    index: str = "0"
    kinds: str = ""
    operators: Operators = ()
    fusion: Fusion | None = None
    alone: bool = False
    modules: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """A framework's rows; ``latent`` are those of latent attention, ``knows`` is a path that only its models have."""

    name: str
    rows: tuple[Row, ...]
    knows: str
    latent: tuple[Row, ...] = ()


def _linear(path: str, *points: str, order: str, fusion: Fusion | None = None) -> Row:
    return Row(path, points, order, operators=LINEAR_OUT, fusion=fusion)


def _norm(path: str, point: str, order: str) -> Row:
    return Row(path, (point,), order, operators=NORM_OUT)


def _given(
    path: str, point: str, order: str, operators: Operators, *, alone: bool = False, kinds: str = "", index: str = "0|x|input"
) -> Row:
    return Row(path, (point,), order, INPUT, index, kinds, operators, alone=alone)


BLOCK = "decoder.layers.{layer}"
QKV = tuple(f"{ATTENTION}.{name}_proj" for name in "qkv")
GATE_UP = (f"{MLP}.gate_proj", f"{MLP}.up_proj")
HIDDEN = "0|hidden_states|x"
NO_STAND_IN = "(?!Identity).*"
"""The class of a norm that is there; where Transformer Engine has it in the next layer, something that does nothing takes its place."""
MEGATRON = Table(
    "Megatron-LM",
    (
        Row("embedding", ("model.embed_tokens",), SB),
        Row("embedding.word_embeddings", ("model.embed_tokens",), BS, operators=EMBEDDING_OUT, modules=False),
        Row(BLOCK, (f"{LAYER}.input",), SB, INPUT, HIDDEN),
        _given(f"{BLOCK}.input_layernorm", f"{LAYER}.input", SB, NORM_IN, kinds=NO_STAND_IN),
        Row(f"{BLOCK}.input_layernorm", (f"{LAYER}.input_layernorm",), SB, kinds=NO_STAND_IN, operators=NORM_OUT),
        _linear(f"{BLOCK}.self_attention.linear_qkv", *QKV, order=SB, fusion=GROUPS),
        _norm(f"{BLOCK}.self_attention.q_layernorm", f"{ATTENTION}.q_norm", SB),
        _norm(f"{BLOCK}.self_attention.k_layernorm", f"{ATTENTION}.k_norm", SB),
        *(
            Row(f"{BLOCK}.self_attention.core_attention", (f"{ATTENTION}.{point}",), SB, INPUT, index, alone=True)
            for index, point in (("0|query", "query"), ("1|key", "key"), ("2|value", "value"))
        ),
        _given(f"{BLOCK}.self_attention.linear_proj", f"{ATTENTION}.core", SB, LINEAR_IN, alone=True),
        _linear(f"{BLOCK}.self_attention.linear_proj", f"{ATTENTION}.o_proj", order=SB),
        _given(f"{BLOCK}.pre_mlp_layernorm", f"{LAYER}.residual", SB, NORM_IN, kinds=NO_STAND_IN),
        Row(f"{BLOCK}.pre_mlp_layernorm", (f"{LAYER}.post_attention_layernorm",), SB, kinds=NO_STAND_IN, operators=NORM_OUT),
        Row(f"{BLOCK}.mlp.linear_fc1", (f"{LAYER}.residual",), SB, INPUT, kinds="TELayerNorm.*"),
        _linear(f"{BLOCK}.mlp.linear_fc1", *GATE_UP, order=SB, fusion=HALVES),
        _given(f"{BLOCK}.mlp.linear_fc2", f"{MLP}.activation", SB, LINEAR_IN, alone=True),
        _linear(f"{BLOCK}.mlp.linear_fc2", f"{MLP}.down_proj", order=SB),
        Row(f"{BLOCK}.mlp.router", (f"{MLP}.gate.weights",), SB, kinds="TopKRouter"),
        Row(f"{BLOCK}.mlp.shared_experts", (f"{MLP}.shared_experts",), SB),
        Row(f"{BLOCK}.mlp", (MLP,), SB, kinds="MoELayer"),
        Row(BLOCK, (LAYER,), SB, operators=LAYER_OUT),
        _norm("decoder.final_layernorm", "model.norm", SB),
        _linear("output_layer", "lm_head", order=SB),
        Row("", ("token_losses",), BS, kinds="GPTModel|HybridModel"),
    ),
    knows=f"{BLOCK}.self_attention.linear_proj",
    latent=tuple(
        Row(f"{BLOCK}.self_attention.{path}", (f"{ATTENTION}.{point}",), SB, operators=operators)
        for path, point, operators in (
            ("linear_q_proj", "q_proj", LINEAR_OUT),
            ("linear_q_down_proj", "q_a_proj", LINEAR_OUT),
            ("q_layernorm", "q_a_layernorm", NORM_OUT),
            ("linear_q_up_proj", "q_b_proj", LINEAR_OUT),
            ("linear_qb", "q_b_proj", LINEAR_OUT),
            ("linear_kv_down_proj", "kv_a_proj_with_mqa", LINEAR_OUT),
            ("kv_layernorm", "kv_a_layernorm", NORM_OUT),
            ("k_layernorm", "kv_a_layernorm", NORM_OUT),
            ("linear_kv_up_proj", "kv_b_proj", LINEAR_OUT),
            ("linear_kvb", "kv_b_proj", LINEAR_OUT),
        )
    ),
)
"""Megatron-LM with the local and the Transformer Engine layers, and MindFormers' newer models, which have its names."""

MINDFORMERS = Table(
    "MindFormers, use_legacy: True",
    (
        Row("model.tok_embeddings", ("model.embed_tokens",), BS, operators=EMBEDDING_OUT),
        Row(LAYER, (f"{LAYER}.input",), BS, INPUT, HIDDEN),
        _given(f"{LAYER}.attention_norm", f"{LAYER}.input", BS, NORM_IN),
        _norm(f"{LAYER}.attention_norm", f"{LAYER}.input_layernorm", BS),
        *(_linear(f"{LAYER}.attention.w{name}", point, order=BS) for name, point in zip("qkv", QKV, strict=True)),
        _linear(f"{LAYER}.attention.w_qkv", *QKV, order=BS, fusion=GROUPS),
        _given(f"{LAYER}.attention.wo", f"{ATTENTION}.core", BS, LINEAR_IN, alone=True),
        _linear(f"{LAYER}.attention.wo", f"{ATTENTION}.o_proj", order=BS),
        _given(f"{LAYER}.ffn_norm", f"{LAYER}.residual", BS, NORM_IN),
        _norm(f"{LAYER}.ffn_norm", f"{LAYER}.post_attention_layernorm", BS),
        Row(f"{LAYER}.feed_forward.w1", GATE_UP[:1], BS, operators=LINEAR_OUT, modules=False),  # its activation is inside
        _linear(f"{LAYER}.feed_forward.w3", GATE_UP[1], order=BS),
        Row(f"{LAYER}.feed_forward.w_gate_hidden", GATE_UP, BS, operators=LINEAR_OUT, fusion=HALVES),
        _given(f"{LAYER}.feed_forward.w2", f"{MLP}.activation", BS, LINEAR_IN, alone=True),
        _linear(f"{LAYER}.feed_forward.w2", f"{MLP}.down_proj", order=BS),
        Row(LAYER, (LAYER,), BS, operators=LAYER_OUT),
        _norm("model.norm_out", "model.norm", BS),
        _linear("lm_head", "lm_head", order=BS),
    ),
    knows=f"{LAYER}.attention.wo",
)
HUGGING_FACE = Table(
    "Hugging Face",
    (
        Row("model.embed_tokens", ("model.embed_tokens",), BS),
        Row(LAYER, (f"{LAYER}.input",), BS, INPUT, HIDDEN),
        *(
            Row(f"{LAYER}.{name}", (f"{LAYER}.{name}",), BS)
            for name in (
                "input_layernorm",
                *(f"self_attn.{one}_proj" for one in ("q", "k", "v", "q_a", "q_b", "kv_b", "o")),
                *(f"self_attn.{one}" for one in ("q_norm", "k_norm", "q_a_layernorm", "kv_a_layernorm", "kv_a_proj_with_mqa")),
                "post_attention_layernorm",
                *(f"mlp.{one}" for one in ("gate_proj", "up_proj", "down_proj", "shared_experts")),
            )
        ),
        Row(f"{LAYER}.self_attn.o_proj", (f"{ATTENTION}.core",), BS, INPUT, alone=True),
        Row(f"{LAYER}.post_attention_layernorm", (f"{LAYER}.residual",), BS, INPUT, HIDDEN),
        Row(f"{LAYER}.mlp.down_proj", (f"{MLP}.activation",), BS, INPUT, alone=True),
        Row(f"{LAYER}.mlp.gate", (f"{MLP}.gate",), BS, kinds="Linear"),
        Row(f"{LAYER}.mlp", (MLP,), BS, kinds=".*(?:Moe|MoE|Sparse).*"),
        Row(LAYER, (LAYER,), BS),
        Row("model.norm", ("model.norm",), BS),
        Row("lm_head", ("lm_head",), BS),
    ),
    knows=f"{LAYER}.self_attn.o_proj",
)
TABLES = (MEGATRON, MINDFORMERS, HUGGING_FACE)
BY_HAND = Table(
    "names that a person chose",
    (
        *(Row(point, (point,), BS) for point in sorted({point for table in TABLES for row in table.rows for point in row.points})),
        *(row for table in TABLES[:2] for row in table.rows if row.side == OUTPUT and row.path and not row.kinds),
    ),
    knows="",
)
"""Points by their canonical names, and by the modules whose outputs they are; of two rows of a name the first counts."""
LATENT = re.compile(PREFIX + r"decoder\.layers\.\d+\.self_attention\.(?:linear_kv_down_proj|linear_kvb|kv_layernorm)")


def table_of(dump: Dump) -> Table | None:
    """The table of the framework whose names a dump has; None where they are of none."""
    if dump.by_hand:
        return BY_HAND
    return next((table for table in TABLES if any(map(pattern_of(table.knows).fullmatch, dump.classes))), None)


def rows_of(table: Table, classes: Mapping[str, str]) -> Sequence[Row]:
    """The rows of a table that a model has. Latent attention has its own norms of queries and keys, and no projection by query groups."""
    if not any(map(LATENT.fullmatch, classes)):
        return table.rows
    taken = {row.path for row in table.latent}
    return [*table.latent, *(row for row in table.rows if row.path not in taken and row.fusion is not GROUPS)]


@cache
def pattern_of(path: str) -> re.Pattern[str]:
    """What a module's path is held against for a row; ``layer`` is its number, and ``chunk`` that of the model in a list."""
    inside = re.escape(path).replace(re.escape("{layer}"), r"(?P<layer>\d{1,6})")
    return re.compile(PREFIX + inside if path else r"(?:(?P<chunk>\d+)\.?)?(?:(?:module|_orig_mod)\.?)*")
