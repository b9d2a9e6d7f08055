"""A checkpoint of any form: canonical names to tensors on disk, and their model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from align_hooks.checkpoints.kinds import KINDS
from align_hooks.checkpoints.model import ConfiguredModel
from align_hooks.errors import RecordError, RefusedRun, shown
from align_hooks.names.blocks import PADDING, Cut, Dims
from align_hooks.names.fused import Fused
from align_hooks.names.table import NameTable
from align_hooks.record.format.layout import Array


@dataclass(frozen=True, slots=True)
class TensorOnDisk:
    """A tensor on disk."""

    shape: tuple[int, ...]
    kind: str
    """The type, by its name in :data:`.kinds.KINDS`."""
    read: Callable[[], Array]
    """Reads the numbers, bf16 as bits."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The weights of a model."""

    path: Path
    form: str
    """The form in words, for messages."""
    model: ConfiguredModel
    tensors: Mapping[str, TensorOnDisk]
    """By canonical name; padding of a vocabulary is a tensor of its own."""
    notes: Sequence[str] = ()
    """What a person should know of how the weights were read."""

    def __post_init__(self) -> None:
        """Raise RecordError unless the tensors are those of the model, each in its shape and none missing."""
        refuse_other(self.model, {name: tensor.shape for name, tensor in self.tensors.items()}, self.path)
        if odd := next((name for name, tensor in self.tensors.items() if tensor.kind not in KINDS), None):
            kind = shown(self.tensors[odd].kind)
            raise RecordError(f"{self.path}: {shown(odd)} is {kind}; only weights in {', '.join(KINDS)} can be converted")


def refuse_other(model: ConfiguredModel, given: Mapping[str, tuple[int, ...]], path: Path) -> None:
    """Raise RecordError unless ``given``, canonical name to shape, are the tensors of a model."""
    for name, shape in given.items():
        if name.endswith(PADDING):
            continue
        wanted = model.shape(name)
        if wanted is None:
            raise RecordError(f"{path}: {shown(name)} is no tensor of {model.words}; convert a checkpoint of the model that it says it is")
        if len(wanted) != len(shape) or any(size not in (None, own) for size, own in zip(wanted, shape, strict=True)):
            sizes = ", ".join("?" if size is None else str(size) for size in wanted)
            raise RecordError(f"{path}: {name} is {list(shape)}, {model.words} has [{sizes}]; name the configuration of this model")
    missing = next((name for name in model.required() if name not in given), None)
    if missing is not None:
        raise RecordError(f"{path} lacks {missing}, which {model.words} has; copy the whole checkpoint")


@dataclass(frozen=True, slots=True)
class FrameworkTensor:
    """A framework's parameter on disk, or a rank's part of the parameter."""

    fused: Fused
    kind: str
    read: Callable[[], Array]
    where: str
    """The parameter's name in messages."""


@dataclass
class FrameworkTensors:
    """A framework's parameters, which are split into canonical tensors when these are read."""

    path: Path
    _shards: dict[tuple[str, ...], list[FrameworkTensor]] = field(default_factory=dict)
    """The parts of each parameter, by the names of its canonical tensors."""
    _last: tuple[tuple[str, ...], dict[str, Array]] = ((), {})
    """The parameter that was read last, whose canonical tensors are usually read one after the other."""

    def add(self, shard: FrameworkTensor) -> None:
        """Add a parameter, or a rank's part of it."""
        self._shards.setdefault(tuple(part.name for part in shard.fused.parts), []).append(shard)

    def tensors(self) -> dict[str, TensorOnDisk]:
        """Return canonical name to tensor; raises RecordError for overlapping, missing and repeated parts."""
        found: dict[str, TensorOnDisk] = {}
        for key, shards in self._shards.items():
            first, last = shards[0], shards[-1]
            if len({shard.kind for shard in shards}) > 1:
                kinds = f"{first.where} is {shown(first.kind)} and {last.where} {shown(last.kind)}"
                raise RecordError(f"{self.path}: {kinds}; save it again")
            for index, part in enumerate(first.fused.parts):
                if part.name in found:
                    raise RecordError(f"{self.path}: {part.name} is there twice, {first.where} holds it too; convert one whole model")
                self._refuse_gaps(shards, index)
                if math.prod(part.shape):
                    found[part.name] = TensorOnDisk(part.shape, first.kind, partial(self._read, key, part.name))
        return found

    def _refuse_gaps(self, shards: Sequence[FrameworkTensor], index: int) -> None:
        parts = [shard.fused.parts[index] for shard in shards]
        elements = sum(math.prod(stop - start for start, stop in part.box) for part in parts)
        if elements != math.prod(parts[0].shape) or any(part.shape != parts[0].shape for part in parts):
            why = f"overlap or are not all there ({', '.join(dict.fromkeys(shard.where for shard in shards))})"
            raise RecordError(f"{self.path}: the parts of {parts[0].name} {why}; copy every rank of one model")

    def _read(self, key: tuple[str, ...], name: str) -> Array:
        if self._last[0] != key:
            self._last = ((), {})  # frees memory for the next
            self._last = (key, _pieces(self._shards[key]))
        return self._last[1][name]


def _pieces(shards: Sequence[FrameworkTensor]) -> dict[str, Array]:
    """Return the canonical tensors of a parameter, joined from the ranks' parts."""
    if len(shards) == 1:
        return dict(shards[0].fused.split(shards[0].read()))
    joined = {part.name: np.empty(part.shape, KINDS[shards[0].kind]) for part in shards[0].fused.parts}
    for shard in shards:
        boxes = {part.name: tuple(slice(*bounds) for bounds in part.box) for part in shard.fused.parts}
        for name, piece in shard.fused.split(shard.read()):
            joined[name][boxes[name]] = piece
    return joined


def placed(
    table: NameTable,
    native: str,
    shape: Sequence[int],
    model: ConfiguredModel,
    dims: Dims,
    *,
    rank: tuple[int, int] = (0, 1),
    first_layer: int = 0,
    first_expert: int = 0,
) -> Fused | None:
    """Return the pieces of a parameter of tensor-parallel rank ``rank[0]`` of ``rank[1]``; None for a name of no parameter."""
    first: Fused | None = None
    for cut in dict.fromkeys((Cut(None, *rank), Cut())):  # a rank has a part, or all, as of a norm: the model's shapes show which
        try:
            fused = table.fused(native, shape, dims, cut=cut, first_layer=first_layer, first_expert=first_expert)
        except RefusedRun:
            if cut.count == 1 and first is None:
                raise
            continue
        if fused is None or all(model.allows(part.name, part.shape) for part in fused.parts):
            return fused
        first = first or fused
    return first


def each_once(names: Iterator[tuple[str, str]], path: Path) -> dict[str, str]:
    """Return name to the file that has it; raises RecordError for a name in two files."""
    homes: dict[str, str] = {}
    for name, home in names:
        if homes.setdefault(name, home) != home:
            where = f"{shown(name)} is there twice, in {homes[name]} and in {home}"
            raise RecordError(f"{path}: {where}; keep the files of one checkpoint there")
    return homes
