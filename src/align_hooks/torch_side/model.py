"""The built Megatron model and optimizer, seen as canonical pieces.

Names come from the model's ``named_parameters``: the optimizer's groups are ordered by weight decay and know no names.
With mixed precision the optimizer works on fp32 main parameters, which are what weights and gradients are recorded from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray

from align_hooks.errors import RefusedRun
from align_hooks.names.layouts import Dims
from align_hooks.names.megatron_llama import MEGATRON_LLAMA
from align_hooks.names.table import Fused
from align_hooks.record.shard import Shard
from align_hooks.torch_side.arrays import to_numpy


@dataclass(frozen=True, slots=True)
class Parameter:
    """A model parameter and the canonical pieces that it holds."""

    model: torch.nn.Parameter
    fused: Fused

    @property
    def main(self) -> torch.Tensor:
        """What the optimizer updates: the fp32 main parameter, or the parameter itself."""
        return getattr(self.model, "main_param", None) if getattr(self.model, "main_param", None) is not None else self.model

    def gradient(self) -> torch.Tensor | None:
        """The reduced, unscaled gradient that the optimizer is about to use, right after ``prepare_grads``.

        ``decoupled_grad`` is the precision-aware optimizer's; ``grad`` of the main parameter is unscaled, while
        ``main_grad`` of the model parameter may still carry the loss scale and comes last.
        """
        candidates = (
            getattr(self.main, "decoupled_grad", None),
            self.main.grad,
            getattr(self.model, "decoupled_grad", None),
            getattr(self.model, "main_grad", None),
        )
        return next((gradient for gradient in candidates if gradient is not None), None)


@dataclass(frozen=True, slots=True)
class Parameters:
    """All parameters of this rank; ``counted`` is False for copies that another data-parallel rank accounts for."""

    all: tuple[Parameter, ...]
    dims: Dims
    counted: bool = True

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.all)

    def shards(self) -> list[Shard]:
        """This rank's parameter table."""
        return [
            Shard(
                name,
                tuple(piece.shape),
                parameter.fused.native,
                str(parameter.model.dtype).removeprefix("torch."),
                counted=self.counted,
                trainable=parameter.model.requires_grad,
            )
            for parameter in self.all
            for name, piece in parameter.fused.split(parameter.model.detach())
        ]

    def weights(self) -> dict[str, NDArray[Any]]:
        """Canonical name to fp32 array, from the main parameters; nothing of copies."""
        return pieces((parameter.fused, parameter.main) for parameter in self.all if self.counted)

    def gradients(self) -> list[tuple[Fused, torch.Tensor]]:
        """Every parameter's gradient, on the device; raises RefusedRun where one has none."""
        found = [(parameter.fused, parameter.gradient()) for parameter in self.all if parameter.model.requires_grad]
        missing = [fused.native for fused, gradient in found if gradient is None]
        if missing:
            raise RefusedRun(
                f"{len(missing)} parameters have no gradient after prepare_grads, first {missing[0]}; this optimizer keeps them elsewhere"
            )
        return [(fused, gradient) for fused, gradient in found if gradient is not None]

    def load(self, read: Callable[[Fused], NDArray[Any]]) -> None:
        """Set every parameter, and its main parameter, from what ``read`` returns for it (fp32, native layout)."""
        with torch.no_grad():
            for parameter in self.all:
                source = torch.from_numpy(read(parameter.fused))
                parameter.main.copy_(source)
                if parameter.main is not parameter.model:
                    parameter.model.copy_(source)


def pieces(tensors: Iterable[tuple[Fused, torch.Tensor]]) -> dict[str, NDArray[Any]]:
    """Canonical name to host copy, for native tensors."""
    return {name: to_numpy(piece) for fused, tensor in tensors for name, piece in fused.split(tensor.detach())}


def parameters_of(chunks: list[Any], vocabulary: int, *, counted: bool = True) -> Parameters:
    """The parameters of a built model; ``vocabulary`` excludes padding. Raises RefusedRun for names that no table knows."""
    if len(chunks) != 1:
        raise RefusedRun("virtual pipeline stages are not recorded in this version; run with one model chunk a rank")
    gpt = unwrap(chunks[0])
    config = gpt.config
    padded = gpt.vocab_size
    dims = Dims(
        heads=config.num_attention_heads,
        groups=config.num_query_groups,
        head_dim=config.kv_channels,
        ffn=config.ffn_hidden_size,
        vocabulary=min(vocabulary, padded),
        padded=padded,
    )
    fused = ((parameter, MEGATRON_LLAMA.fused(name, parameter.shape[0], dims)) for name, parameter in gpt.named_parameters())
    return Parameters(tuple(Parameter(parameter, found) for parameter, found in fused if found is not None), dims, counted)


def unwrap(model: Any) -> Any:
    """The GPTModel inside Megatron's data-parallel and half-precision wrappers."""
    while hasattr(model, "module"):
        model = model.module
    return model


PLAIN: dict[str, Any] = {
    "normalization": "RMSNorm",
    "gated_linear_unit": True,
    "num_moe_experts": None,
    "multi_latent_attention": False,
    "mtp_num_layers": None,
    "add_bias_linear": False,
    "add_qkv_bias": False,
    "qk_layernorm": False,
    "rotary_interleaved": False,
    "layernorm_zero_centered_gamma": False,
    "softmax_type": "vanilla",
    "softmax_scale": None,
    "window_size": None,
    "use_mup": False,
}
"""What Megatron's configuration says of a plain dense Llama; a model that differs in any is another Hugging Face model."""


def huggingface_config(gpt: Any, dims: Dims, args: Any) -> dict[str, Any]:
    """``config.json`` of the Hugging Face model that a built dense Llama is; raises RefusedRun where it is none."""
    config = gpt.config
    wrong = [f"{name} is {getattr(config, name)}, not {plain}" for name, plain in PLAIN.items() if getattr(config, name, plain) != plain]
    rotary = {"position_embedding_type": (gpt.position_embedding_type, "rope"), "rotary_percent": (args.rotary_percent, 1.0)}
    rotary["use_rope_scaling"] = (bool(getattr(args, "use_rope_scaling", False)), False)
    wrong += [f"{name} is {found}, not {plain}" for name, (found, plain) in rotary.items() if found != plain]
    if config.activation_func is not torch.nn.functional.silu:
        wrong.append(f"activation_func is {config.activation_func.__name__}, not silu")
    if wrong:
        raise RefusedRun(f"only dense Llama models have canonical names so far: {'; '.join(wrong)}")
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
        "rms_norm_eps": config.layernorm_epsilon,
        "rope_theta": float(gpt.rotary_base),
        "rope_scaling": None,
        "vocab_size": dims.vocabulary,
        "max_position_embeddings": gpt.max_sequence_length,
        "tie_word_embeddings": bool(gpt.share_embeddings_and_output_weights),
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "float32",
    }
