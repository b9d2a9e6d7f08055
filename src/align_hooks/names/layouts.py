"""Fused and padded parameters as blocks of rows.

Every layout that the two frameworks use is one shape: the first axis is ``repeats`` times a run of rows of the first
piece, then of the second, and so on. Megatron's ``linear_qkv`` repeats (queries of a group, key, value) once a query
group; ``[gate; up]`` has one repeat; rows interleaved one by one have as many repeats as rows; a padded vocabulary is
one repeat of (vocabulary, padding). So one mechanism splits and joins them all, exactly and invertibly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from align_hooks.errors import RefusedRun

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Dims:
    """The sizes of a dense decoder that its layouts depend on. ``vocabulary`` excludes padding, ``padded`` includes it."""

    heads: int
    groups: int
    head_dim: int
    ffn: int
    vocabulary: int
    padded: int


@dataclass(frozen=True, slots=True)
class Blocks:
    """``repeats`` × (``rows[0]`` rows of piece 0, ``rows[1]`` of piece 1, …) along the first axis."""

    repeats: int
    rows: tuple[int, ...]

    @property
    def total(self) -> int:
        """Length of the first axis of the fused tensor."""
        return self.repeats * sum(self.rows)

    def split(self, tensor: Any) -> list[Any]:
        """The pieces of a fused tensor, whole pieces in order; numpy in, numpy out, and torch tensors likewise (views where possible)."""
        if len(self.rows) == 1:
            return [tensor]
        tail = tuple(tensor.shape[1:])
        runs = tensor.reshape((self.repeats, sum(self.rows), *tail))
        starts = np.cumsum((0, *self.rows)).tolist()
        return [runs[:, start : start + rows].reshape((self.repeats * rows, *tail)) for start, rows in zip(starts, self.rows, strict=False)]

    def join(self, pieces: Sequence[Array]) -> Array:
        """The inverse of :meth:`split`, for numpy arrays."""
        if len(self.rows) == 1:
            return pieces[0]
        tail = pieces[0].shape[1:]
        runs = [piece.reshape((self.repeats, rows, *tail)) for piece, rows in zip(pieces, self.rows, strict=True)]
        whole: Array = np.concatenate(runs, axis=1).reshape((self.total, *tail))
        return whole


def blocks(layout: str, dims: Dims, rows: int) -> Blocks:
    """The blocks of a named layout for a parameter whose first axis has ``rows`` rows; raises RefusedRun where they do not fit."""
    queries = dims.heads // dims.groups * dims.head_dim
    known = {
        "whole": Blocks(1, (rows,)),
        "qkv_per_group": Blocks(dims.groups, (queries, dims.head_dim, dims.head_dim)),
        "gate_then_up": Blocks(1, (dims.ffn, dims.ffn)),
        "gate_up_by_row": Blocks(dims.ffn, (1, 1)),
        "vocabulary": Blocks(1, (dims.vocabulary, dims.padded - dims.vocabulary)) if dims.padded > dims.vocabulary else Blocks(1, (rows,)),
    }[layout]
    if known.total != rows:
        raise RefusedRun(f"a parameter of {rows} rows does not have the layout {layout} of {dims}: that has {known.total}")
    return known
