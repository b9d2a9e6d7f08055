"""The built MindFormers model and optimizer, seen as canonical pieces.

Under semi-automatic parallelism MindSpore cuts parameters when it compiles the training cell, and not before. Weights of other pipeline
stages stay whole on this rank, which never computes with them; they are left out here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import mindspore
from mindspore import communication

from align_hooks.errors import RefusedRun
from align_hooks.families.family import Family, InMindFormers, ModelConfig
from align_hooks.families.registry import closest, in_mindformers, mindformers_families, models
from align_hooks.ms_side.arrays import to_numpy
from align_hooks.ms_side.columns import takes_cut
from align_hooks.ms_side.layouts import boxes, cut_and_flat, is_counted, layout_of
from align_hooks.ms_side.objects import Cell, LayoutEntry, Tensor, Weight
from align_hooks.names.blocks import Array, Dims
from align_hooks.names.fused import Fused, gathered
from align_hooks.names.table import Table
from align_hooks.record.norms import squared_sum
from align_hooks.record.shard import Shard, shards_of
from align_hooks.record.sketch import sketch


@dataclass(frozen=True, slots=True)
class Parameter:
    """A trainable parameter and the canonical pieces that it holds.

    ``counted`` is False for a copy that another rank accounts for. ``index`` is the position among the optimizer's parameters.
    """

    model: Weight
    fused: Fused
    counted: bool = True
    index: int = 0


@dataclass(frozen=True, slots=True)
class Parameters:
    """All trainable parameters of this rank, in the order of the training cell's gradients.

    ``alone`` says that the job has no other rank. ``layers`` is the model's number of layers and ``table`` the table of its family where
    pipeline stages share the layers; ``layers`` is 0 elsewhere.
    """

    all: tuple[Parameter, ...]
    dims: Dims
    alone: bool = True
    layers: int = 0
    table: Table | None = None

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.all)

    def shards(self) -> list[Shard]:
        """This rank's parameter table."""
        return [
            shard
            for parameter in self.all
            for shard in shards_of(parameter.fused, dtype=str(parameter.model.dtype).lower(), counted=parameter.counted)
        ]

    def wanted(self) -> dict[str, tuple[int, ...]]:
        """Canonical name to whole shape of each tensor with which this rank computes, whatever part its optimizer holds."""
        whole = (replace(parameter.fused, flat=None) for parameter in self.all)
        return {piece.name: piece.shape for fused in whole for piece, _ in fused.ranges()}

    def elsewhere(self) -> Callable[[str], bool]:
        """Says of a canonical name whether another pipeline stage holds the tensor."""
        if self.table is None or not self.layers:
            return lambda name: False
        return self.table.elsewhere(self.wanted().keys(), layers=self.layers)

    def weights(self) -> dict[str, Array]:
        """Canonical name to fp32 array, without copies."""
        return pieces((parameter, parameter.model) for parameter in self.all if parameter.counted)

    def weight_squares(self) -> dict[str, float]:
        """Canonical name to squared sum, with copies; empty where there can be no copies."""
        if self.alone:
            return {}
        return squared_sums((parameter, parameter.model) for parameter in self.all)

    def weight_sketches(self) -> dict[str, list[float]]:
        """Canonical name to sketch, without copies; each weight crosses to the host."""
        return sketches((parameter, parameter.model) for parameter in self.all if parameter.counted)

    def load(self, read: Callable[[Fused], Array]) -> None:
        """Set every parameter from what ``read`` returns for it (fp32, native layout)."""
        for parameter in self.all:
            fill(parameter.model, read(parameter.fused))


def fill(weight: Weight, array: Array) -> None:
    """Set a parameter of this rank, whole or cut; raises RefusedRun for another number of elements.

    MindSpore accepts a whole tensor for a cut parameter, and then trains on garbage. With ``sliced`` set it does not cut the tensor again.
    """
    if array.size != weight.size:
        raise RefusedRun(
            f"{weight.name} holds {weight.size} elements here and was to be given {array.size}; its layout is not as MindSpore says"
        )
    weight.set_data(mindspore.Tensor(array.reshape(weight.shape), dtype=weight.dtype), bool(weight.sliced))


def pieces(tensors: Iterable[tuple[Parameter, Tensor]]) -> dict[str, Array]:
    """Canonical name to host copy, of tensors that are cut as their parameters are; a transfer each."""
    arrays = ((parameter.fused, to_numpy(tensor)) for parameter, tensor in tensors)
    return gathered(run for fused, array in arrays for run in fused.split(array if fused.flat is None else array.reshape(-1)))


def squared_sums(tensors: Iterable[tuple[Parameter, Tensor]]) -> dict[str, float]:
    """Canonical name to squared sum, taken tensor by tensor."""
    return {name: squared_sum(piece) for pair in tensors for name, piece in pieces([pair]).items()}


def sketches(tensors: Iterable[tuple[Parameter, Tensor]]) -> dict[str, list[float]]:
    """Canonical name to sketch, taken tensor by tensor on the host, since MindSpore's devices have no fp64."""
    named: dict[str, list[float]] = {}
    for parameter, tensor in tensors:
        shards = {shard.name: shard for shard in shards_of(parameter.fused, dtype="", counted=True)}
        named |= {name: sketch(piece, shards[name]).tolist() for name, piece in pieces([(parameter, tensor)]).items()}
    return named


def parameters_of(
    weights: Sequence[Weight],
    config: ModelConfig,
    vocabulary: int | None,
    *,
    counted: bool = True,
    alone: bool = True,
    layouts: Mapping[str, LayoutEntry] | None = None,
    rank: int = 0,
) -> Parameters:
    """The parameters that the optimizer updates; ``vocabulary`` excludes padding, None where it is not known.

    ``layouts`` is ``parameter_layout_dict`` of the compiled training cell under semi-automatic parallelism, which has only the weights
    of this ``rank``'s pipeline stage. Raises RefusedRun for a layout that this version does not read.
    """
    built = built_by(family_of(config))
    dims, table = built.dims(config, vocabulary), built.table
    if layouts is not None:
        here = [(index, weight, layouts[weight.name]) for index, weight in enumerate(weights) if weight.name in layouts]
        parts = tuple(part_of(weight, index, table, dims, entry, rank) for index, weight, entry in here)
        return Parameters(parts, dims, alone, config.num_layers if len(parts) < len(weights) else 0, table)
    named = ((index, weight, table.fused(weight.name, weight.shape, dims)) for index, weight in enumerate(weights))
    return Parameters(tuple(Parameter(weight, fused, counted, index) for index, weight, fused in named if fused is not None), dims, alone)


def part_of(weight: Weight, index: int, table: Table, dims: Dims, entry: LayoutEntry, rank: int) -> Parameter:
    """A rank's part of a weight that MindSpore has cut as an ``entry`` of its layouts says."""
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
    fused = table.fused(weight.name, [size // layout.parts(axis) for axis, size in enumerate(shape)], dims, cut=cut)
    if fused is None:
        raise RefusedRun(f"{weight.name} has no canonical name")
    return Parameter(weight, fused if flat is None else fused.narrowed(*flat), is_counted(layout, rank, *group), index)


def built_by(family: Family) -> InMindFormers:
    """How MindFormers builds one of its families."""
    assert family.mindformers is not None
    return family.mindformers


def family_of(config: ModelConfig) -> Family:
    """The family that the model of a configuration is of, or is nearest to."""
    families = mindformers_families()
    alike = [family for family in families if built_by(family).configuration == type(config).__name__]
    return closest(alike or families[:1], lambda family: built_by(family).misfits(config), experts=None)[0]


def config_of(cell: Cell) -> ModelConfig:
    """The configuration of the model inside a training cell; raises RefusedRun for a model of no family."""
    return network_of(cell).config


def network_of(cell: Cell) -> Cell:
    """The model inside a training cell; raises RefusedRun for a model of no family."""
    network = cell
    while inner := next((name for name in ("network", "_backbone") if hasattr(network, name)), None):
        network = getattr(network, inner)
    known = {built.network: f"{built.network} (use_legacy: {built.legacy})" for built in in_mindformers()}
    if type(network).__name__ not in known or getattr(network, "config", None) is None:
        has = "has" if len(known) == 1 else "have"
        raise RefusedRun(f"only {' and '.join(known.values())} {has} canonical names so far, this model is {type(network).__name__}")
    if getattr(network.config, "qkv_concat", False) and not takes_cut(type(network)):
        raise RefusedRun("qkv_concat joins queries, keys and values otherwise before MindFormers 1.5; set it to False in the YAML")
    return network


def is_per_token(cell: Cell) -> bool:
    """Whether a training cell's loss is the mean over all tokens of a step; an MFTrainOneStepCell of 1.3 never has that, nor says so."""
    return bool(getattr(cell, "calculate_per_token_loss", False))


def huggingface_config(config: ModelConfig, vocabulary: int | None) -> dict[str, object]:
    """``config.json`` of the same model at Hugging Face; raises RefusedRun for a model of no family."""
    family = family_of(config)
    built = built_by(family)
    if misfits := built.misfits(config):
        known = models(mindformers_families())
        raise RefusedRun(f"only {known} have canonical names so far; this one has {' and '.join(misfits)}")
    return family.huggingface(built.decoder(config, built.dims(config, vocabulary)))
