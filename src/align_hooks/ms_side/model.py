"""The built MindFormers model and optimizer, seen as canonical pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import mindspore
from numpy.typing import NDArray

from align_hooks.errors import RefusedRun
from align_hooks.ms_side.arrays import to_numpy
from align_hooks.names.layouts import Dims
from align_hooks.names.mindformers_llama import MINDFORMERS_LLAMA
from align_hooks.names.table import Fused
from align_hooks.norms import squared_sum
from align_hooks.record.shard import Shard


@dataclass(frozen=True, slots=True)
class Parameter:
    """A trainable parameter and the canonical pieces that it holds."""

    model: Any
    fused: Fused


@dataclass(frozen=True, slots=True)
class Parameters:
    """All trainable parameters of this rank, in the order of the training cell's gradients.

    ``counted`` is False for copies that another data-parallel rank accounts for; ``alone`` where the job has no other rank.
    """

    all: tuple[Parameter, ...]
    dims: Dims
    counted: bool = True
    alone: bool = True

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.all)

    def shards(self) -> list[Shard]:
        """This rank's parameter table."""
        return [
            shard
            for parameter in self.all
            for shard in parameter.fused.shards(dtype=str(parameter.model.dtype).lower(), counted=self.counted)
        ]

    def weights(self) -> dict[str, NDArray[Any]]:
        """Canonical name to fp32 array; nothing of copies."""
        return {name: piece for parameter in self.all if self.counted for name, piece in parameter.fused.split(to_numpy(parameter.model))}

    def weight_squares(self) -> dict[str, float]:
        """Canonical name to squared sum, copies too, where there can be any."""
        if self.alone:
            return {}
        return {name: squared_sum(piece) for one in self.all for name, piece in one.fused.split(to_numpy(one.model))}

    def load(self, read: Callable[[Fused], NDArray[Any]]) -> None:
        """Set every parameter from what ``read`` returns for it (fp32, native layout)."""
        for parameter in self.all:
            parameter.model.set_data(mindspore.Tensor(read(parameter.fused), dtype=parameter.model.dtype))


def parameters_of(weights: Any, config: Any, vocabulary: int | None, *, counted: bool = True, alone: bool = True) -> Parameters:
    """The parameters that the optimizer updates; ``vocabulary`` excludes padding, None where nothing tells it."""
    heads = config.num_heads
    dims = Dims(
        heads=heads,
        groups=config.n_kv_heads or heads,
        head_dim=config.hidden_size // heads,
        ffn=intermediate_size(config),
        vocabulary=min(vocabulary or config.vocab_size, config.vocab_size),
        padded=config.vocab_size,
    )
    fused = ((weight, MINDFORMERS_LLAMA.fused(weight.name, weight.shape, dims)) for weight in weights)
    return Parameters(tuple(Parameter(weight, found) for weight, found in fused if found is not None), dims, counted, alone)


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
    network = cell
    while hasattr(network, "network"):
        network = network.network
    config = getattr(network, "config", None)
    if type(network).__name__ != "LlamaForCausalLM" or config is None:
        raise RefusedRun(f"only LlamaForCausalLM (use_legacy: True) has canonical names so far, this model is {type(network).__name__}")
    return config


def huggingface_config(config: Any, dims: Dims) -> dict[str, Any]:
    """``config.json`` of the Hugging Face model that a LlamaForCausalLM of MindFormers is."""
    odd = {
        "bias": bool(config.qkv_has_bias or config.attn_proj_has_bias),
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
