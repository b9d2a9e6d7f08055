"""A framework's parameters, made of canonical tensors: which there are, and what each holds.

A table may have several names for a canonical tensor, for a framework builds a layer in several ways. The way that is wanted goes first.
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
"""The end of the name of a norm that Transformer Engine keeps within the linear layer behind it; without that layer there is none."""


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """A framework's parameter, and the canonical tensors that it is joined from."""

    fused: Fused
    kind: str
    tensors: Mapping[str, TensorOnDisk]

    def join(self) -> Array:
        """Its numbers, as they are stored."""
        return self.fused.join({name: self.tensors[name].read() for name in self.fused.pieces})


def padded(
    checkpoint: Checkpoint, given: Mapping[str, TensorOnDisk], rows: int | None
) -> tuple[Mapping[str, TensorOnDisk], int, list[str]]:
    """The tensors of a checkpoint, as they are ``given``, with rows of padding up to ``rows`` of a vocabulary; the number of rows; and the
    names of what was filled up. Raises AlignHooksError where there are more rows."""
    ends = [name for name in (checkpoint.model.family.embedding, checkpoint.model.family.output) if name in given]
    tensors, made, own = dict(given), [], 0
    for name in ends:
        has = tensors[name].shape[0] + (tensors[name + PADDING].shape[0] if name + PADDING in tensors else 0)
        own = max(own, has)
        if rows is not None and rows != has:
            if name + PADDING in tensors or rows < has:
                raise AlignHooksError(
                    f"{checkpoint.path}: {name} has {has} rows, padding and all; a vocabulary of {rows} rows cannot be made of it"
                )
            shape, kind = (rows - has, *tensors[name].shape[1:]), tensors[name].kind
            tensors[name + PADDING] = TensorOnDisk(shape, kind, partial(np.zeros, shape, KINDS[kind]))
            made.append(name)
    return tensors, rows or own, made


def plans(
    checkpoint: Checkpoint, tensors: Mapping[str, TensorOnDisk], rows: int, table: NameTable, first: Callable[[Rule], bool]
) -> list[JoinPlan]:
    """A framework's parameters that hold all of some tensors, in the order of these, by the rules of which ``first`` is true where there
    are such. Raises AlignHooksError for a tensor that the framework has no parameter for."""
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
        linear, is_norm, _ = fused.native.rpartition(NORM_WITHIN)
        if not all(name in left for name in fused.pieces) or (is_norm and f"{linear}.weight" not in there):
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
    """The framework's names that a rule gives for the tensors that are there, each with the shapes that its parameter may have."""
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
    """The shapes that a parameter of these pieces may have: one below the other, or each expert's, transposed."""
    rows = sum(shape[0] for shape in pieces)
    below = [(rows, *first.shape[1:])]
    return [*below, (experts * first.shape[1], rows)] if experts and len(first.shape) == 2 else below


def _fitting(table: NameTable, native: str, shapes: list[tuple[int, ...]], dims: Dims, tensors: Mapping[str, TensorOnDisk]) -> Fused | None:
    """The parameter, in the shape that takes the tensors as they are."""
    for shape in shapes:
        try:
            fused = table.fused(native, shape, dims)
        except RefusedRun:
            continue
        parts = [] if fused is None else [part for part in fused.parts if part.name in fused.pieces]
        if parts and all(part.name in tensors and tensors[part.name].shape == part.shape for part in parts):
            return fused
    return None
