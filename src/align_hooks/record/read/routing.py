"""The experts of each token of a step, joined from all ranks.

Data-parallel ranks (those of expert parallelism too) route different rows, context- and sequence-parallel ranks
different positions, pipeline stages different layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from align_hooks.errors import RecordError
from align_hooks.record.format import layout
from align_hooks.record.format.descriptions import Routed
from align_hooks.record.format.files import TensorFile
from align_hooks.record.format.layout import Array
from align_hooks.record.format.sequence import in_order
from align_hooks.record.format.structured import in_header
from align_hooks.record.read.batch import interleaved
from align_hooks.record.read.run_rows import RunRows
from align_hooks.settings import PREFIX

NONE = -1
"""The padding of a token with fewer experts than others."""
DIGITS = 20
"""Digits that no layer's number has: names come from files, and Python refuses to parse thousands of digits."""


@dataclass(frozen=True, slots=True)
class RankRouting:
    """One rank's file and its header."""

    file: TensorFile
    routed: Routed


@dataclass(frozen=True, slots=True)
class Routing(Mapping[str, Array]):
    """The name of each layer's router, in the order of the layers, to the experts of each token, read on access.

    Experts are int16 ``[rows, sequence, experts a token]``, ascending, padded by :data:`NONE`; rows are as in a batch.
    """

    parts: Mapping[int, Sequence[RankRouting]]
    """The parts of each data-parallel rank."""
    names: tuple[str, ...]
    where: str

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, name: str) -> Array:
        """Return the experts of one layer; raises RecordError where a rank's part is missing."""
        if name not in self.names:
            raise KeyError(name)
        joined, rows = [], []
        for _, parts in sorted(self.parts.items()):
            here = [part for part in parts if name in part.file]
            joined.append(self._in_sequence(name, here))
            rows.append(here[0].routed.rows)
        if len({array.shape[1:] for array in joined}) > 1:
            raise RecordError(f"{self.where}: {name} has {len(joined)} parts of different shapes; copy every rank again")
        return interleaved(joined, rows)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the experts a token and the tokens of a layer's router, from headers only."""
        files = [part.file for parts in self.parts.values() for part in parts if name in part.file]
        return files[0].shape(name)[2], sum(file.shape(name)[0] * file.shape(name)[1] for file in files)

    def _in_sequence(self, name: str, parts: Sequence[RankRouting]) -> Array:
        """Return the experts of one data-parallel rank's rows."""
        if not parts:
            raise RecordError(f"{self.where}: no rank of a data-parallel rank holds {name}; copy every rank again")
        arrays = [part.file.stored(name) for part in parts]
        if any(array.ndim != 3 or len(array) != sum(part.routed.rows) for array, part in zip(arrays, parts, strict=True)):
            raise RecordError(f"{self.where}: {name} is not of the rows that its file says; record the step again")
        if len(parts) == 1 and parts[0].routed.slices is None:
            return arrays[0]
        slices = [part.routed.slices or [[0, array.shape[1]]] for array, part in zip(arrays, parts, strict=True)]
        if len({(array.shape[0], array.shape[2], part.routed.rows) for array, part in zip(arrays, parts, strict=True)}) > 1:
            raise RecordError(f"{self.where}: {name} has parts of other rows than the others; record the step again")
        return in_order(arrays, slices, f"{self.where}: {name}")


def read_routing(run: RunRows, step: int) -> Routing:
    """Return the routing of ``step`` on all ranks, from headers only."""
    parts: dict[int, list[RankRouting]] = {}
    for rank, manifest in sorted(run.manifests.items()):
        path, digest = run.file(rank, step, layout.CHOICES)
        file = TensorFile(path, digest, types=("I16",))
        routed = in_header(Routed, file, "rows and positions", "record the step again")  # an empty file has none
        parts.setdefault(manifest.place.get("dp", 0), []).append(RankRouting(file, routed))
    if not parts:
        raise RecordError(f"{run.path} was made by hand and holds no routing; record the run with {PREFIX}ROUTING={step}")
    names = {name for of_rank in parts.values() for part in of_rank for name in part.file}
    if wrong := [name for of_rank in parts.values() for part in of_rank for name in part.file if len(part.file.shape(name)) != 3]:
        raise RecordError(f"{run.path}: step {step}: {wrong[0]} holds no experts of tokens; record the step again")
    return Routing(parts, tuple(sorted(names, key=in_layers)), f"{run.path}: step {step}")


def counts_of(run: RunRows, step: int) -> dict[str, Array]:
    """Return each layer's tokens by expert on all ranks; raises RecordError where ranks differ in the number of experts."""
    total: dict[str, Array] = {}
    for description in run.batch_descriptions(step).values():
        for name, counts in description.experts.items():
            if name in total and len(total[name]) != len(counts):
                raise RecordError(f"{run.path}: step {step}: ranks count the tokens of different experts in {name}; copy every rank again")
            total[name] = total.get(name, np.zeros(len(counts), np.int64)) + np.asarray(counts, np.int64)
    return {name: total[name] for name in sorted(total, key=in_layers)}


def in_layers(name: str) -> list[tuple[int, str]]:
    """Return a sort key by the numbers in a name."""
    return [(int(part), "") if part.isdecimal() and len(part) < DIGITS else (-1, part) for part in name.split(".")]
