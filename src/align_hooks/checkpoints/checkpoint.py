"""What every form is read as: canonical names to tensors that are still on disk, and the model that they are of."""

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
    """A tensor on disk. ``kind`` is its type, by its name in :data:`.kinds.KINDS`; ``read`` gives its numbers, bf16 as bits."""

    shape: tuple[int, ...]
    kind: str
    read: Callable[[], Array]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Weights in whatever form. ``tensors`` are by canonical name, rows of a padded vocabulary apart; ``notes`` say what a person should
    know of how they were read."""

    path: Path
    form: str
    model: ConfiguredModel
    tensors: Mapping[str, TensorOnDisk]
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Raise RecordError unless the tensors are those of the model, each in its shape and none missing."""
        refuse_other(self.model, {name: tensor.shape for name, tensor in self.tensors.items()}, self.path)
        for name, tensor in self.tensors.items():
            if tensor.kind not in KINDS:
                raise RecordError(
                    f"{self.path}: {shown(name)} is {shown(tensor.kind)}; only weights in {', '.join(KINDS)} can be converted"
                )


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
    """A framework's parameter on a rank, or part of one, still on disk; ``where`` names it in messages."""

    fused: Fused
    kind: str
    read: Callable[[], Array]
    where: str


@dataclass
class FrameworkTensors:
    """A framework's parameters, taken apart into canonical tensors when these are read.

    The pieces of the parameter that was read last are kept, for they are usually asked for one after the other.
    """

    path: Path
    _held: dict[tuple[str, ...], list[FrameworkTensor]] = field(default_factory=dict)
    _last: tuple[tuple[str, ...], dict[str, Array]] = ((), {})

    def add(self, held: FrameworkTensor) -> None:
        """Add a parameter, or a rank's part of it."""
        self._held.setdefault(tuple(part.name for part in held.fused.parts), []).append(held)

    def tensors(self) -> dict[str, TensorOnDisk]:
        """Canonical name to tensor; raises RecordError where parts overlap or are missing, and for a tensor that is there twice."""
        found: dict[str, TensorOnDisk] = {}
        for key, held in self._held.items():
            if len({one.kind for one in held}) > 1:
                raise RecordError(
                    f"{self.path}: {held[0].where} is {shown(held[0].kind)} and {held[-1].where} {shown(held[-1].kind)}; save it again"
                )
            for index, part in enumerate(held[0].fused.parts):
                if part.name in found:
                    raise RecordError(f"{self.path}: {part.name} is there twice, {held[0].where} holds it too; convert one whole model")
                self._refuse_gaps(held, index)
                if math.prod(part.shape):
                    found[part.name] = TensorOnDisk(part.shape, held[0].kind, partial(self._read, key, part.name))
        return found

    def _refuse_gaps(self, held: Sequence[FrameworkTensor], index: int) -> None:
        shape = held[0].fused.parts[index].shape
        there = sum(math.prod(stop - start for start, stop in one.fused.parts[index].box) for one in held)
        if there != math.prod(shape) or any(one.fused.parts[index].shape != shape for one in held):
            name, places = held[0].fused.parts[index].name, ", ".join(dict.fromkeys(one.where for one in held))
            raise RecordError(f"{self.path}: the parts of {name} overlap or are not all there ({places}); copy every rank of one model")

    def _read(self, key: tuple[str, ...], name: str) -> Array:
        if self._last[0] != key:
            self._last = ((), {})  # before memory is taken for the next
            self._last = (key, _pieces(self._held[key]))
        return self._last[1][name]


def _pieces(held: Sequence[FrameworkTensor]) -> dict[str, Array]:
    """The canonical tensors of a parameter, put together from the ranks that hold it."""
    if len(held) == 1:
        return dict(held[0].fused.split(held[0].read()))
    whole = {part.name: np.empty(part.shape, KINDS[held[0].kind]) for part in held[0].fused.parts}
    for one in held:
        boxes = {part.name: tuple(slice(*bounds) for bounds in part.box) for part in one.fused.parts}
        for name, piece in one.fused.split(one.read()):
            whole[name][boxes[name]] = piece
    return whole


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
    """The pieces of a parameter of tensor-parallel rank ``rank[0]`` of ``rank[1]``, which holds a part of it or, as of a norm, all of it:
    whichever gives the shapes of the model. None for what is no parameter."""
    first: Fused | None = None
    for cut in dict.fromkeys((Cut(None, *rank), Cut())):
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
    """Name to the file that has it; raises RecordError for a name that two files have."""
    homes: dict[str, str] = {}
    for name, home in names:
        if name in homes:
            raise RecordError(
                f"{path}: {shown(name)} is there twice, in {homes[name]} and in {home}; keep the files of one checkpoint there"
            )
        homes[name] = home
    return homes
