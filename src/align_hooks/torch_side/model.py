"""The built Megatron model and optimizer, seen as canonical pieces.

Names come from the model's ``named_parameters``: the optimizer's groups are ordered by weight decay and know no names.
With mixed precision the optimizer works on fp32 main parameters, which are what weights and gradients are recorded from. A
distributed optimizer works on ranges of them, which begin and end at any element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from align_hooks.errors import RefusedRun
from align_hooks.names.layouts import Dims
from align_hooks.names.megatron_llama import MEGATRON_LLAMA
from align_hooks.names.table import Fused, gathered
from align_hooks.record.shard import Shard
from align_hooks.torch_side.arrays import sketch, squared_sum, to_numpy
from align_hooks.torch_side.place import ALONE, cut, is_counted

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A model parameter and the canonical pieces that this rank's optimizer holds of it.

    ``whole`` are the pieces of the model's own tensor, ``fused`` those of ``main``, what the optimizer updates: the fp32 main
    parameter, a range of it with a distributed optimizer, or the parameter itself. None where the optimizer's range holds nothing
    of it. ``counted`` is False for a copy that another rank accounts for.
    """

    model: torch.nn.Parameter
    whole: Fused
    fused: Fused
    main: torch.Tensor | None
    counted: bool

    def gradient(self) -> torch.Tensor | None:
        """The reduced, unscaled gradient that the optimizer is about to use, right after ``prepare_grads``.

        ``decoupled_grad`` is the precision-aware optimizer's; ``grad`` of what the optimizer updates is unscaled, while
        ``main_grad`` of the model parameter may still carry the loss scale and comes last. The model parameter's own ``grad`` is
        never looked at where there is another: with fused accumulation it is an empty dummy.
        """
        candidates: tuple[Any, ...] = (getattr(self.main, "decoupled_grad", None), getattr(self.main, "grad", None))
        if self.fused.flat is None:
            candidates += (getattr(self.model, "decoupled_grad", None), getattr(self.model, "main_grad", None))
        return next((gradient for gradient in candidates if gradient is not None), None)


@dataclass(frozen=True, slots=True)
class Parameters:
    """All parameters of this rank, over all its pipeline stages; ``alone`` where the job has no other rank."""

    all: tuple[Parameter, ...]
    dims: Dims
    layers: int
    experts: int = 0
    alone: bool = True

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.all)

    @property
    def held(self) -> list[tuple[Parameter, torch.Tensor]]:
        """The parameters of which this rank's optimizer updates any element, each with what it updates."""
        return [(parameter, parameter.main) for parameter in self.all if parameter.main is not None]

    def shards(self) -> list[Shard]:
        """This rank's parameter table."""
        return [
            shard
            for parameter in self.all
            for shard in parameter.fused.shards(
                dtype=str(parameter.model.dtype).removeprefix("torch."),
                counted=parameter.counted,
                trainable=parameter.model.requires_grad,
            )
        ]

    def wanted(self, *, trainable: bool = False) -> dict[str, tuple[int, ...]]:
        """Canonical name to whole shape of everything that the model on this rank computes with, held by its optimizer or not."""
        chosen = (parameter for parameter in self.all if parameter.model.requires_grad or not trainable)
        return {shard.name: shard.shape for parameter in chosen for shard in parameter.whole.shards(dtype="", counted=True)}

    def elsewhere(self) -> Callable[[str], bool]:
        """Whether another rank of this job holds a canonical tensor, of which this one computes with nothing."""
        return MEGATRON_LLAMA.elsewhere(self.wanted().keys(), layers=self.layers, experts=self.experts)

    def weights(self) -> dict[str, Array]:
        """Canonical name to fp32 array, from the main parameters; nothing of copies."""
        return pieces((parameter.fused, main) for parameter, main in self.held if parameter.counted)

    def weight_squares(self) -> dict[str, float]:
        """Canonical name to squared sum of the main parameters, copies too, where there can be any; one transfer."""
        if self.alone:
            return {}
        sums = squared_sums((parameter.fused, main) for parameter, main in self.held)
        return dict(zip(sums, torch.stack(list(sums.values())).tolist(), strict=True)) if sums else {}

    def weight_sketches(self) -> dict[str, list[float]]:
        """Canonical name to sketch of the main parameters, nothing of copies; one transfer."""
        found = sketches((parameter.fused, main) for parameter, main in self.held if parameter.counted)
        return dict(zip(found, torch.stack(list(found.values())).tolist(), strict=True)) if found else {}

    def gradients(self) -> list[tuple[Parameter, torch.Tensor]]:
        """Every parameter's gradient, on the device; raises RefusedRun where one has none."""
        found = [(parameter, parameter.gradient()) for parameter, _ in self.held if parameter.model.requires_grad]
        missing = [parameter.fused.native for parameter, gradient in found if gradient is None]
        if missing:
            raise RefusedRun(
                f"{len(missing)} parameters have no gradient after prepare_grads, first {missing[0]}; this optimizer keeps them elsewhere"
            )
        return [(parameter, gradient) for parameter, gradient in found if gradient is not None]

    def load(self, read: Callable[[Fused], Array]) -> None:
        """Set every parameter, and its main parameter, from what ``read`` returns for it (fp32, native layout)."""
        with torch.no_grad():
            for parameter in self.all:
                source = torch.from_numpy(np.ascontiguousarray(read(parameter.whole)))
                parameter.model.copy_(source)
                main = parameter.main
                if main is not None and main is not parameter.model:
                    main.copy_(source if parameter.fused.flat is None else source.reshape(-1)[slice(*parameter.fused.flat)])


def pieces(tensors: Iterable[tuple[Fused, torch.Tensor]]) -> dict[str, Array]:
    """Canonical name to host copy, for tensors that are held."""
    return gathered((name, to_numpy(piece)) for fused, tensor in tensors for name, piece in fused.split(tensor.detach()))


def squared_sums(tensors: Iterable[tuple[Fused, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Canonical name to squared sum, fp64 on the device, for tensors that are held."""
    sums: dict[str, torch.Tensor] = {}
    for fused, tensor in tensors:
        for name, piece in fused.split(tensor.detach()):
            sums[name] = sums[name] + squared_sum(piece) if name in sums else squared_sum(piece)
    return sums


def sketches(tensors: Iterable[tuple[Fused, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Canonical name to sketch, on the device, for tensors that are held."""
    found: dict[str, torch.Tensor] = {}
    for fused, tensor in tensors:
        runs: dict[str, list[torch.Tensor]] = {}
        for name, run in fused.split(tensor.detach()):
            runs.setdefault(name, []).append(run)
        for shard in fused.shards(dtype="", counted=True):
            held = runs[shard.name]
            found[shard.name] = sketch(held[0] if len(held) == 1 else torch.cat(held), shard)
    return found


def parameters_of(chunks: list[Any], vocabulary: int, found: Mapping[str, int] = ALONE, optimizers: Iterable[Any] = ()) -> Parameters:
    """The parameters of a built model, all its chunks; ``vocabulary`` excludes padding, ``found`` is this rank's place.

    ``optimizers`` are those that hold parameters; the distributed ones say which ranges are this rank's. Raises RefusedRun for
    names that no table knows.
    """
    where = dict(found)
    dims = dims_of(unwrap(chunks[0]), vocabulary)
    distributed = [optimizer for optimizer in optimizers if hasattr(optimizer, "model_param_gbuf_map")]
    ranges = {id(model): held for optimizer in distributed for model, held in ranges_of(optimizer)} if distributed else None
    parameters: list[Parameter] = []
    for gpt in map(unwrap, chunks):
        layers = gpt.decoder.layers
        first_layer = layers[0].layer_number - 1 if len(layers) else 0
        for name, model in gpt.named_parameters():
            fused = MEGATRON_LLAMA.fused(
                "embedding.word_embeddings.weight" if is_tied_copy(name, gpt) else name,
                model.shape,
                dims,
                cut=cut(name, model, where),
                first_layer=first_layer,
                first_expert=where["ep"] * (gpt.config.num_moe_experts or 0) // where["ep_size"],
            )
            if fused is not None:
                parameters.append(_parameter(name, model, fused, where, ranges))
    config = unwrap(chunks[0]).config
    return Parameters(tuple(parameters), dims, config.num_layers, config.num_moe_experts or 0, alone=where == ALONE)


def _parameter(name: str, model: Any, fused: Fused, where: dict[str, int], ranges: Mapping[int, tuple[int, int, Any]] | None) -> Parameter:
    if ranges is not None and model.requires_grad:
        start, stop, main = ranges.get(id(model), (0, 0, None))
        return Parameter(model, fused, fused.narrowed(start, stop), main, is_counted(name, model, where, flat=True))
    main = getattr(model, "main_param", None)
    return Parameter(model, fused, fused, model if main is None else main, is_counted(name, model, where, flat=False))


def ranges_of(optimizer: Any) -> Iterator[tuple[Any, tuple[int, int, Any]]]:
    """Of a distributed optimizer: model parameter, and the elements [start, stop) of it that this rank updates, in which tensor.

    With the precision-aware optimizer that tensor is the model parameter's own range: its main parameters are inside the optimizer.
    """
    main = optimizer.shard_fp32_from_float16_groups
    if any(one is None for group in main for one in group):
        main = optimizer.shard_float16_groups
    for models, shards in ((optimizer.model_float16_groups, main), (optimizer.model_fp32_groups, optimizer.shard_fp32_groups)):
        for model_group, shard_group in zip(models, shards, strict=True):
            for model, shard in zip(model_group, shard_group, strict=True):
                held = optimizer._get_model_param_range_map(model)["param"]
                yield model, (held.start, held.end, shard)


def is_tied_copy(name: str, gpt: Any) -> bool:
    """Whether a parameter is the last pipeline stage's copy of the embedding."""
    return name == "output_layer.weight" and bool(gpt.share_embeddings_and_output_weights)


def dims_of(gpt: Any, vocabulary: int) -> Dims:
    """The sizes of a built model, over all tensor-parallel ranks."""
    config = gpt.config
    padded = gpt.vocab_size
    return Dims(
        heads=config.num_attention_heads,
        groups=config.num_query_groups,
        head_dim=config.kv_channels,
        ffn=config.ffn_hidden_size,
        vocabulary=min(vocabulary, padded),
        padded=padded,
        expert_ffn=getattr(config, "moe_ffn_hidden_size", None) or config.ffn_hidden_size,
    )


def unwrap(model: Any) -> Any:
    """The GPTModel inside Megatron's data-parallel and half-precision wrappers."""
    while hasattr(model, "module"):
        model = model.module
    return model


PLAIN: dict[str, Any] = {
    "normalization": "RMSNorm",
    "gated_linear_unit": True,
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
"""What Megatron's configuration says of a plain Llama; a model that differs in any is another Hugging Face model."""

MIXTRAL: dict[str, Any] = {
    "moe_router_pre_softmax": False,
    "moe_router_score_function": "softmax",
    "moe_shared_expert_intermediate_size": None,
    "moe_router_enable_expert_bias": False,
    "moe_router_topk_scaling_factor": None,
    "moe_router_num_groups": None,
    "moe_expert_capacity_factor": None,
}
"""The same of a Mixtral, which is a Llama whose every feed-forward layer is a choice of experts."""

AS_WELL = {"mtp_num_layers": 0, "moe_router_topk_scaling_factor": 1.0}
"""What says the same as not to say it."""


def huggingface_config(gpt: Any, dims: Dims, args: Any) -> dict[str, Any]:
    """``config.json`` of the Hugging Face model that a built Llama is, or with experts a Mixtral; raises RefusedRun where it is neither."""
    config = gpt.config
    experts = config.num_moe_experts
    plain = PLAIN | (MIXTRAL if experts else {})
    held = {name: getattr(config, name, value) for name, value in plain.items()}
    wrong = [f"{name} is {held[name]}, not {value}" for name, value in plain.items() if held[name] not in (value, AS_WELL.get(name, value))]
    built = {"position_embedding_type": (gpt.position_embedding_type, "rope"), "rotary_percent": (args.rotary_percent, 1.0)}
    built["dense layers between experts"] = (getattr(config, "moe_layer_freq", 1) not in (1, [1] * config.num_layers), False)
    built["use_rope_scaling"] = (bool(getattr(args, "use_rope_scaling", False)), False)
    wrong += [f"{name} is {found}, not {wanted}" for name, (found, wanted) in built.items() if found != wanted]
    if config.activation_func is not torch.nn.functional.silu:
        wrong.append(f"activation_func is {config.activation_func.__name__}, not silu")
    if wrong:
        raise RefusedRun(
            f"only Llama models, dense or with experts as in Mixtral, have canonical names so far: {'; '.join(wrong)}; leave it out"
        )
    found = {
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
    if not experts:
        return found
    mixtral = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "intermediate_size": dims.expert_ffn}
    return found | mixtral | {"num_local_experts": experts, "num_experts_per_tok": config.moe_router_topk, "sliding_window": None}
