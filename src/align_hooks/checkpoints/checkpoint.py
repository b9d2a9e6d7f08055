"""A checkpoint of any form: canonical names to tensors on disk, and their model."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from align_hooks.checkpoints.kinds import KINDS, size_of
from align_hooks.checkpoints.model import ConfiguredModel, fits
from align_hooks.errors import RecordError, shown
from align_hooks.names.blocks import PADDING
from align_hooks.names.fused import Fused
from align_hooks.record.format.layout import Array


@dataclass(frozen=True, slots=True)
class LazyTensor:
    """A tensor whose numbers are read or made only when they are needed."""

    shape: tuple[int, ...]
    kind: str
    """The type, by its name in :data:`.kinds.KINDS`."""
    read: Callable[[], Array]
    """Returns the numbers, bf16 as bits."""

    @property
    def size(self) -> int:
        """Bytes of the numbers."""
        return math.prod(self.shape) * size_of(self.kind)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The weights of a model."""

    path: Path
    form: str
    """The form in words, for messages."""
    model: ConfiguredModel
    tensors: Mapping[str, LazyTensor]
    """By canonical name; padding of a vocabulary is a tensor of its own."""
    notes: Sequence[str] = ()
    """What a person should know of how the weights were read."""

    def __post_init__(self) -> None:
        """Raise RecordError unless the tensors are those of the model, each in its shape and none missing."""
        model, path, words = self.model, self.path, self.model.words
        for name, tensor in self.tensors.items():
            if name.endswith(PADDING):
                continue
            wanted = model.shape(name)
            if wanted is None:
                raise RecordError(f"{path}: {shown(name)} is no tensor of {words}; convert a checkpoint of the model that it says it is")
            if not fits(tensor.shape, wanted):
                sizes = ", ".join("?" if size is None else str(size) for size in wanted)
                raise RecordError(f"{path}: {name} is {list(tensor.shape)}, {words} has [{sizes}]; name the configuration of this model")
        if missing := next((name for name in model.required() if name not in self.tensors), None):
            raise RecordError(f"{path} lacks {missing}, which {words} has; copy the whole checkpoint")
        if odd := next((name for name, tensor in self.tensors.items() if tensor.kind not in KINDS), None):
            kind = shown(self.tensors[odd].kind)
            raise RecordError(f"{path}: {shown(odd)} is {kind}; only weights in {', '.join(KINDS)} can be converted")


@dataclass(frozen=True, slots=True)
class FrameworkTensor:
    """A framework's parameter on disk, or a rank's part of the parameter."""

    fused: Fused
    kind: str
    read: Callable[[], Array]
    where: str
    """The parameter's name in messages."""


def joined(shards: Iterable[FrameworkTensor], path: Path) -> dict[str, LazyTensor]:
    """Return canonical name to tensor of a framework's parameters; raises RecordError for overlapping, missing and repeated parts."""
    parameters: dict[tuple[str, ...], list[FrameworkTensor]] = defaultdict(list)
    for shard in shards:
        parameters[tuple(part.name for part in shard.fused.parts)].append(shard)
    last: dict[tuple[str, ...], dict[str, Array]] = {}  # the tensors of a parameter are usually read one after the other

    def read(key: tuple[str, ...], name: str) -> Array:
        if key not in last:
            last.clear()  # frees memory for the next
            last[key] = _pieces(parameters[key])
        return last[key][name]

    found: dict[str, LazyTensor] = {}
    for key, of_parameter in parameters.items():
        first, end = of_parameter[0], of_parameter[-1]
        if len({shard.kind for shard in of_parameter}) > 1:
            raise RecordError(f"{path}: {first.where} is {shown(first.kind)} and {end.where} {shown(end.kind)}; save it again")
        for index, part in enumerate(first.fused.parts):
            if part.name in found:
                raise RecordError(f"{path}: {part.name} is there twice, {first.where} holds it too; convert one whole model")
            parts = [shard.fused.parts[index] for shard in of_parameter]
            elements = sum(math.prod(stop - start for start, stop in one.box) for one in parts)
            if elements != math.prod(part.shape) or any(one.shape != part.shape for one in parts):
                why = f"overlap or are not all there ({', '.join(dict.fromkeys(shard.where for shard in of_parameter))})"
                raise RecordError(f"{path}: the parts of {part.name} {why}; copy every rank of one model")
            if elements:
                found[part.name] = LazyTensor(part.shape, first.kind, partial(read, key, part.name))
    return found


def _pieces(shards: Sequence[FrameworkTensor]) -> dict[str, Array]:
    if len(shards) == 1:
        return dict(shards[0].fused.split(shards[0].read()))
    joined = {part.name: np.empty(part.shape, KINDS[shards[0].kind]) for part in shards[0].fused.parts}
    for shard in shards:
        boxes = {part.name: tuple(slice(*bounds) for bounds in part.box) for part in shard.fused.parts}
        for name, piece in shard.fused.split(shard.read()):
            joined[name][boxes[name]] = piece
    return joined


def merged(files: Mapping[str, Mapping[str, LazyTensor]], path: Path) -> dict[str, LazyTensor]:
    """Return the tensors of several files, by file name; raises RecordError for a tensor in two files."""
    homes: dict[str, str] = {}
    for home, tensors in files.items():
        for name in tensors:
            if homes.setdefault(name, home) != home:
                where = f"{shown(name)} is there twice, in {homes[name]} and in {home}"
                raise RecordError(f"{path}: {where}; keep the files of one checkpoint there")
    return {name: files[home][name] for name, home in homes.items()}
