"""The built MindFormers model and its parameters as canonical pieces.

Under semi-automatic parallelism MindSpore cuts parameters when it compiles the training cell. Weights of other pipeline stages, which this
rank holds uncut and never uses, are left out.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import mindspore
from mindspore import communication
from msgspec import Struct
from msgspec.structs import replace

from align_hooks.errors import RefusedRun
from align_hooks.families.family import Family, InMindFormers, ModelConfig
from align_hooks.families.own import described, with_unknown
from align_hooks.families.registry import FAMILIES
from align_hooks.ms_side.arrays import local, overwrite, to_numpy
from align_hooks.ms_side.columns import takes_cut
from align_hooks.ms_side.layouts import boxes, cut_and_flat, is_counted, layout_of
from align_hooks.ms_side.objects import Cell, LayoutEntry, Tensor, Weight
from align_hooks.names.blocks import WHOLE, Array, Cut, Dims, rows_and_columns
from align_hooks.names.fused import Fused, gathered
from align_hooks.names.own import canonical_or_own, held_elsewhere
from align_hooks.names.table import NameTable
from align_hooks.quantities.weights import NO_FAMILY
from align_hooks.record.format.norms import squared_sum
from align_hooks.record.format.shard import Shard, shards_of
from align_hooks.record.format.sketch import sketch

MINDFORMERS = "mindformers"
"""The beginning of names that no family has."""
MOVED_BUFFERS = (".router.expert_bias", ".mlp.expert_bias")
"""Endings of the names of Parameters that training moves without a gradient: the biases of experts."""


class CellParameter(Struct, frozen=True):
    """A trainable parameter, or a buffer that training moves, and its canonical pieces."""

    model: Weight
    fused: Fused
    counted: bool = True
    """False for a copy for which another rank accounts."""
    index: int = 0
    """The position among the optimizer's parameters."""
    trainable: bool = True


class Model(Struct, frozen=True):
    """The model inside a training cell."""

    network: Cell
    config: ModelConfig
    family: Family | None
    """The model's or the nearest family; None for a class of no family, as ``built``."""
    built: InMindFormers | None
    """MindFormers' way of building ``family``."""
    misfits: tuple[str, ...] = ()
    """The model's differences from ``family``."""

    @property
    def core(self) -> Cell:
        """The Cell that holds the layers and the loss: of a newer model the GPTModel inside."""
        return self.network.model if self.is_newer else self.network

    @property
    def is_newer(self) -> bool:
        """Whether the model is of ``use_legacy: False``."""
        return built_class(getattr(self.network, "model", None)).__name__ == "GPTModel"

    def dims(self, vocabulary: int | None) -> Dims:
        """Return the model's sizes; of a class of no family only the vocabulary's."""
        if self.built is not None:
            return self.built.dims(self.config, vocabulary)
        rows = int(getattr(self.config, "vocab_size", 0) or 0)
        return Dims(heads=0, groups=0, head_dim=0, ffn=0, vocabulary=min(vocabulary or rows, rows), padded=rows)

    @property
    def layers(self) -> int:
        """Layers of the decoder; 0 where nothing says."""
        return int(getattr(self.config, "num_layers", 0) or 0)

    @property
    def table(self) -> NameTable | None:
        """The table of the model's names; None for a class of no family."""
        return None if self.built is None else self.built.table_of(self.config)

    def fused(self, name: str, shape: Sequence[int], dims: Dims, cut: Cut = WHOLE, first_expert: int = 0) -> Fused | None:
        """Return a parameter's pieces, under its own name where the family lacks its name or layout; None for no parameter."""
        return canonical_or_own(self.table, MINDFORMERS, name, shape, dims, gated=False, cut=cut, first_expert=first_expert)

    def facts(self, vocabulary: int | None) -> dict[str, object]:
        """Return the model of ``run.json``: Hugging Face's ``config.json``, or without a family the sizes and the differences."""
        if self.family is None or self.built is None:
            sizes = {"vocab_size": self.dims(vocabulary).vocabulary or None, "num_hidden_layers": self.layers or None}
            return with_unknown({NO_FAMILY: list(self.misfits), **sizes})
        decoder = self.built.decoder(self.config, self.built.dims(self.config, vocabulary))
        if self.built.as_built is not None:
            decoder = self.built.as_built(self.core, decoder)
        return described(self.family, decoder, self.misfits)


class CellParameters(Struct, frozen=True):
    """All trainable parameters of this rank, in the order of the training cell's gradients."""

    all: tuple[CellParameter, ...]
    dims: Dims
    single_rank: bool = True
    """Whether the job has no other rank."""
    layers: int = 0
    """The model's layers where pipeline stages divide them, else 0."""
    table: NameTable | None = None
    buffers: tuple[CellParameter, ...] = ()
    """Buffers that training moves."""
    predicted: int = 0
    """The number of layers for multi-token prediction."""
    experts: frozenset[str] = frozenset()
    """Names of the experts that PyNative's ranks divide among them, those of this rank included."""

    def __iter__(self) -> Iterator[CellParameter]:
        return iter(self.all)

    @property
    def state(self) -> tuple[CellParameter, ...]:
        """The parameters and the buffers."""
        return (*self.all, *self.buffers)

    def shards(self) -> list[Shard]:
        """Return this rank's parameter table."""
        return [
            shard
            for parameter in self.state
            for shard in shards_of(
                parameter.fused, dtype=str(parameter.model.dtype).lower(), counted=parameter.counted, trainable=parameter.trainable
            )
        ]

    def wanted(self, *, trainable: bool = False) -> dict[str, tuple[int, ...]]:
        """Map the canonical name of each tensor in this rank's computation to its global shape."""
        whole = (replace(parameter.fused, flat=None) for parameter in (self.all if trainable else self.state))
        return {piece.name: piece.shape for fused in whole for piece, _ in fused.ranges()}

    def elsewhere(self) -> Callable[[str], bool]:
        """Return a predicate of canonical names: whether another pipeline stage holds the tensor, or another rank the expert."""
        if self.table is None or not self.layers:
            return self.experts.difference(self.wanted()).__contains__
        sizes = {"layers": self.layers, "experts": self.dims.experts, "predicted": self.predicted}
        return held_elsewhere(self.table, MINDFORMERS, self.wanted().keys(), **sizes)

    def weights(self) -> dict[str, Array]:
        """Map canonical names to fp32 arrays, without other ranks' copies."""
        return pieces((parameter, parameter.model) for parameter in self.state if parameter.counted)

    def weight_squares(self) -> dict[str, float]:
        """Map canonical names to squared sums, copies included; empty without other ranks."""
        return {} if self.single_rank else squared_sums((parameter, parameter.model) for parameter in self.state)

    def weight_sketches(self) -> Callable[[], dict[str, list[float]]]:
        """Return what maps canonical names to sketches, without other ranks' copies; a transfer each, made now."""
        made = sketches((parameter, parameter.model) for parameter in self.state if parameter.counted)
        return lambda: made

    def load(self, read: Callable[[Fused], Array]) -> None:
        """Set every parameter from the array that ``read`` returns (fp32, native layout)."""
        for parameter in self.state:
            fill(parameter.model, read(parameter.fused))


def fill(weight: Weight, array: Array) -> None:
    """Set a parameter of this rank, cut or not; raise RefusedRun for another number of elements."""
    here = local(weight)
    if array.size != here.size:  # MindSpore would accept an uncut tensor, and train on garbage
        raise RefusedRun(
            f"{weight.name} holds {here.size} elements here and was to be given {array.size}; its layout is not as MindSpore says"
        )
    given = mindspore.Tensor(array.reshape(here.shape), dtype=weight.dtype)
    if here is not weight:
        overwrite(here, given)
    else:  # with ``sliced`` MindSpore does not cut the tensor again
        weight.set_data(given, bool(weight.sliced))


def refill(
    injecting: Weight, buffers: Iterable[tuple[CellParameter, Weight]], read: Callable[[Fused], Array] | None, *, copies: bool
) -> float:
    """Fill the next step's injected gradients from ``read`` (fp32, native layout, this rank's part); with None inject nothing.

    Returns the norm of the injected gradients, with or without ``copies`` of other ranks' parts."""
    injecting.set_data(mindspore.Tensor(read is not None))
    if read is None:
        return 0.0
    total = 0.0
    for parameter, buffer in buffers:
        array = read(parameter.fused)
        total += squared_sum(array) if copies or parameter.counted else 0.0
        fill(buffer, array)
    return math.sqrt(total)


def pieces(tensors: Iterable[tuple[CellParameter, Tensor]]) -> dict[str, Array]:
    """Map canonical names to host copies of tensors that are cut as their parameters; a transfer each."""
    arrays = ((parameter.fused, to_numpy(tensor)) for parameter, tensor in tensors)
    return gathered(run for fused, array in arrays for run in fused.split(array if fused.flat is None else array.reshape(-1)))


def squared_sums(tensors: Iterable[tuple[CellParameter, Tensor]]) -> dict[str, float]:
    """Map canonical names to squared sums, tensor by tensor."""
    return {name: squared_sum(piece) for pair in tensors for name, piece in pieces([pair]).items()}


def sketches(tensors: Iterable[tuple[CellParameter, Tensor]]) -> dict[str, list[float]]:
    """Map canonical names to sketches, tensor by tensor on the host, since MindSpore's devices have no fp64."""
    named: dict[str, list[float]] = {}
    for parameter, tensor in tensors:
        shards = {shard.name: shard for shard in shards_of(parameter.fused, dtype="", counted=True)}
        named |= {name: sketch(piece, shards[name]).tolist() for name, piece in pieces([(parameter, tensor)]).items()}
    return named


def parameters_of(
    weights: Sequence[Weight],
    model: Model,
    vocabulary: int | None,
    *,
    counted: bool = True,
    single_rank: bool = True,
    layouts: Mapping[str, LayoutEntry] | None = None,
    rank: int = 0,
) -> CellParameters:
    """Return the parameters that the optimizer updates; ``vocabulary`` excludes padding, None where unknown.

    ``layouts`` is ``parameter_layout_dict`` of the compiled training cell under semi-automatic parallelism, which has only the weights of
    this ``rank``'s pipeline stage. Raises RefusedRun for a layout that this version does not read."""
    dims = model.dims(vocabulary)
    if layouts is not None:
        here = [(index, weight, layouts[weight.name]) for index, weight in enumerate(weights) if weight.name in layouts]
        parts = tuple(part_of(weight, index, model, dims, entry, rank) for index, weight, entry in here)
        layers, predicted = model.layers if len(parts) < len(weights) else 0, getattr(model.config, "mtp_num_layers", None) or 0
        return CellParameters(parts, dims, single_rank, layers, model.table, predicted=predicted)
    named = (
        (index, weight, model.fused(weight.name, rows_and_columns(weight.name, weight.shape), dims)) for index, weight in enumerate(weights)
    )
    trained = tuple(CellParameter(weight, fused, counted, index) for index, weight, fused in named if fused is not None)
    untrained = (weight for weight in model.network.get_parameters() if not weight.requires_grad) if model.network is not None else ()
    moved = [(weight, model.fused(weight.name, weight.shape, dims)) for weight in untrained if weight.name.endswith(MOVED_BUFFERS)]
    buffers = tuple(CellParameter(weight, fused, counted, -1, trainable=False) for weight, fused in moved if fused is not None)
    return CellParameters(trained, dims, single_rank, buffers=buffers)


def part_of(weight: Weight, index: int, model: Model, dims: Dims, entry: LayoutEntry, rank: int) -> CellParameter:
    """Return a rank's part of a weight that MindSpore cut by an ``entry`` of its layouts."""
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
    fused = model.fused(weight.name, [size // layout.parts(axis) for axis, size in enumerate(shape)], dims, cut)
    if fused is None:
        raise RefusedRun(f"{weight.name} has no canonical name")
    return CellParameter(weight, fused if flat is None else fused.narrowed(*flat), is_counted(layout, rank, *group), index)


def model_of(cell: Cell) -> Model:
    """Return the model that a training cell wraps, in whatever Cells, with its or the nearest family."""
    network = cell
    while inner := next((name for name in ("network", "_backbone") if hasattr(network, name)), None):
        network = getattr(network, inner)
    return model_of_network(network)


def built_class(cell: Cell) -> type:
    """Return the class as which a Cell was built, below the one that hyper-parallel's ``fully_shard`` makes of it."""
    kind = type(cell)
    last = kind.__bases__[-1]
    return last if kind.__name__ == f"HSDP{last.__name__}" else kind


def model_of_network(network: Cell) -> Model:
    """Return a built model, with its or the nearest family."""
    kind = built_class(network)
    name, theirs = kind.__name__, any(base.__module__.startswith("mindformers.") for base in kind.__mro__ if base.__name__ == kind.__name__)
    ways = [(family, built) for family in FAMILIES for built in (*family.mindformers, *family.pynative) if theirs and built.network == name]
    config = network.model.config if ways and not ways[0][1].legacy else getattr(network, "config", None)
    if not ways or config is None:
        return Model(network, config, None, None, (f"{name} is of no family",))
    if getattr(config, "qkv_concat", False) and ways[0][1].legacy and not takes_cut(type(network)):
        raise RefusedRun("qkv_concat joins queries, keys and values otherwise before MindFormers 1.5; set it to False in the YAML")
    return _nearest(network, config, ways)


def model_of_config(config: ModelConfig) -> Model:
    """Return the model of a configuration of MindFormers' older models; raise RefusedRun for another configuration."""
    kind = type(config).__name__
    ways = [(family, built) for family in FAMILIES for built in family.mindformers if built.configuration == kind]
    if not ways or not ways[0][1].legacy:
        raise RefusedRun(f"a {kind} does not tell which model is built from it; pass the training cell, or a LlamaConfig")
    return _nearest(None, config, ways)


def _nearest(network: Cell, config: ModelConfig, ways: Sequence[tuple[Family, InMindFormers]]) -> Model:
    misfits = [(built.misfits(config), family, built) for family, built in ways]
    wrong, family, built = min(misfits, key=lambda way: len(way[0]))
    return Model(network, config, family, built, tuple(wrong))


def is_per_token(cell: Cell) -> bool:
    """Return whether a training cell's loss is the mean over all tokens of a step; in 1.3 it never is."""
    return bool(getattr(cell, "calculate_per_token_loss", False))
