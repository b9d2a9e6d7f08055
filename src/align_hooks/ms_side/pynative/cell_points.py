"""The points of a built PyNative model: the Cell that shows each, and the view of the Cell's tensor that is the point.

Cells have the names of Megatron-LM's modules, and tensors are ``[positions, rows, …]`` unless said otherwise.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from align_hooks.families.family import ModelConfig
from align_hooks.ms_side.model import Model, built_class
from align_hooks.ms_side.objects import Cell, Tensor
from align_hooks.ms_side.point_builder import in_two, of_qkv
from align_hooks.ms_side.points import View
from align_hooks.names import points

Pick: TypeAlias = Callable[[Sequence[Any], dict[str, Any], Any], Tensor]
"""Finds a tensor among the arguments of a Cell and its output; None where it is missing."""


def output(args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> Tensor:
    """Return a Cell's output, the first of several."""
    return result[0] if isinstance(result, tuple | list) else result


def argument(position: int, name: str) -> Pick:
    """Return a pick of an argument, by its position or its name."""
    return lambda args, kwargs, result: kwargs[name] if name in kwargs else args[position] if len(args) > position else None


class CellPoint(Struct, frozen=True):
    """A Cell whose input or output has the values of points."""

    cell: Cell
    views: tuple[View, ...]
    pick: Pick = output
    before: bool = False
    """Whether the tensor is an input."""
    by_position: bool = True
    """Whether tokens are ordered position by position, and not row by row."""
    reaches_all: bool = True
    """Whether all users of the tensor read a replacement made here."""
    every: int = 1
    """Calls of the Cell a micro-batch."""
    which: int = 0
    """The call that shows the values."""
    function: str = ""
    """The attribute of the Cell that is called with the values' source, where no Cell shows them; empty for the Cell itself."""
    columns: Pick | None = None
    """Finds the columns ``[tokens, given]`` of the given elements of each token, which has no others; None where all are given."""


def whole(name: str, width: int) -> tuple[View, ...]:
    """Return the view of a tensor that is one value."""
    return (View(name, (width,), 0, width),)


def named(names: Sequence[str], views: Sequence[View]) -> tuple[View, ...]:
    """Return views with names."""
    return tuple(View(name, view.shape, view.start, view.stop) for name, view in zip(names, views, strict=True))


def of_model(model: Model, vocabulary: int) -> Iterator[CellPoint]:
    """Yield the points of a GPTModel."""
    core, config, hidden = model.core, model.config, model.config.hidden_size
    predicting = list(core.mtp.layers) if getattr(core, "mtp_process", False) else []
    calls = len(predicting) + 1
    yield CellPoint(core.embedding, whole(points.EMBEDDING, hidden), every=calls)
    for number, layer in enumerate(core.decoder.layers):
        yield from of_block(layer, f"model.layers.{number}", config)
    yield CellPoint(core.decoder.final_layernorm, whole(points.FINAL_NORM, hidden))
    for index, layer in enumerate(predicting):
        yield from of_predicting(layer, f"model.layers.{config.num_layers + index}", config)
    heads = [f"model.layers.{config.num_layers + index}.shared_head.head" for index in range(len(predicting))]
    rows = int(core.vocab_size)
    for which, name in enumerate((*heads, points.LOGITS)):
        yield CellPoint(core.output_layer, (View(name, (rows,), 0, vocabulary),), every=calls, which=which)
    if not is_chunked(core) and (nll := getattr(core.loss, "nll_loss", None)) is not None:
        yield CellPoint(nll, whole(points.TOKEN_LOSSES, 1), by_position=False, every=calls, which=len(predicting))


def is_chunked(core: Cell) -> bool:
    """Return whether a GPTModel makes its loss chunk by chunk, and the loss of no token by itself: only predicting layers' is made then."""
    return int(getattr(core, "chunk_loss_num", None) or 1) > 1


def of_predicting(layer: Cell, name: str, config: ModelConfig) -> Iterator[CellPoint]:
    """Yield the points of a layer for multi-token prediction."""
    hidden = config.hidden_size
    for norm in ("enorm", "hnorm"):
        yield CellPoint(getattr(layer, norm), whole(f"{name}.{norm}", hidden))
    yield CellPoint(layer.eh_proj, whole(f"{name}.eh_proj", hidden))
    yield from of_block(layer.transformer_layer, name, config)
    yield CellPoint(layer.final_layernorm, whole(f"{name}.shared_head.norm", hidden))


def of_block(layer: Cell, name: str, config: ModelConfig) -> Iterator[CellPoint]:
    """Yield the points of a block, which hands several residual streams on, side by side, where it has hyper-connections."""
    hidden = config.hidden_size
    streams = int(config.num_residual_streams) if hasattr(layer, "attn_hc") else 1
    yield CellPoint(layer, whole(f"{name}.input", streams * hidden), argument(0, "hidden_states"), before=True)
    yield CellPoint(layer, whole(name, streams * hidden))
    yield CellPoint(layer.input_layernorm, whole(f"{name}.{points.NORM}", hidden))
    if (attention := ATTENTION.get(built_class(layer.self_attention).__name__)) is not None:
        yield from attention(layer.self_attention, f"{name}.self_attn", config)
    if streams == 1:
        residual = whole(f"{name}.residual", hidden)
        yield CellPoint(layer.pre_mlp_layernorm, residual, argument(0, "x"), before=True, reaches_all=False)
    yield CellPoint(layer.pre_mlp_layernorm, whole(f"{name}.{points.SECOND_NORM}", hidden))
    if hasattr(layer.mlp, "router"):
        yield from of_experts(layer.mlp, f"{name}.mlp", hidden)
    else:
        yield from of_feed_forward(layer.mlp, f"{name}.mlp", hidden)


def of_core(attention: Cell, name: str, widths: dict[str, int], config: ModelConfig) -> Iterator[CellPoint]:
    """Yield the points of an attention core's inputs and output, heads side by side, and of what projects the output."""
    by_position = config.input_layout != "TND"
    for position, (which, width) in enumerate(widths.items()):
        yield CellPoint(
            attention.core_attention, whole(f"{name}.{which}", width), argument(position, which), before=True, by_position=by_position
        )
    size = int(attention.linear_proj.weight.shape[1])
    yield CellPoint(attention.linear_proj, whole(f"{name}.core", size), argument(0, "input_"), before=True)
    yield CellPoint(attention.linear_proj, whole(f"{name}.o_proj", config.hidden_size))


def of_attention(attention: Cell, name: str, config: ModelConfig) -> Iterator[CellPoint]:
    """Yield the points of attention whose projections are fused per group of queries."""
    heads, groups, size = attention.num_heads, attention.kv_num_heads, attention.head_dim
    fused = [f"{name}.{which}_proj" for which in "qkv"]
    yield CellPoint(attention.linear_qkv, named(fused, of_qkv(heads, groups, size, contiguous=False)))
    for which, count in (("q", heads), ("k", groups)):
        if (norm := getattr(attention, f"{which}_layernorm", None)) is not None:
            yield CellPoint(norm, whole(f"{name}.{which}_norm", count * size))
    yield from of_core(attention, name, {"query": heads * size, "key": groups * size, "value": groups * size}, config)


def of_latent_attention(attention: Cell, name: str, config: ModelConfig) -> Iterator[CellPoint]:
    """Yield the points of latent attention, whose first projections are joined."""
    heads, head, turned = config.num_attention_heads, config.qk_head_dim, config.qk_pos_emb_head_dim
    rank, keys, width = config.q_lora_rank, config.kv_lora_rank + turned, heads * (head + turned)
    queries = rank or width
    first = f"{name}.{'q_a_proj' if rank else 'q_proj'}"
    yield CellPoint(attention.linear_qkv, named([first, f"{name}.kv_a_proj_with_mqa"], in_two((queries + keys,), queries)))
    if rank:
        yield CellPoint(attention.q_layernorm, whole(f"{name}.q_a_layernorm", rank))
        yield CellPoint(attention.linear_qb, whole(f"{name}.q_b_proj", width))
    yield CellPoint(attention.k_layernorm, whole(f"{name}.kv_a_layernorm", config.kv_lora_rank))
    yield CellPoint(attention.linear_kvb, whole(f"{name}.kv_b_proj", heads * (head + config.v_head_dim)))
    yield from of_core(attention, name, {"query": width, "key": width, "value": heads * config.v_head_dim}, config)


def of_hybrid_attention(attention: Cell, name: str, config: ModelConfig) -> Iterator[CellPoint]:
    """Yield the points of a DeepSeek-V4's attention, whose keys are its values and one head, before they are compressed and chosen."""
    width = int(config.num_attention_heads * config.v_head_dim)
    for cell, point, size in (
        ("linear_q_down_proj", "q_a_proj", config.q_lora_rank),
        ("q_layernorm", "q_a_layernorm", config.q_lora_rank),
        ("linear_q_up_proj", "q_b_proj", width),
        ("linear_kv_proj", "kv_proj", config.v_head_dim),
        ("kv_layernorm", "kv_layernorm", config.v_head_dim),
        ("linear_proj", "o_proj", config.hidden_size),
    ):
        yield CellPoint(getattr(attention, cell), whole(f"{name}.{point}", size))


ATTENTION = {"SelfAttention": of_attention, "MLASelfAttention": of_latent_attention, "DSv4HybridSelfAttention": of_hybrid_attention}
"""Class of an attention to what yields its points; of another only what surrounds it is recorded."""


def of_feed_forward(mlp: Cell, name: str, hidden: int) -> Iterator[CellPoint]:
    """Yield the points of a dense feed-forward part, whose gate and up are interleaved by row."""
    size = int(mlp.linear_fc2.weight.shape[1])
    yield CellPoint(mlp.linear_fc1, named([f"{name}.gate_proj", f"{name}.up_proj"], in_two((size, 2), 1)))
    yield CellPoint(mlp.linear_fc2, whole(f"{name}.activation", size), argument(0, "input_"), before=True)
    yield CellPoint(mlp.linear_fc2, whole(f"{name}.down_proj", hidden))


def of_experts(mlp: Cell, name: str, hidden: int) -> Iterator[CellPoint]:
    """Yield the points of a layer with experts, which put permuted tokens out; a router holds the function that makes its logits."""
    router, experts = mlp.router, int(mlp.router.num_experts)
    yield CellPoint(router, whole(f"{name}.gate", experts), reaches_all=False, function="linear")
    yield CellPoint(
        router, whole(f"{name}.gate.weights", experts), reaches_all=False, columns=lambda args, kwargs, result: result[1].detach()
    )
    if mlp.shared_experts is not None:
        yield from of_feed_forward(mlp.shared_experts, f"{name}.shared_experts", hidden)
        yield CellPoint(mlp.shared_experts, whole(f"{name}.shared_experts", hidden))
    yield CellPoint(mlp, whole(name, hidden))
