"""A framework's parameters, joined from canonical tensors.

A table may have several names for a canonical tensor, for a framework builds a layer in several ways. The wanted way goes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial

import numpy as np

from align_hooks.checkpoints.checkpoint import Checkpoint, LazyTensor
from align_hooks.checkpoints.kinds import KINDS
from align_hooks.errors import AlignHooksError, RefusedRun, shown
from align_hooks.names.blocks import PADDING, Dims
from align_hooks.names.fused import Fused
from align_hooks.names.table import NameTable, Rule, numbers_in, pattern_of
from align_hooks.record.format.layout import Array

NORM_WITHIN = ".layer_norm_weight"
"""Suffix of a norm that Transformer Engine keeps within the linear layer behind it."""


def padded(checkpoint: Checkpoint, given: Mapping[str, LazyTensor], rows: int | None) -> tuple[Mapping[str, LazyTensor], int, list[str]]:
    """Return the ``given`` tensors, padded to ``rows`` of a vocabulary; the number of rows; and the names of the padded tensors.

    :raises AlignHooksError: there are more rows, or there is other padding.
    """
    tensors, filled, own = dict(given), [], 0
    for name in (checkpoint.model.family.embedding, checkpoint.model.family.output):
        if name not in given:
            continue
        has = tensors[name].shape[0] + (tensors[name + PADDING].shape[0] if name + PADDING in tensors else 0)
        own = max(own, has)
        if rows is not None and rows != has:
            if name + PADDING in tensors or rows < has:
                why = f"{name} has {has} rows, padding and all; a vocabulary of {rows} rows cannot be made of it"
                raise AlignHooksError(f"{checkpoint.path}: {why}")
            shape, kind = (rows - has, *tensors[name].shape[1:]), tensors[name].kind
            tensors[name + PADDING] = LazyTensor(shape, kind, partial(np.zeros, shape, KINDS[kind]))
            filled.append(name)
    return tensors, rows or own, filled


def parameters(
    checkpoint: Checkpoint, tensors: Mapping[str, LazyTensor], rows: int, table: NameTable, first: Callable[[Rule], bool]
) -> dict[str, LazyTensor]:
    """Return a framework's parameters that hold all tensors, in the tensors' order; rules of which ``first`` is true win.

    :raises AlignHooksError: the framework has no parameter for a tensor, or the parts of a parameter differ in type.
    """
    dims, rules = checkpoint.model.dims(rows), sorted(table.rules, key=lambda rule: not first(rule))
    fitting = [fused for rule in rules for fused in _fitting(rule, table, tensors, dims)]
    there = {fused.native for fused in fitting}
    left = dict.fromkeys(tensors)
    place = {name: index for index, name in enumerate(tensors)}
    made: list[tuple[int, str, LazyTensor]] = []
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
        parameter = LazyTensor(fused.shape, kinds.pop(), partial(_join, fused, tensors))
        made.append((min(place[name] for name in fused.pieces), fused.native, parameter))
    if left:
        raise AlignHooksError(f"{shown(next(iter(left)))} has no parameter in {table.framework}; only {table.model} can be written for it")
    return {native: parameter for _, native, parameter in sorted(made, key=lambda one: one[0])}


def _join(fused: Fused, tensors: Mapping[str, LazyTensor]) -> Array:
    return fused.join({name: tensors[name].read() for name in fused.pieces})


def _fitting(rule: Rule, table: NameTable, tensors: Mapping[str, LazyTensor], dims: Dims) -> Iterator[Fused]:
    """Yield the parameters that a rule joins from the tensors, each in the shape whose pieces have the tensors' shapes."""
    pattern = pattern_of(rule.canonical[0])
    seen: set[str] = set()
    for name, tensor in tensors.items():
        numbers = numbers_in(name, pattern)
        if numbers is None or numbers.get("layer", -1) >= dims.layers or numbers.get("after", dims.layers) < dims.layers:
            continue
        native = rule.native.format(**numbers, mtp=numbers.get("after", dims.layers) - dims.layers)
        if native in seen:
            continue
        seen.add(native)
        names = [*(text.format(**numbers) for text in rule.canonical), name + PADDING]
        rows = sum(tensors[one].shape[0] for one in names if one in tensors)
        stacked, of_experts = (rows, *tensor.shape[1:]), (dims.experts * tensor.shape[-1], rows)  # each expert's, transposed
        for shape in (stacked, of_experts) if dims.experts and len(tensor.shape) == 2 else (stacked,):
            with suppress(RefusedRun):
                fused = table.fused(native, shape, dims)
                parts = [] if fused is None else [part for part in fused.parts if part.name in fused.pieces]
                if fused and parts and all(part.name in tensors and tensors[part.name].shape == part.shape for part in parts):
                    yield fused
                    break
