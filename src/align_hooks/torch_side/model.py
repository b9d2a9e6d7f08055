"""The built Megatron model and optimizer as canonical pieces.

Names come from the model's ``named_parameters``: the optimizer's groups are ordered by weight decay and have no names. With mixed
precision the optimizer updates fp32 main parameters, from which weights and gradients are recorded; a distributed optimizer updates
ranges of these, which begin and end at any element.
"""

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import torch
from msgspec import Struct, field
from msgspec.structs import replace

from align_hooks.errors import RefusedRun
from align_hooks.families.family import Decoder, Family
from align_hooks.families.megatron import config_of, decoder, dims, makes_blocks, pattern_of
from align_hooks.families.own import described
from align_hooks.families.registry import nearest
from align_hooks.names.blocks import Array, Dims
from align_hooks.names.fused import Fused, gathered
from align_hooks.names.hybrid import in_blocks
from align_hooks.names.own import canonical_or_own, held_elsewhere
from align_hooks.record.format.shard import Shard, shards_of
from align_hooks.torch_side.arrays import dtype_of, to_numpy
from align_hooks.torch_side.fully_sharded import computed, elements, is_first_replica, is_sharded, shard
from align_hooks.torch_side.norms import NormPlan, Norms
from align_hooks.torch_side.objects import Arguments, Module, Optimizer
from align_hooks.torch_side.place import SINGLE_RANK, cut, is_counted
from align_hooks.torch_side.sketches import SketchPlan
from align_hooks.torch_side.structure import blocks_of, refuse_unknown, unwrap

MEGATRON = "megatron"
"""The beginning of names that no family has."""
MOVED_BUFFERS = (".router.expert_bias",)
"""Endings of the names of buffers that training moves without a gradient."""
Ranges: TypeAlias = Mapping[int, tuple[int, int, torch.Tensor | None]]
"""Id of a model parameter to the elements [start, stop) that this rank's distributed optimizer updates, and their tensor."""


class Parameter(Struct, frozen=True):
    """A model parameter, or a buffer that training moves, and its canonical pieces."""

    model: torch.Tensor
    whole: Fused
    """The pieces of ``model``."""
    fused: Fused
    """The pieces of ``main``."""
    in_optimizer: torch.Tensor | None
    """The tensor by which the optimizer knows the parameter: the fp32 main parameter, a range of it with a distributed optimizer,
    ``model``, or a DTensor under fully sharded data parallelism; None where this rank's optimizer does not have it."""
    counted: bool
    """False for a copy for which another rank accounts."""

    @property
    def main(self) -> torch.Tensor | None:
        """What the optimizer updates here, of a DTensor this rank's shard ``[elements]``; None where that is nothing."""
        # never kept: older torch gives a DTensor another local tensor in the first forward pass
        flat = self.fused.flat
        return None if self.in_optimizer is None or (flat is not None and flat[0] == flat[1]) else shard(self.in_optimizer)

    def gradient(self) -> torch.Tensor | None:
        """Return the reduced, unscaled gradient that the optimizer will use, right after ``prepare_grads``."""
        # decoupled_grad is the precision-aware optimizer's; the model's own grad, unless it is main, is a dummy with fused accumulation
        candidates = [getattr(self.in_optimizer, name, None) for name in ("decoupled_grad", "grad")]
        if self.fused.flat is None:  # main_grad may still have the loss scale, so it comes last
            candidates += [getattr(self.model, name, None) for name in ("decoupled_grad", "main_grad")]
        return next((shard(gradient) for gradient in candidates if gradient is not None), None)


class Parameters(Struct, frozen=True, dict=True):
    """All parameters of this rank, over all its pipeline stages."""

    all: tuple[Parameter, ...]
    family: Family
    """The model's family, or the nearest family."""
    dims: Dims
    layers: int
    experts: int = 0
    misfits: tuple[str, ...] = ()
    """The model's differences from ``family``."""
    single_rank: bool = True
    """Whether the job has no other rank."""
    predicted: int = 0
    """The number of layers for multi-token prediction."""
    halved: frozenset[int] = frozenset()
    """The numbers of blocks of which another pipeline stage has the other half."""
    gradient_plan: NormPlan = field(default_factory=NormPlan)
    """The plans are kept between steps, in which gradients and weights keep their places in memory."""
    counted_plan: NormPlan = field(default_factory=NormPlan)
    weight_plan: NormPlan = field(default_factory=NormPlan)
    computed_plan: NormPlan = field(default_factory=NormPlan)
    gradient_sketch_plan: SketchPlan = field(default_factory=SketchPlan)
    weight_sketch_plan: SketchPlan = field(default_factory=SketchPlan)

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.all)

    @property
    def updated(self) -> list[tuple[Parameter, torch.Tensor]]:
        """The parameters of which this rank's optimizer updates an element, each with its ``main``."""
        return [(parameter, main) for parameter in self.all if (main := parameter.main) is not None]

    @functools.cached_property
    def counted_names(self) -> frozenset[str]:
        """The names of the pieces for which this rank accounts."""
        return frozenset(name for parameter in self.all if parameter.counted for name in parameter.fused.pieces)

    @functools.cached_property
    def part_names(self) -> frozenset[str]:
        """The names of the pieces of which this rank holds a part."""
        return frozenset(name for parameter in self.all for name in parameter.fused.cut)

    @functools.cached_property
    def trained_names(self) -> list[tuple[str, frozenset[str]]]:
        """The native name of each trained parameter, and the names of its pieces."""
        trained = (parameter.fused for parameter, _ in self.updated if parameter.model.requires_grad)
        return [(fused.native, frozenset(fused.pieces)) for fused in trained]

    def shards(self) -> list[Shard]:
        """Return this rank's parameter table, with the present differences between model and main parameters; one transfer."""
        main_differs = self._main_differs()
        return [
            shard
            for parameter in self.all
            for shard in shards_of(
                parameter.fused,
                dtype=dtype_of(computed(parameter.model).dtype),
                counted=parameter.counted,
                trainable=parameter.model.requires_grad,
                main_differs=main_differs.get(id(parameter)),
            )
        ]

    def _main_differs(self) -> dict[int, bool]:
        """Map the id of each parameter with an fp32 main parameter to whether this one, rounded, differs from the model's weight."""
        flags: dict[int, torch.Tensor] = {}
        for parameter, main in self.updated:
            model, flat = shard(parameter.model.detach()), parameter.fused.flat
            # a quantised weight (a subclass of Tensor) has its own rounding; an offloaded main parameter would have to be moved
            half = model.dtype in (torch.bfloat16, torch.float16) and type(model) is torch.Tensor
            here = model.reshape(-1)[slice(*flat)] if flat is not None and not is_sharded(parameter.model) else model.reshape(-1)
            if half and main.dtype is torch.float32 and main.device == model.device and main.numel() == here.numel():
                flags[id(parameter)] = (main.detach().reshape(-1).to(here.dtype) != here).any()
        if not flags:
            return {}
        device = next(iter(flags.values())).device
        return dict(zip(flags, torch.stack([flag.to(device) for flag in flags.values()]).tolist(), strict=True))

    def wanted(self, *, trainable: bool = False) -> dict[str, tuple[int, ...]]:
        """Map the canonical name of each tensor in this rank's computation to its global shape."""
        chosen = (parameter for parameter in self.all if parameter.model.requires_grad or not trainable)
        return {piece.name: piece.shape for parameter in chosen for piece, _ in parameter.whole.ranges()}

    def elsewhere(self) -> Callable[[str], bool]:
        """Return a predicate of canonical names: whether only other ranks of this job compute with the tensor."""
        sizes = {"layers": self.layers, "experts": self.experts, "predicted": self.predicted}
        known = held_elsewhere(self.family.megatron, MEGATRON, self.wanted().keys(), **sizes)
        return lambda name: known(name) or any(re.search(rf"\b(?:decoder|model)\.layers\.{number}\.", name) for number in self.halved)

    def weights(self) -> dict[str, Array]:
        """Map canonical names to fp32 arrays of the main parameters, without other ranks' copies."""
        return pieces((parameter.fused, main) for parameter, main in self.updated if parameter.counted)

    def weight_squares(self) -> dict[str, float]:
        """Map canonical names to squared sums of the main parameters, copies included; empty without other ranks; one transfer."""
        if self.single_rank:
            return {}
        norms = self.weight_plan.norms((parameter.fused, main) for parameter, main in self.updated)
        return norms.named(norms.squares(on_host(norms.numbers)))

    def computed_norms(self) -> Norms:
        """Compute the norms of the weights that this rank computes with, as far as these are plain tensors, on the device."""
        plain = (each for each in self.all if each.model.requires_grad and type(each.model.data) is torch.Tensor)
        return self.computed_plan.norms((parameter.whole, parameter.model) for parameter in plain)

    def weight_sketches(self) -> Callable[[], dict[str, list[float]]]:
        """Return what maps canonical names to sketches of the main parameters, without other ranks' copies; one transfer, made now."""
        pairs = [(parameter.fused, main) for parameter, main in self.updated if parameter.counted]
        norms, signed = self.weight_plan.norms(pairs), self.weight_sketch_plan.sketches(pairs)
        numbers = on_host(torch.cat([norms.numbers.to(signed.numbers.dtype), signed.numbers]))
        of_norms, sums = np.split(numbers, [len(norms.numbers)])
        return lambda: signed.named(sums, norms.named(norms.squares(of_norms)))

    def gradients(self) -> list[tuple[Parameter, torch.Tensor]]:
        """Return every trained parameter's gradient, on the device; raise RefusedRun where a parameter has none."""
        pairs = [(parameter, parameter.gradient()) for parameter, _ in self.updated if parameter.model.requires_grad]
        missing = [parameter.fused.native for parameter, gradient in pairs if gradient is None]
        if missing:
            raise RefusedRun(
                f"{len(missing)} parameters have no gradient after prepare_grads, first {missing[0]}; this optimizer keeps them elsewhere"
            )
        return [(parameter, gradient) for parameter, gradient in pairs if gradient is not None]

    def load(self, read: Callable[[Fused], Array]) -> None:
        """Set every parameter and its main parameter from the array that ``read`` returns (fp32, native layout)."""
        with torch.no_grad():
            for parameter in self.all:
                source = torch.from_numpy(np.ascontiguousarray(read(parameter.whole)))
                own = source if parameter.fused.flat is None else source.reshape(-1)[slice(*parameter.fused.flat)]
                shard(parameter.model).copy_(own if is_sharded(parameter.model) else source)
                main = parameter.main
                if main is not None and main is not parameter.model:
                    main.copy_(own)


def on_host(numbers: torch.Tensor) -> Array:
    """Return a host copy of numbers, in their type; one transfer."""
    return np.asarray(numbers.cpu().numpy())


def pieces(tensors: Iterable[tuple[Fused, torch.Tensor]]) -> dict[str, Array]:
    """Map canonical names to host copies of tensors."""
    return gathered((name, to_numpy(piece)) for fused, tensor in tensors for name, piece in fused.split(tensor.detach()))


def parameters_of(
    chunks: list[Module],
    vocabulary: int,
    place: Mapping[str, int] = SINGLE_RANK,
    optimizers: Iterable[Optimizer] = (),
    *,
    args: Arguments = None,
    layer_wise: frozenset[int] | None = None,
) -> Parameters:
    """Return the parameters of all chunks of a built model, and the buffers that training moves.

    ``vocabulary`` excludes padding, ``place`` is this rank's, and ``optimizers`` hold parameters: a distributed optimizer defines this
    rank's ranges, a layer-wise one its tensors, of which ``layer_wise`` has the ids. A parameter that the model's family does not know,
    or knows in another layout, has its own name. Raises RefusedRun for a model of unknown structure."""
    for chunk in chunks:
        refuse_unknown(unwrap(chunk))
    first = unwrap(chunks[0])
    family, misfits = nearest(first, args)
    sizes, config = dims(first, vocabulary), config_of(first)
    halves = [block.number for gpt in map(unwrap, chunks) for block in blocks_of(gpt, gpt.decoder) if not block.is_whole]
    ranges = ranges_of([optimizer for optimizer in optimizers if hasattr(optimizer, "model_param_gbuf_map")])
    parameters: list[Parameter] = []
    for gpt in map(unwrap, chunks):
        moved = ((name, buffer) for name, buffer in gpt.named_buffers() if buffer is not None and name.endswith(MOVED_BUFFERS))
        for name, model in itertools.chain(gpt.named_parameters(), moved):
            fused = fused_of(name, model, gpt, family, sizes, place)
            if fused is not None:
                parameters.append(_parameter(name, model, fused, place, ranges, layer_wise))
    return Parameters(
        tuple(parameters),
        family,
        sizes,
        layers=config.num_layers,
        experts=config.num_moe_experts or 0,
        misfits=tuple(misfits or lacking(family, decoder(first, sizes, args), chunks, parameters)),
        single_rank=dict(place) == SINGLE_RANK,
        predicted=getattr(config, "mtp_num_layers", None) or 0,
        halved=frozenset(number for number in halves if halves.count(number) == 1),  # chunks of one rank may have a half each
    )


def lacking(family: Family, built: Decoder, chunks: list[Module], parameters: Iterable[Parameter]) -> list[str]:
    """Say which tensors of a family's layers this rank's layers lack: a specification of layers may rename them."""
    here = {name for parameter in parameters for name in parameter.whole.pieces}
    config = family.huggingface(built)
    of_layers = [
        name
        for name, axes in family.shapes(tied=True).items()
        if name.count("{") == name.count("{layer}") == 1
        and (built.dims.q_lora or "query_rank" not in axes)
        and (name not in family.optional or config[family.optional[name][1]])
    ]
    numbers = [block.number for gpt in map(unwrap, chunks) for block in blocks_of(gpt, gpt.decoder) if block.is_whole]
    absent = [name for number in numbers for kind in of_layers if (name := kind.format(layer=number)) not in here]
    return [f"layers lack {len(absent)} of its tensors, first {absent[0]}"] if absent else []


def fused_of(name: str, model: torch.Tensor, gpt: Module, family: Family, dims: Dims, place: Mapping[str, int]) -> Fused | None:
    """Return the pieces of a chunk's tensor; None for an entry that is no parameter."""
    table, layers = family.megatron, gpt.decoder.layers
    is_tied_copy = name == table.native(family.output) and gpt.share_embeddings_and_output_weights  # of the last pipeline stage
    native, first = table.native(family.embedding) if is_tied_copy else name, layers[0].layer_number - 1 if len(layers) else 0
    if pattern_of(gpt) is not None and makes_blocks(gpt):
        native, first = in_blocks(native, first), 0
    fused = canonical_or_own(
        # a layer that is half a block has no name among whole ones
        *(table if makes_blocks(gpt) or ".layers." not in native else None, MEGATRON, native, computed(model).shape, dims),
        gated=bool(gpt.config.gated_linear_unit),
        cut=cut(name, model, place),
        axis=getattr(model, "partition_dim", 0),
        first_layer=first,
        first_expert=place["ep"] * (gpt.config.num_moe_experts or 0) // place["ep_size"],
    )
    return None if fused is None else replace(fused, native=name)


def _parameter(
    name: str, model: torch.Tensor, fused: Fused, place: Mapping[str, int], ranges: Ranges | None, layer_wise: frozenset[int] | None
) -> Parameter:
    main = getattr(model, "main_param", None)
    here = model if main is None else main
    if is_sharded(model):
        start, stop = elements(model)
        counted = is_counted(name, model, place, flat=True) and is_first_replica(model)
        return Parameter(model, fused, fused.narrowed(start, stop), here, counted)
    if layer_wise is not None and id(here) in layer_wise:
        return Parameter(model, fused, fused, here, is_counted(name, model, place, flat=True))
    if model.requires_grad and (ranges is not None or layer_wise is not None):
        start, stop, part = (ranges or {}).get(id(model), (0, 0, None))
        return Parameter(model, fused, fused.narrowed(start, stop), part, is_counted(name, model, place, flat=True))
    return Parameter(model, fused, fused, here, is_counted(name, model, place, flat=False))


def ranges_of(distributed: Sequence[Optimizer]) -> Ranges | None:
    """Return the ranges of distributed optimizers; None where there are no such optimizers."""
    ranges: dict[int, tuple[int, int, torch.Tensor | None]] = {}
    for optimizer in distributed:
        main = optimizer.shard_fp32_from_float16_groups
        if any(part is None for group in main for part in group):  # a precision-aware optimizer hides main parameters
            main = optimizer.shard_float16_groups
        for model_groups, shards in ((optimizer.model_float16_groups, main), (optimizer.model_fp32_groups, optimizer.shard_fp32_groups)):
            for model_group, shard_group in zip(model_groups, shards, strict=True):
                for model, part in zip(model_group, shard_group, strict=True):
                    span = optimizer._get_model_param_range_map(model)["param"]
                    ranges[id(model)] = span.start, span.end, part
    return ranges if distributed else None


def model_facts(gpt: Module, parameters: Parameters, args: Arguments) -> dict[str, object]:
    """Return the model of ``run.json``: Hugging Face's ``config.json``, or without a family the sizes and the differences."""
    return described(parameters.family, decoder(gpt, parameters.dims, args), parameters.misfits)
