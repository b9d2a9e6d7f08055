"""A checkpoint of any form: canonical names to tensors on disk, and their model.

A bf16 number is kept as its sixteen bits, for numpy has no bf16. A copy keeps every bit, of a NaN too. Widening is exact. Narrowing rounds
once, to nearest, ties to even: from fp64 to bf16 too, where rounding to fp32 first would round twice.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from msgspec import Struct

from align_hooks.checkpoints.model import ConfiguredModel, fits
from align_hooks.errors import RecordError, shown
from align_hooks.names.blocks import PADDING
from align_hooks.names.fused import Fused
from align_hooks.record.format.layout import Array
from align_hooks.record.format.stored_tensor import FLOATING

KINDS = FLOATING
"""Floating type to numpy's type of its bytes."""
NAMED = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
"""Name in torch and MindSpore to type, for the types of a destination."""
TORCH_NAMES = {"F64": "float64", **{kind: name for name, kind in NAMED.items()}}
BITS = {"F64": (11, 52), "F32": (8, 23), "F16": (5, 10), "BF16": (8, 7)}
"""Bits of exponent and of mantissa."""
BLOCK = 1 << 14
"""Numbers that are rounded at once, which bounds the memory for rounding."""


class LazyTensor(Struct, frozen=True):
    """A tensor whose numbers are read or made only when they are needed."""

    shape: tuple[int, ...]
    kind: str
    """The type, by its name in :data:`KINDS`."""
    read: Callable[[], Array]
    """Returns the numbers, bf16 as bits."""

    @property
    def size(self) -> int:
        """Bytes of the numbers."""
        return math.prod(self.shape) * size_of(self.kind)


class Checkpoint(Struct, frozen=True):
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


class FrameworkTensor(Struct, frozen=True):
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


def size_of(kind: str) -> int:
    """Return the bytes of a number."""
    return np.dtype(KINDS[kind]).itemsize


def narrows(kind: str, to: str) -> bool:
    """Return whether some numbers of one type are none of the other."""
    return any(before > after for before, after in zip(BITS[kind], BITS[to], strict=True))


def cast(array: Array, kind: str, to: str) -> tuple[Array, int]:
    """Return an array in another type, and the number of finite elements that became infinite."""
    if kind == to:
        return array, 0
    flat, result = np.ascontiguousarray(array).reshape(-1), np.empty(array.size, KINDS[to])
    lost = 0
    for block in (slice(start, start + BLOCK) for start in range(0, array.size, BLOCK)):
        result[block] = _cast(flat[block], kind, to)
        if narrows(kind, to):
            lost += _infinite(result[block], to) - _infinite(flat[block], kind)
    return result.reshape(array.shape), lost


def _cast(numbers: Array, kind: str, to: str) -> Array:
    if kind == "BF16":
        numbers = (numbers.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        if to != "BF16":
            return numbers.astype(KINDS[to])
        near = numbers.astype(np.float32)
    bits, is_nan = near.view(np.uint32), np.isnan(numbers)
    if numbers.dtype == np.float64:
        # rounded to odd first (cut towards zero, the last bit set if inexact), so that rounding again is rounding once
        cut = bits - (np.abs(near.astype(np.float64)) > np.abs(numbers)).astype(np.uint32)
        inexact = cut.view(np.float32).astype(np.float64) != numbers
        bits = np.where(is_nan, bits, cut | inexact.astype(np.uint32))
    rounded = (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16
    quiet = bits >> 16 | 0x40  # the upper half of a NaN may be an infinity's
    return np.where(is_nan, quiet, rounded).astype(KINDS["BF16"])


def _infinite(numbers: Array, kind: str) -> int:
    return int(np.count_nonzero(numbers & 0x7FFF == 0x7F80 if kind == "BF16" else np.isinf(numbers)))
