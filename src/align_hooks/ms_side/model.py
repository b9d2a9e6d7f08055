"""The built MindFormers model and optimizer, seen as canonical pieces.

Under semi-automatic parallelism MindSpore cuts parameters when it compiles the training cell, and not before; weights of other pipeline
stages stay whole, are never computed with, and are left alone here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import mindspore
from mindspore import communication
from numpy.typing import NDArray

from align_hooks.errors import RefusedRun
from align_hooks.ms_side.arrays import to_numpy
from align_hooks.ms_side.columns import takes_cut
from align_hooks.ms_side.layouts import boxes, cut_and_flat, is_counted, layout_of
from align_hooks.names.layouts import Dims
from align_hooks.names.mindformers_llama import MINDFORMERS_LLAMA
from align_hooks.names.table import Fused, gathered
from align_hooks.norms import squared_sum
from align_hooks.record.shard import Shard
from align_hooks.record.sketch import sketch


@dataclass(frozen=True, slots=True)
class Parameter:
    """A trainable parameter and the canonical pieces that it holds.

    ``counted`` is False for a copy that another rank accounts for; ``index`` is its place among the optimizer's parameters.
    """

    model: Any
    fused: Fused
    counted: bool = True
    index: int = 0


@dataclass(frozen=True, slots=True)
class Parameters:
    """All trainable parameters of this rank, in the order of the training cell's gradients.

    ``alone`` where the job has no other rank; ``layers`` is how many the model has, where pipeline stages share them, and 0 elsewhere.
    """

    all: tuple[Parameter, ...]
    dims: Dims
    alone: bool = True
    layers: int = 0

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.all)

    def shards(self) -> list[Shard]:
        """This rank's parameter table."""
        return [
            shard
            for parameter in self.all
            for shard in parameter.fused.shards(dtype=str(parameter.model.dtype).lower(), counted=parameter.counted)
        ]

    def wanted(self) -> dict[str, tuple[int, ...]]:
        """Canonical name to whole shape of everything that this rank computes with, whatever part its optimizer holds."""
        whole = (replace(parameter.fused, flat=None) for parameter in self.all)
        return {shard.name: shard.shape for fused in whole for shard in fused.shards(dtype="", counted=True)}

    def elsewhere(self) -> Callable[[str], bool]:
        """Whether another pipeline stage holds a canonical tensor."""
        return MINDFORMERS_LLAMA.elsewhere(self.wanted().keys(), layers=self.layers) if self.layers else lambda name: False

    def weights(self) -> dict[str, NDArray[Any]]:
        """Canonical name to fp32 array; nothing of copies."""
        return pieces((parameter, parameter.model) for parameter in self.all if parameter.counted)

    def weight_squares(self) -> dict[str, float]:
        """Canonical name to squared sum, copies too, where there can be any."""
        if self.alone:
            return {}
        return squared_sums((parameter, parameter.model) for parameter in self.all)

    def weight_sketches(self) -> dict[str, list[float]]:
        """Canonical name to sketch, nothing of copies; each weight crosses to the host."""
        return sketches((parameter, parameter.model) for parameter in self.all if parameter.counted)

    def load(self, read: Callable[[Fused], NDArray[Any]]) -> None:
        """Set every parameter from what ``read`` returns for it (fp32, native layout)."""
        for parameter in self.all:
            fill(parameter.model, read(parameter.fused))


def fill(tensor: Any, array: NDArray[Any]) -> None:
    """Give a parameter of this rank, whole or cut, what it holds; raises RefusedRun for another number of elements.

    MindSpore itself takes a whole tensor for a cut one, and then trains on garbage; told that it is cut, it does not cut it again.
    """
    if array.size != tensor.size:
        raise RefusedRun(
            f"{tensor.name} holds {tensor.size} elements here and was to be given {array.size}; its layout is not as MindSpore says"
        )
    tensor.set_data(mindspore.Tensor(array.reshape(tensor.shape), dtype=tensor.dtype), bool(tensor.sliced))


def pieces(tensors: Iterable[tuple[Parameter, Any]]) -> dict[str, NDArray[Any]]:
    """Canonical name to host copy, of tensors that are cut as their parameters are; one transfer each."""
    arrays = ((parameter.fused, to_numpy(tensor)) for parameter, tensor in tensors)
    return gathered(run for fused, array in arrays for run in fused.split(array if fused.flat is None else array.reshape(-1)))


def squared_sums(tensors: Iterable[tuple[Parameter, Any]]) -> dict[str, float]:
    """Canonical name to squared sum, one tensor after the other."""
    return {name: squared_sum(piece) for one in tensors for name, piece in pieces([one]).items()}


def sketches(tensors: Iterable[tuple[Parameter, Any]]) -> dict[str, list[float]]:
    """Canonical name to sketch, one tensor after the other, taken on the host: devices that MindSpore runs on have no fp64."""
    found: dict[str, list[float]] = {}
    for one in tensors:
        shards = {shard.name: shard for shard in one[0].fused.shards(dtype="", counted=True)}
        found |= {name: sketch(piece, shards[name]).tolist() for name, piece in pieces([one]).items()}
    return found


def parameters_of(
    weights: Any,
    config: Any,
    vocabulary: int | None,
    *,
    counted: bool = True,
    alone: bool = True,
    layouts: Mapping[str, Any] | None = None,
    rank: int = 0,
) -> Parameters:
    """The parameters that the optimizer updates; ``vocabulary`` excludes padding, None where nothing tells it.

    ``layouts`` is ``parameter_layout_dict`` of the compiled training cell under semi-automatic parallelism, which has the weights of
    this ``rank``'s pipeline stage only. Raises RefusedRun for a layout that this version does not read.
    """
    dims = dims_of(config, vocabulary)
    if layouts is not None:
        held = tuple(
            part_of(weight, index, dims, layouts[weight.name], rank) for index, weight in enumerate(weights) if weight.name in layouts
        )
        return Parameters(held, dims, alone, config.num_layers if len(held) < len(weights) else 0)
    found = ((index, weight, MINDFORMERS_LLAMA.fused(weight.name, weight.shape, dims)) for index, weight in enumerate(weights))
    return Parameters(tuple(Parameter(weight, fused, counted, index) for index, weight, fused in found if fused is not None), dims, alone)


def part_of(weight: Any, index: int, dims: Dims, entry: Any, rank: int) -> Parameter:
    """What a rank holds of a weight that MindSpore has cut by an ``entry`` of its layouts."""
    shape = tuple(weight.param_info.parameter_shape)
    layout = layout_of(weight.name, entry, shape)
    group = (communication.get_rank(layout.group), communication.get_group_size(layout.group)) if layout.group else (0, 1)
    local = tuple(stop - start for start, stop in boxes(layout, rank, *group))
    if not weight.sliced or weight.has_init or tuple(weight.shape) != local:
        raise RefusedRun(
            f"{weight.name} is {list(weight.shape)} here, where MindSpore's layout leaves {list(local)} of {list(shape)}; "
            f"this version does not read what this MindSpore makes of it"
        )
    cut, flat = cut_and_flat(layout, rank, *group)
    fused = MINDFORMERS_LLAMA.fused(weight.name, [size // layout.parts(axis) for axis, size in enumerate(shape)], dims, cut=cut)
    if fused is None:
        raise RefusedRun(f"{weight.name} has no canonical name")
    return Parameter(weight, fused if flat is None else fused.narrowed(*flat), is_counted(layout, rank, *group), index)


def dims_of(config: Any, vocabulary: int | None) -> Dims:
    """The sizes of a LlamaConfig, over all ranks."""
    heads = config.num_heads
    return Dims(
        heads=heads,
        groups=config.n_kv_heads or heads,
        head_dim=config.hidden_size // heads,
        ffn=intermediate_size(config),
        vocabulary=min(vocabulary or config.vocab_size, config.vocab_size),
        padded=config.vocab_size,
    )


def intermediate_size(config: Any) -> int:
    """The feed-forward size; MindFormers computes it where the YAML does not say (``modules/transformer``, LlamaFeedForward)."""
    if config.intermediate_size is not None:
        return int(config.intermediate_size)
    size = config.hidden_size * 4
    if config.ffn_dim_multiplier is not None:
        size = int((config.ffn_dim_multiplier + 0.01) * size)
    size = int(2 * size / 3)
    return int(config.multiple_of * ((size + config.multiple_of - 1) // config.multiple_of))


def llama_config(cell: Any) -> Any:
    """The LlamaConfig inside a training cell's network; raises RefusedRun for another model."""
    return llama(cell).config


def llama(cell: Any) -> Any:
    """The LlamaForCausalLM inside a training cell; raises RefusedRun for another model."""
    network = cell
    while inner := next((name for name in ("network", "_backbone") if hasattr(network, name)), None):
        network = getattr(network, inner)
    if type(network).__name__ != "LlamaForCausalLM" or getattr(network, "config", None) is None:
        raise RefusedRun(f"only LlamaForCausalLM (use_legacy: True) has canonical names so far, this model is {type(network).__name__}")
    if network.config.qkv_concat and not takes_cut(type(network)):
        raise RefusedRun("qkv_concat joins queries, keys and values otherwise before MindFormers 1.5; set it to False in the YAML")
    return network


def is_per_token(cell: Any) -> bool:
    """Whether a training cell's loss is the mean over all tokens of a step; in 1.3 no MFTrainOneStepCell has that, nor says so."""
    return bool(getattr(cell, "calculate_per_token_loss", False))


def huggingface_config(config: Any, dims: Dims) -> dict[str, Any]:
    """``config.json`` of the Hugging Face model that a LlamaForCausalLM of MindFormers is."""
    odd = {
        "bias": bool(config.qkv_has_bias or getattr(config, "attn_proj_has_bias", False)),  # 1.3 knows none
        "RoPE scaling": str(config.extend_method).lower() not in ("none", ""),
    }
    wrong = [what for what, found in odd.items() if found]
    if wrong:
        raise RefusedRun(f"only dense Llama models have canonical names so far; this one has {' and '.join(wrong)}")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": config.hidden_size,
        "intermediate_size": dims.ffn,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": dims.heads,
        "num_key_value_heads": dims.groups,
        "head_dim": dims.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": float(config.theta),
        "rope_scaling": None,
        "vocab_size": dims.vocabulary,
        "max_position_embeddings": config.max_position_embedding,
        "tie_word_embeddings": bool(config.tie_word_embeddings),
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "float32",
    }
