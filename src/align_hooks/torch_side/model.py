"""The built Megatron model and optimizer, seen as canonical pieces.

Names come from the model's ``named_parameters``: the optimizer's groups are ordered by weight decay and know no names.
With mixed precision the optimizer works on fp32 main parameters, which are what weights and gradients are recorded from. A
distributed optimizer works on ranges of them, which begin and end at any element.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import torch
from megatron.core.models.gpt import gpt_model
from megatron.core.transformer import transformer_block

from align_hooks.errors import RefusedRun
from align_hooks.families.family import Family
from align_hooks.families.megatron import decoder, dims
from align_hooks.families.own import described
from align_hooks.families.registry import nearest
from align_hooks.names.blocks import Array, Dims
from align_hooks.names.fused import Fused, gathered
from align_hooks.names.own import canonical_or_own, held_elsewhere
from align_hooks.record.format.shard import Shard, shards_of
from align_hooks.torch_side.arrays import dtype_of, to_numpy
from align_hooks.torch_side.norms import NormPlan, Norms
from align_hooks.torch_side.objects import Arguments, Module, Optimizer
from align_hooks.torch_side.place import ALONE, cut, is_counted
from align_hooks.torch_side.sketches import Sketches, SketchPlan

MEGATRON = "megatron"
"""What its own names begin with."""
MOVED_BUFFERS = (".router.expert_bias",)
"""How the names of buffers end that training moves without a gradient."""
Ranges: TypeAlias = Mapping[int, tuple[int, int, torch.Tensor | None]]
"""Of a distributed optimizer: id of a model parameter to the elements [start, stop) that this rank updates, and the tensor that holds
them."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A model parameter, or a buffer that training moves, and the canonical pieces that this rank's optimizer holds of it.

    ``whole`` are the pieces of the model's own tensor, ``fused`` those of ``main``. ``main`` is the tensor that the optimizer updates: the
    fp32 main parameter, a range of it with a distributed optimizer, or the parameter itself. It is None where the optimizer's range holds
    nothing of the parameter. ``counted`` is False for a copy that another rank accounts for.
    """

    model: torch.Tensor
    whole: Fused
    fused: Fused
    main: torch.Tensor | None
    counted: bool

    def gradient(self) -> torch.Tensor | None:
        """The reduced, unscaled gradient that the optimizer is about to use, right after ``prepare_grads``.

        ``decoupled_grad`` is the precision-aware optimizer's. ``grad`` of ``main`` is unscaled. ``main_grad`` of the model parameter may
        still carry the loss scale and comes last. The model parameter's own ``grad`` is read only where the model parameter is ``main``:
        with fused accumulation it is an empty dummy.
        """
        candidates = [getattr(self.main, name, None) for name in ("decoupled_grad", "grad")]
        if self.fused.flat is None:
            candidates += [getattr(self.model, name, None) for name in ("decoupled_grad", "main_grad")]
        return next((gradient for gradient in candidates if gradient is not None), None)


@dataclass(frozen=True, slots=True)
class Names:
    """The canonical names of a rank's pieces: those that it counts, those of which it holds a part, and of each trained parameter its own
    name and its pieces'."""

    counted: frozenset[str]
    parts: frozenset[str]
    trained: tuple[tuple[str, frozenset[str]], ...]


@dataclass(slots=True)
class Plans:
    """What is kept between steps: gradients and weights lie where they lay in the step before, and pieces have one name."""

    gradient_norms: NormPlan = field(default_factory=NormPlan)
    counted_norms: NormPlan = field(default_factory=NormPlan)
    gradient_sketches: SketchPlan = field(default_factory=SketchPlan)
    weight_norms: NormPlan = field(default_factory=NormPlan)
    weight_sketches: SketchPlan = field(default_factory=SketchPlan)
    names: Names | None = None


@dataclass(frozen=True, slots=True)
class Parameters:
    """All parameters of this rank, over all its pipeline stages.

    ``family`` is the model's, or the one from which it differs least, by ``misfits``. ``predicted`` counts layers for multi-token
    prediction. ``alone`` where the job has no other rank.
    """

    all: tuple[Parameter, ...]
    family: Family
    dims: Dims
    layers: int
    experts: int = 0
    misfits: tuple[str, ...] = ()
    alone: bool = True
    predicted: int = 0
    plans: Plans = field(default_factory=Plans)

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.all)

    @property
    def updated(self) -> list[tuple[Parameter, torch.Tensor]]:
        """The parameters of which this rank's optimizer updates any element, each with its ``main``."""
        return [(parameter, parameter.main) for parameter in self.all if parameter.main is not None]

    @property
    def names(self) -> Names:
        """The names of all pieces, put together once."""
        if self.plans.names is None:
            counted = (name for parameter in self.all if parameter.counted for name in parameter.fused.pieces)
            parts = (name for parameter in self.all for name in parameter.fused.cut)
            trained = (parameter.fused for parameter, _ in self.updated if parameter.model.requires_grad)
            of_trained = tuple((fused.native, frozenset(fused.pieces)) for fused in trained)
            self.plans.names = Names(frozenset(counted), frozenset(parts), of_trained)
        return self.plans.names

    def shards(self) -> list[Shard]:
        """Return this rank's parameter table, with what the model's own weights and the main parameters are now; one transfer."""
        main_differs = self._main_differs()
        return [
            shard
            for parameter in self.all
            for shard in shards_of(
                parameter.fused,
                dtype=dtype_of(parameter.model.dtype),
                counted=parameter.counted,
                trainable=parameter.model.requires_grad,
                main_differs=main_differs.get(id(parameter)),
            )
        ]

    def _main_differs(self) -> dict[int, bool]:
        """Map the id of each parameter with an fp32 main parameter to whether this one, rounded, is not the model's own weight.

        A quantised weight (a subclass of Tensor) has a rounding of its own, and a main parameter on another device (an optimizer that is
        offloaded) would have to be moved: both are left out.
        """
        flags: dict[int, torch.Tensor] = {}
        for parameter, main in self.updated:
            model, flat = parameter.model.detach(), parameter.fused.flat
            half = model.dtype in (torch.bfloat16, torch.float16) and type(model) is torch.Tensor
            here = model.reshape(-1)[slice(*flat)] if flat is not None else model.reshape(-1)
            if half and main.dtype is torch.float32 and main.device == model.device and main.numel() == here.numel():
                flags[id(parameter)] = (main.detach().reshape(-1).to(here.dtype) != here).any()
        device = next(iter(flags.values())).device if flags else None
        return dict(zip(flags, torch.stack([flag.to(device) for flag in flags.values()]).tolist(), strict=True)) if flags else {}

    def wanted(self, *, trainable: bool = False) -> dict[str, tuple[int, ...]]:
        """Canonical name to whole shape of each tensor with which this rank computes, whatever part its optimizer holds."""
        chosen = (parameter for parameter in self.all if parameter.model.requires_grad or not trainable)
        return {piece.name: piece.shape for parameter in chosen for piece, _ in parameter.whole.ranges()}

    def elsewhere(self) -> Callable[[str], bool]:
        """Says of a canonical name whether another rank of this job holds the tensor, of which this rank computes with nothing."""
        sizes = {"layers": self.layers, "experts": self.experts, "predicted": self.predicted}
        return held_elsewhere(self.family.megatron, MEGATRON, self.wanted().keys(), **sizes)

    def weights(self) -> dict[str, Array]:
        """Canonical name to fp32 array, from the main parameters, without copies."""
        return pieces((parameter.fused, main) for parameter, main in self.updated if parameter.counted)

    def weight_squares(self) -> dict[str, float]:
        """Canonical name to squared sum of the main parameters, with copies; empty where there can be no copies; one transfer."""
        if self.alone:
            return {}
        taken = self.plans.weight_norms.norms(*separated((parameter.fused, main) for parameter, main in self.updated))
        return taken.named(taken.squares(on_host(taken.numbers)))

    def weight_sketches(self) -> dict[str, list[float]]:
        """Canonical name to sketch of the main parameters, without copies; one transfer."""
        pairs = separated((parameter.fused, main) for parameter, main in self.updated if parameter.counted)
        taken, signed = self.plans.weight_norms.norms(*pairs), self.plans.weight_sketches.sketches(*pairs)
        numbers = on_host(torch.cat([taken.numbers.to(signed.numbers.dtype), signed.numbers]))
        of_norms, sums = np.split(numbers, [len(taken.numbers)])
        return signed.named(sums, taken.named(taken.squares(of_norms)))

    def gradient_norms(self, pairs: Sequence[tuple[Parameter, torch.Tensor]]) -> Norms:
        """The norms of gradients, left on the device; the index of a tensor is that of its pair."""
        return self.plans.gradient_norms.norms(*separated((parameter.fused, gradient) for parameter, gradient in pairs))

    def counted_norms(self) -> Norms:
        """The norms of the gradients that count, as they are now, left on the device."""
        counted = ((parameter.fused, gradient) for parameter, gradient in self.gradients() if parameter.counted)
        return self.plans.counted_norms.norms(*separated(counted))

    def gradient_sketches(self, pairs: Sequence[tuple[Parameter, torch.Tensor]]) -> Sketches:
        """The signed sums of the gradients that count, left on the device."""
        counted = ((parameter.fused, gradient) for parameter, gradient in pairs if parameter.counted)
        return self.plans.gradient_sketches.sketches(*separated(counted))

    def gradients(self) -> list[tuple[Parameter, torch.Tensor]]:
        """Every parameter's gradient, on the device; raises RefusedRun where a parameter has none."""
        pairs = [(parameter, parameter.gradient()) for parameter, _ in self.updated if parameter.model.requires_grad]
        missing = [parameter.fused.native for parameter, gradient in pairs if gradient is None]
        if missing:
            raise RefusedRun(
                f"{len(missing)} parameters have no gradient after prepare_grads, first {missing[0]}; this optimizer keeps them elsewhere"
            )
        return [(parameter, gradient) for parameter, gradient in pairs if gradient is not None]

    def load(self, read: Callable[[Fused], Array]) -> None:
        """Set every parameter, and its main parameter, from what ``read`` returns for it (fp32, native layout)."""
        with torch.no_grad():
            for parameter in self.all:
                source = torch.from_numpy(np.ascontiguousarray(read(parameter.whole)))
                parameter.model.copy_(source)
                main = parameter.main
                if main is not None and main is not parameter.model:
                    main.copy_(source if parameter.fused.flat is None else source.reshape(-1)[slice(*parameter.fused.flat)])


def on_host(numbers: torch.Tensor) -> Array:
    """Numbers as they are; one transfer."""
    return np.asarray(numbers.cpu().numpy())


def separated(pairs: Iterable[tuple[Fused, torch.Tensor]]) -> tuple[list[Fused], list[torch.Tensor]]:
    """The pieces of each tensor, and the tensors."""
    known = list(pairs)
    return [fused for fused, _ in known], [tensor for _, tensor in known]


def pieces(tensors: Iterable[tuple[Fused, torch.Tensor]]) -> dict[str, Array]:
    """Canonical name to host copy of tensors."""
    return gathered((name, to_numpy(piece)) for fused, tensor in tensors for name, piece in fused.split(tensor.detach()))


def parameters_of(
    chunks: list[Module], vocabulary: int, place: Mapping[str, int] = ALONE, optimizers: Iterable[Optimizer] = (), *, args: Arguments = None
) -> Parameters:
    """The parameters of a built model, all its chunks, and the buffers that training moves.

    ``vocabulary`` excludes padding, ``place`` is this rank's. ``optimizers`` are those that hold parameters; a distributed optimizer says
    which ranges are this rank's. A parameter that the model's family does not know, or knows in another layout, has its own name.
    Raises RefusedRun for a model whose structure this version does not know.
    """
    for chunk in chunks:
        refuse_unknown(unwrap(chunk))
    first = unwrap(chunks[0])
    family, misfits = nearest(first, args)
    sizes = dims(first, vocabulary)
    ranges = ranges_of([optimizer for optimizer in optimizers if hasattr(optimizer, "model_param_gbuf_map")])
    parameters: list[Parameter] = []
    for gpt in map(unwrap, chunks):
        for name, model in named_tensors(gpt):
            fused = fused_of(name, model, gpt, family, sizes, place)
            if fused is not None:
                parameters.append(_parameter(name, model, fused, place, ranges))
    config = first.config
    misfits = misfits or lacking(family, sizes, chunks, parameters)
    experts = config.num_moe_experts or 0
    predicted = getattr(config, "mtp_num_layers", None) or 0
    alone = dict(place) == ALONE
    return Parameters(tuple(parameters), family, sizes, config.num_layers, experts, tuple(misfits), alone, predicted)


def refuse_unknown(gpt: Module) -> None:
    """Refuse a model that is no GPTModel, or whose decoder is no stack of layers that are counted one by one.

    Every hook, name and number of a layer is that of a GPTModel. A class that somebody derives from it is one; a class that Megatron itself
    derives (``RetroModel``) is of another structure.
    """
    derived = itertools.takewhile(lambda kind: kind is not gpt_model.GPTModel, type(gpt).__mro__)
    others = [kind for kind in derived if kind.__module__.startswith("megatron.core.models.")]
    if others or not isinstance(gpt, gpt_model.GPTModel):
        raise RefusedRun(
            f"the model is a {class_name(others[0] if others else type(gpt))}: only megatron.core's GPTModel, or a class of your own that "
            "derives from it, can be recorded; train the same layers as a GPTModel (pretrain_gpt.py)"
        )
    decoder = getattr(gpt, "decoder", None)
    if not isinstance(decoder, transformer_block.TransformerBlock):
        raise RefusedRun(
            f"the decoder of the model is a {class_name(type(decoder))}: only layers of megatron.core's TransformerBlock, or of a class "
            "derived from it, have names; build the model with one"
        )
    numbers = [getattr(layer, "layer_number", None) for layer in decoder.layers]
    first = numbers[0] if numbers and isinstance(numbers[0], int) else 0
    if numbers and (first < 1 or numbers != list(range(first, first + len(numbers)))):
        raise RefusedRun(
            f"the decoder's layers are numbered {', '.join(map(str, numbers[:8]))}: names need a layer_number that counts them one by one, "
            "from 1 over the whole model; set it in your layers"
        )


def lacking(family: Family, dims: Dims, chunks: list[Module], parameters: Iterable[Parameter]) -> list[str]:
    """In words, which tensors every layer of a family has and layers of this rank do not: a specification of layers may rename them."""
    here = {name for parameter in parameters for name in parameter.whole.pieces}
    of_layers = [
        name
        for name, axes in family.shapes(tied=True).items()
        if name.count("{") == name.count("{layer}") == 1 and (dims.q_lora or "query_rank" not in axes)
    ]
    numbers = [layer.layer_number - 1 for chunk in chunks for layer in unwrap(chunk).decoder.layers]
    absent = [name for number in numbers for kind in of_layers if (name := kind.format(layer=number)) not in here]
    return [f"layers lack {len(absent)} of its tensors, first {absent[0]}"] if absent else []


def class_name(kind: type) -> str:
    """The name of a class with its module."""
    return f"{kind.__module__}.{kind.__qualname__}"


def fused_of(name: str, model: torch.Tensor, gpt: Module, family: Family, dims: Dims, place: Mapping[str, int]) -> Fused | None:
    """The pieces of a tensor of a chunk; None for an entry that is no parameter."""
    table, part = family.megatron, cut(name, model, place)
    native = table.native(family.embedding) if is_tied_copy(name, gpt, family) else name
    layers = gpt.decoder.layers
    first_layer = layers[0].layer_number - 1 if len(layers) else 0
    first_expert = place["ep"] * (gpt.config.num_moe_experts or 0) // place["ep_size"]
    return canonical_or_own(
        *(table, MEGATRON, native, model.shape, dims),
        gated=bool(gpt.config.gated_linear_unit),
        cut=part,
        axis=getattr(model, "partition_dim", 0),
        first_layer=first_layer,
        first_expert=first_expert,
    )


def named_tensors(gpt: Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The parameters of a model, and the buffers that training moves without a gradient: the biases of experts."""
    yield from gpt.named_parameters()
    yield from ((name, buffer) for name, buffer in gpt.named_buffers() if buffer is not None and name.endswith(MOVED_BUFFERS))


def _parameter(name: str, model: torch.Tensor, fused: Fused, place: Mapping[str, int], ranges: Ranges | None) -> Parameter:
    if ranges is not None and model.requires_grad:
        start, stop, main = ranges.get(id(model), (0, 0, None))
        return Parameter(model, fused, fused.narrowed(start, stop), main, is_counted(name, model, place, flat=True))
    main = getattr(model, "main_param", None)
    return Parameter(model, fused, fused, model if main is None else main, is_counted(name, model, place, flat=False))


def ranges_of(distributed: Sequence[Optimizer]) -> Ranges | None:
    """The ranges of distributed optimizers; None where there are no such optimizers.

    With the precision-aware optimizer the tensor is the model parameter's own range: its main parameters are inside the optimizer.
    """
    ranges: dict[int, tuple[int, int, torch.Tensor | None]] = {}
    for optimizer in distributed:
        main = optimizer.shard_fp32_from_float16_groups
        if any(shard is None for group in main for shard in group):
            main = optimizer.shard_float16_groups
        for model_groups, shards in ((optimizer.model_float16_groups, main), (optimizer.model_fp32_groups, optimizer.shard_fp32_groups)):
            for model_group, shard_group in zip(model_groups, shards, strict=True):
                for model, shard in zip(model_group, shard_group, strict=True):
                    span = optimizer._get_model_param_range_map(model)["param"]
                    ranges[id(model)] = span.start, span.end, shard
    return ranges if distributed else None


def is_tied_copy(name: str, gpt: Module, family: Family) -> bool:
    """Whether a parameter is the last pipeline stage's copy of the embedding."""
    return name == family.megatron.native(family.output) and bool(gpt.share_embeddings_and_output_weights)


def unwrap(model: Module) -> Module:
    """The GPTModel inside Megatron's data-parallel and half-precision wrappers."""
    while hasattr(model, "module"):
        model = model.module
    return model


def model_facts(gpt: Module, parameters: Parameters, args: Arguments) -> dict[str, object]:
    """What ``run.json`` says of the model: ``config.json`` of the same model at Hugging Face, or of a model of no family its sizes, and in
    what it differs from the nearest."""
    family = parameters.family
    return described(family, decoder(gpt, parameters.dims, args), parameters.misfits)
