"""The points of a built Megatron model: the module that shows each, and the columns of the module's tensor that are the point."""

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import torch
from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.moe.router import TopKRouter
from msgspec import Struct

from align_hooks.names import points
from align_hooks.names.fused import Fused
from align_hooks.torch_side.fully_sharded import computed
from align_hooks.torch_side.model import MEGATRON, Parameters
from align_hooks.torch_side.objects import Arguments, Module, Tensor
from align_hooks.torch_side.run_arguments import get_args
from align_hooks.torch_side.structure import LayersOfBlock, blocks_of

BLOCK = re.compile(r"(.*\blayers\.\d+)\.")
"""The beginning of the names of a block's parameters."""


class ProbeSlice(Struct, frozen=True):
    """A point in the tensor of a probe point."""

    name: str
    columns: tuple[int, int]
    """This rank's columns [start, stop)."""
    width: int
    """The number of columns on all ranks."""


Pick: TypeAlias = Callable[[Sequence[Tensor], Mapping[str, Tensor], Tensor], Tensor]
"""Finds a tensor ``[positions, rows, columns]`` among a module's arguments and its output; None where it is missing."""
Place: TypeAlias = Mapping[str, int]
"""This rank's index and the size along each parallel axis."""
Split: TypeAlias = Callable[[Tensor], list[Tensor]]
"""Cuts the columns of a tensor into those of each value, in their order."""


def uncut(tensor: Tensor) -> list[Tensor]:
    """Return the only value of a tensor."""
    return [tensor]


def output(args: Sequence[Tensor], kwargs: Mapping[str, Tensor], result: Tensor) -> Tensor:
    """Return a module's output, the first of several."""
    return result[0] if isinstance(result, tuple | list) else result


class ProbePoint(Struct, frozen=True):
    """A module whose input or output has the values of points."""

    module: Module
    values: tuple[ProbeSlice, ...]
    pick: Pick = output
    split: Split = uncut
    before: bool = False
    """Whether the tensor is an input."""
    reaches_all: bool = True
    """Whether all users of the tensor read a replacement made here."""
    every: int = 1
    """Calls of the module a micro-batch."""
    which: int = 0
    """The call that shows the values."""


def argument(position: int, name: str) -> Pick:
    """Return a pick of a module's argument, by its position or its name."""
    return lambda args, kwargs, result: kwargs[name] if name in kwargs else args[position] if len(args) > position else None


def of_chunk(gpt: Module, names: Mapping[int, Fused], parameters: Parameters, place: Place) -> Iterator[ProbePoint]:
    """Yield the probe points of one chunk of a model."""
    config, args = gpt.config, get_args()
    hidden = config.hidden_size
    predicted = (getattr(args, "mtp_num_layers", None) or 0) if getattr(gpt, "mtp_process", False) else 0
    whole = functools.partial(ProbeSlice, columns=(0, hidden), width=hidden)
    if gpt.pre_process:  # the last stage's copy of the embedding serves only multi-token prediction
        yield ProbePoint(gpt.embedding, (whole(points.EMBEDDING),), every=predicted + 1)
    for native, module in gpt.named_modules():
        weight = getattr(module, "_parameters", {}).get("weight")
        if weight is not None and id(weight) in names and not is_elsewhere(native, module):
            heads_of = {"q_layernorm": config.num_attention_heads, "k_layernorm": config.num_query_groups or config.num_attention_heads}
            count = heads_of.get(native.rpartition(".")[2], 0) if not getattr(config, "multi_latent_attention", False) else 0
            if count % place["tp_size"]:
                continue  # ranks share a group of keys, and each computes with all of it
            count = min(count, 1) if weight.numel() != config.kv_channels else count  # a norm over all heads has a weight for each element
            yield from of_weight(module, names[id(weight)]) if not count else of_heads(module, names[id(weight)], count, place)
    for name, block in named_blocks(gpt):
        yield from of_block(block, known_name(block, names) or name, whole, config, place)
    if getattr(gpt, "output_layer", None) is not None and gpt.post_process:
        yield from of_logits(gpt.output_layer, parameters, place, predicted)
        yield ProbePoint(gpt, (ProbeSlice(points.TOKEN_LOSSES, (0, 1), 1),), token_losses)


def is_elsewhere(native: str, module: Module) -> bool:
    """Return whether a module with a weight has no probe point of a weight: the model's ends, routers, and modules inside experts."""
    late = getattr(module, "skip_bias_add", False) or getattr(module, "te_return_bias", False)  # the second is Transformer Engine's
    if late and getattr(module, "bias", None) is not None:
        return True  # the bias is added later
    return native.startswith(("embedding.", "output_layer")) or isinstance(module, TopKRouter) or ".experts." in native


def of_weight(module: Module, fused: Fused) -> Iterator[ProbePoint]:
    """Yield the probe point of a module with a weight, whose output has a column for each row of the weight."""
    pieces = [(piece, rows) for piece, rows in zip(fused.parts, fused.blocks.rows, strict=True) if rows]
    values = tuple(ProbeSlice(piece.name.removesuffix(".weight"), piece.box[0], piece.shape[0]) for piece, _ in pieces)

    def split(tensor: Tensor) -> list[Tensor]:
        parts = fused.blocks.filled.split(tensor.movedim(-1, 0))
        return [part.movedim(0, -1) for part in parts]

    yield ProbePoint(module, values, split=split if len(values) > 1 else uncut)


def of_heads(module: Module, fused: Fused, count: int, place: Place) -> Iterator[ProbePoint]:
    """Yield the probe point of a norm over each of ``count`` heads."""
    (piece,) = fused.parts
    width = piece.shape[0] * count
    yield ProbePoint(module, (share(piece.name.removesuffix(".weight"), width, place),))


def named_blocks(gpt: Module) -> Iterator[tuple[str, LayersOfBlock]]:
    """Yield all blocks of a chunk, also those for multi-token prediction, each with its own name."""
    stacks = [("decoder", gpt.decoder)]
    for index, layer in enumerate(getattr(getattr(gpt, "mtp", None), "layers", ())):
        inner = getattr(layer, "mtp_model_layer", None) or layer.transformer_layer  # before 0.16
        if hasattr(inner, "layers"):
            stacks.append((f"mtp.layers.{index}.mtp_model_layer", inner))
        else:
            yield f"{MEGATRON}:mtp.layers.{index}", LayersOfBlock(index, inner, inner)
    yield from ((f"{MEGATRON}:{name}.layers.{block.number}", block) for name, stack in stacks for block in blocks_of(gpt, stack))


def known_name(block: LayersOfBlock, names: Mapping[int, Fused]) -> str | None:
    """Return the name of a block, from the names of its parameters; None where these are of no family."""
    layers = (layer for layer in (block.mixer, block.feed_forward) if layer is not None)
    for parameter in (parameter for layer in layers for parameter in layer.parameters()):
        fused = names.get(id(parameter))
        found = BLOCK.match(fused.parts[0].name) if fused is not None and not fused.parts[0].own else None
        if found is not None:
            return found[1]
    return None


def of_block(block: LayersOfBlock, name: str, whole: Callable[[str], ProbeSlice], config: Arguments, place: Place) -> Iterator[ProbePoint]:
    """Yield the probe points of a block that no weight shows."""
    if block.mixer is not None:
        yield ProbePoint(block.mixer, (whole(f"{name}.input"),), argument(0, "hidden_states"), before=True)
        core = getattr(getattr(block.mixer, "self_attention", None), "core_attention", None)
        if core is not None:
            yield from of_core(core, f"{name}.self_attn", config, place)
    layer = block.feed_forward
    if layer is None:
        return
    yield ProbePoint(layer, (whole(name),))
    mlp = getattr(layer, "mlp", None)
    if mlp is None or isinstance(mlp, IdentityOp):  # a layer that only mixes positions
        return
    residual, norm = (whole(f"{name}.residual"),), getattr(layer, "pre_mlp_layernorm", None)
    if norm is not None:
        yield ProbePoint(norm, residual, argument(0, "hidden_states"), before=True, reaches_all=False)
    if hasattr(mlp, "router"):
        yield from of_experts(mlp, f"{name}.mlp", whole, config, place)
    elif hasattr(mlp, "linear_fc2"):
        yield activation(mlp, f"{name}.mlp.activation", place)


def of_core(core: Module, attention: str, config: Arguments, place: Place) -> Iterator[ProbePoint]:
    """Yield the probe points of an attention core's inputs and output, heads side by side; tensor-parallel ranks divide the heads."""
    latent = getattr(config, "multi_latent_attention", False)
    size = config.qk_head_dim + config.qk_pos_emb_head_dim if latent else config.kv_channels
    of_values = config.v_head_dim if latent else config.kv_channels
    queries = config.num_attention_heads
    groups = queries if latent else config.num_query_groups or queries
    for position, (name, count, width) in enumerate((("query", queries, size), ("key", groups, size), ("value", groups, of_values))):
        if count % place["tp_size"] == 0:  # else ranks share a group of keys
            value = share(f"{attention}.{name}", count * width, place)
            yield ProbePoint(core, (value,), argument(position, name), split=without_padding(count, width, place), before=True)
    value = share(f"{attention}.core", queries * of_values, place)
    yield ProbePoint(core, (value,), split=without_padding(queries, of_values, place))


def without_padding(count: int, width: int, place: Place) -> Split:
    """Return a split of heads that are wider: latent attention of packed samples fills values up to the width of queries."""
    here = count // place["tp_size"]

    def split(tensor: Tensor) -> list[Tensor]:
        if tensor.dim() == 4 or tensor.shape[-1] in (width, here * width):
            return [tensor]
        of_heads = tensor if tensor.shape[1] == here else tensor.unflatten(-1, (here, -1))
        return [of_heads[..., :width].flatten(1)]

    return split


def share(name: str, width: int, place: Place) -> ProbeSlice:
    """Return a tensor-parallel rank's part of a value."""
    part = width // place["tp_size"]
    return ProbeSlice(name, (place["tp"] * part, (place["tp"] + 1) * part), width)


def activation(mlp: Module, name: str, place: Place) -> ProbePoint:
    """Return the probe point of the input of a dense MLP's second projection."""
    width = computed(mlp.linear_fc2.weight).shape[1] * place["tp_size"]
    return ProbePoint(mlp.linear_fc2, (share(name, width, place),), argument(0, "input_"), before=True)


def of_experts(mlp: Module, name: str, whole: Callable[[str], ProbeSlice], config: Arguments, place: Place) -> Iterator[ProbePoint]:
    """Yield the probe points of a layer with experts."""
    experts = config.num_moe_experts
    # the hook of :mod:`.hooks.routing` passes the router's logits on
    yield ProbePoint(mlp.router, (ProbeSlice(f"{name}.gate", (0, experts), experts),), lambda args, kwargs, result: None)
    yield ProbePoint(mlp.router, (ProbeSlice(f"{name}.gate.weights", (0, experts), experts),))
    if place["etp_size"] == 1 and "permuted_probs" in mlp.experts.forward.__code__.co_varnames:
        first = place["ep"] * experts // place["ep_size"]
        values = tuple(whole(f"{name}.experts.{first + expert}") for expert in range(experts // place["ep_size"]))
        yield ProbePoint(mlp.experts, values)
    shared = getattr(mlp, "shared_experts", None)
    if shared is not None:
        yield ProbePoint(shared, (whole(f"{name}.shared_experts"),))
        yield activation(shared, f"{name}.shared_experts.activation", place)
    yield ProbePoint(mlp, (whole(name),))


def of_logits(layer: Module, parameters: Parameters, place: Place, predicted: int) -> Iterator[ProbePoint]:
    """Yield the probe points of the logits, without padded rows; multi-token prediction calls the same module first."""
    rows, padded = parameters.dims.vocabulary, parameters.dims.padded
    part = padded // place["tp_size"]
    start, stop = (min(place["tp"] * part + offset, rows) for offset in (0, part))
    names = [f"model.layers.{parameters.layers + index}.shared_head.head" for index in range(predicted)]
    for which, name in enumerate((*names, points.LOGITS)):
        value = ProbeSlice(name, (start, stop), rows)
        yield ProbePoint(layer, (value,), split=lambda tensor: [tensor[..., : stop - start]], every=predicted + 1, which=which)


def token_losses(args: Sequence[Tensor], kwargs: Mapping[str, Tensor], result: Tensor) -> Tensor:
    """Return each token's loss, ``[rows, positions]``; None where the model returns something else."""
    labels = kwargs.get("labels")
    fits = isinstance(result, torch.Tensor) and labels is not None and result.shape == labels.shape
    return result if fits else None


def is_forced(probe: ProbePoint, forces: Callable[[str], bool]) -> bool:
    """Return whether a teacher replaces a probe point's tensor: one value, of tokens in order, with no users elsewhere."""
    (value, *others) = probe.values
    if others or not probe.reaches_all or points.is_of_experts(value.name) or value.name.endswith((".gate", ".gate.weights")):
        return False
    return forces(value.name)
