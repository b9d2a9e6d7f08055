"""A framework's parameters, joined from canonical tensors.

A table may have several names for a canonical tensor, for a framework builds a layer in several ways. The wanted way goes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from align_hooks.checkpoints.checkpoint import Checkpoint, TensorOnDisk
from align_hooks.checkpoints.kinds import KINDS
from align_hooks.errors import AlignHooksError, RefusedRun, shown
from align_hooks.names.blocks import PADDING, Dims
from align_hooks.names.fused import Fused
from align_hooks.names.table import NameTable, Rule, numbers_in, pattern_of
from align_hooks.record.format.layout import Array

NORM_WITHIN = ".layer_norm_weight"
"""Suffix of a norm that Transformer Engine keeps within the linear layer behind it."""


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """A framework's parameter, and the canonical tensors of which it is joined."""

    fused: Fused
    kind: str
    tensors: Mapping[str, TensorOnDisk]

    def join(self) -> Array:
        """Return the parameter's numbers, in the type of storage."""
        return self.fused.join({name: self.tensors[name].read() for name in self.fused.pieces})


def padded(
    checkpoint: Checkpoint, given: Mapping[str, TensorOnDisk], rows: int | None
) -> tuple[Mapping[str, TensorOnDisk], int, list[str]]:
    """Return the ``given`` tensors, padded to ``rows`` of a vocabulary; the number of rows; and the names of the padded tensors.

    :raises AlignHooksError: there are more rows, or there is other padding.
    """
    ends = [name for name in (checkpoint.model.family.embedding, checkpoint.model.family.output) if name in given]
    tensors, filled, own = dict(given), [], 0
    for name in ends:
        has = tensors[name].shape[0] + (tensors[name + PADDING].shape[0] if name + PADDING in tensors else 0)
        own = max(own, has)
        if rows is not None and rows != has:
            if name + PADDING in tensors or rows < has:
                why = f"{name} has {has} rows, padding and all; a vocabulary of {rows} rows cannot be made of it"
                raise AlignHooksError(f"{checkpoint.path}: {why}")
            shape, kind = (rows - has, *tensors[name].shape[1:]), tensors[name].kind
            tensors[name + PADDING] = TensorOnDisk(shape, kind, partial(np.zeros, shape, KINDS[kind]))
            filled.append(name)
    return tensors, rows or own, filled


def plans(
    checkpoint: Checkpoint, tensors: Mapping[str, TensorOnDisk], rows: int, table: NameTable, first: Callable[[Rule], bool]
) -> list[JoinPlan]:
    """Return a framework's parameters that hold all tensors, in the tensors' order; rules of which ``first`` is true win.

    :raises AlignHooksError: the framework has no parameter for a tensor, or the parts of a parameter differ in type.
    """
    dims, made = checkpoint.model.dims(rows), list[JoinPlan]()
    fitting = [
        fused
        for rule in sorted(table.rules, key=lambda rule: not first(rule))
        for native, shapes in _natives(rule, tensors, dims, checkpoint.model.layers)
        if (fused := _fitting(table, native, shapes, dims, tensors)) is not None
    ]
    there = {fused.native for fused in fitting}
    left = dict.fromkeys(tensors)
    for fused in fitting:
        linear, is_norm, _ = fused.native.rpartition(NORM_WITHIN)  # which exists only with its linear layer
        if not left.keys() >= set(fused.pieces) or (is_norm and f"{linear}.weight" not in there):
            continue
        kinds = {tensors[name].kind for name in fused.pieces}
        if len(kinds) > 1:
            words = " and ".join(sorted(kinds))
            raise AlignHooksError(f"{checkpoint.path}: the parts of {fused.native} are {words}; choose one type with --dtype")
        for name in fused.pieces:
            del left[name]
        made.append(JoinPlan(fused, kinds.pop(), tensors))
    if left:
        raise AlignHooksError(f"{shown(next(iter(left)))} has no parameter in {table.framework}; only {table.model} can be written for it")
    place = {name: index for index, name in enumerate(tensors)}
    return sorted(made, key=lambda plan: min(place[name] for name in plan.fused.pieces))


def _natives(rule: Rule, tensors: Mapping[str, TensorOnDisk], dims: Dims, layers: int) -> Iterator[tuple[str, list[tuple[int, ...]]]]:
    """Yield the framework's names that a rule gives to the tensors, each with the shapes that the parameter may have."""
    pattern = pattern_of(rule.canonical[0])
    seen: set[str] = set()
    for name, tensor in tensors.items():
        numbers = numbers_in(name, pattern)
        if numbers is None or numbers.get("layer", -1) >= layers or numbers.get("after", layers) < layers:
            continue
        native = rule.native.format(**numbers, mtp=numbers.get("after", layers) - layers)
        if native not in seen:
            seen.add(native)
            pieces = [tensors[other] for other in (text.format(**numbers) for text in rule.canonical) if other in tensors]
            padding = [tensors[name + PADDING]] if name + PADDING in tensors else []
            yield native, _shapes([piece.shape for piece in (*pieces, *padding)], getattr(dims, "experts", 0), tensor)


def _shapes(pieces: list[tuple[int, ...]], experts: int, first: TensorOnDisk) -> list[tuple[int, ...]]:
    """Return the shapes that a parameter of some pieces may have: the pieces stacked, or each expert's, transposed."""
    rows = sum(shape[0] for shape in pieces)
    transposed = [(experts * first.shape[1], rows)] if experts and len(first.shape) == 2 else []
    return [(rows, *first.shape[1:]), *transposed]


def _fitting(table: NameTable, native: str, shapes: list[tuple[int, ...]], dims: Dims, tensors: Mapping[str, TensorOnDisk]) -> Fused | None:
    """Return the parameter in the shape whose pieces have the tensors' shapes; None where no shape fits."""
    for shape in shapes:
        try:
            fused = table.fused(native, shape, dims)
        except RefusedRun:
            continue
        parts = [] if fused is None else [part for part in fused.parts if part.name in fused.pieces]
        if parts and all(part.name in tensors and tensors[part.name].shape == part.shape for part in parts):
            return fused
    return None
