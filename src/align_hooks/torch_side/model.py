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
from align_hooks.families.family import Family, InMegatron
from align_hooks.families.registry import closest, megatron_families, models
from align_hooks.names.blocks import Dims
from align_hooks.names.fused import Fused, gathered
from align_hooks.record.shard import Shard, shards_of
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
    """All parameters of this rank, over all its pipeline stages, of a model of ``family``; ``alone`` where the job has no other rank."""

    all: tuple[Parameter, ...]
    family: Family
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
            for shard in shards_of(
                parameter.fused,
                dtype=str(parameter.model.dtype).removeprefix("torch."),
                counted=parameter.counted,
                trainable=parameter.model.requires_grad,
            )
        ]

    def wanted(self, *, trainable: bool = False) -> dict[str, tuple[int, ...]]:
        """Canonical name to whole shape of everything that the model on this rank computes with, held by its optimizer or not."""
        chosen = (parameter for parameter in self.all if parameter.model.requires_grad or not trainable)
        return {piece.name: piece.shape for parameter in chosen for piece, _ in parameter.whole.ranges()}

    def elsewhere(self) -> Callable[[str], bool]:
        """Whether another rank of this job holds a canonical tensor, of which this one computes with nothing."""
        return built_by(self.family).table.elsewhere(self.wanted().keys(), layers=self.layers, experts=self.experts)

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
        for shard in shards_of(fused, dtype="", counted=True):
            held = runs[shard.name]
            found[shard.name] = sketch(held[0] if len(held) == 1 else torch.cat(held), shard)
    return found


def parameters_of(chunks: list[Any], vocabulary: int, found: Mapping[str, int] = ALONE, optimizers: Iterable[Any] = ()) -> Parameters:
    """The parameters of a built model, all its chunks; ``vocabulary`` excludes padding, ``found`` is this rank's place.

    ``optimizers`` are those that hold parameters; the distributed ones say which ranges are this rank's. Raises RefusedRun for
    names that no table knows.
    """
    where = dict(found)
    first = unwrap(chunks[0])
    family = family_of(first)
    built = built_by(family)
    dims = built.dims(first, vocabulary)
    distributed = [optimizer for optimizer in optimizers if hasattr(optimizer, "model_param_gbuf_map")]
    ranges = {id(model): held for optimizer in distributed for model, held in ranges_of(optimizer)} if distributed else None
    parameters: list[Parameter] = []
    for gpt in map(unwrap, chunks):
        layers = gpt.decoder.layers
        first_layer = layers[0].layer_number - 1 if len(layers) else 0
        for name, model in gpt.named_parameters():
            fused = built.table.fused(
                built.table.native(family.embedding) if is_tied_copy(name, gpt, family) else name,
                model.shape,
                dims,
                cut=cut(name, model, where),
                first_layer=first_layer,
                first_expert=where["ep"] * (gpt.config.num_moe_experts or 0) // where["ep_size"],
            )
            if fused is not None:
                parameters.append(_parameter(name, model, fused, where, ranges))
    config = first.config
    return Parameters(tuple(parameters), family, dims, config.num_layers, config.num_moe_experts or 0, alone=where == ALONE)


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
    for model_groups, shards in ((optimizer.model_float16_groups, main), (optimizer.model_fp32_groups, optimizer.shard_fp32_groups)):
        for model_group, shard_group in zip(model_groups, shards, strict=True):
            for model, shard in zip(model_group, shard_group, strict=True):
                held = optimizer._get_model_param_range_map(model)["param"]
                yield model, (held.start, held.end, shard)


def is_tied_copy(name: str, gpt: Any, family: Family) -> bool:
    """Whether a parameter is the last pipeline stage's copy of the embedding."""
    return name == built_by(family).table.native(family.output) and bool(gpt.share_embeddings_and_output_weights)


def unwrap(model: Any) -> Any:
    """The GPTModel inside Megatron's data-parallel and half-precision wrappers."""
    while hasattr(model, "module"):
        model = model.module
    return model


def built_by(family: Family) -> InMegatron:
    """How Megatron builds one of its families."""
    assert family.megatron is not None
    return family.megatron


def family_of(gpt: Any) -> Family:
    """The family that a built model is of, or is nearest to."""
    found, _ = closest(megatron_families(), lambda family: built_by(family).misfits(gpt, None), experts=bool(gpt.config.num_moe_experts))
    return found


def huggingface_config(gpt: Any, parameters: Parameters, args: Any) -> dict[str, Any]:
    """``config.json`` of the Hugging Face model that a built model is; raises RefusedRun where it is of no family."""
    family = parameters.family
    if misfits := built_by(family).misfits(gpt, args):
        known = models(megatron_families())
        raise RefusedRun(f"only {known} have canonical names so far: {'; '.join(misfits)}; leave it out")
    return family.huggingface(built_by(family).decoder(gpt, parameters.dims))
