"""The values at each point of a step's forward and backward passes, as numbers that add up over micro-batches and ranks.

The rows of a sketch (:mod:`.format.sketch`) are tokens, by their places among all tokens of the step, and its columns are the
elements of the width. So every layout and every cut into micro-batches gives the same numbers. Tokens of an expert have
no order: their row signs are all +1, which leaves sums over tokens of each element.

Gradients are recorded as they flow. ``scale`` turns them into gradients of the reduced objective: 1 over the loss scale
and over the number of ranks whose gradients are averaged. With a per-token loss Megatron divides by the tokens later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from align_hooks.errors import RecordError
from align_hooks.names.points import GRADIENT, in_order, is_of_experts
from align_hooks.quantities import activations as files
from align_hooks.record.format.descriptions import ActivationHeader, Extent
from align_hooks.record.format.files import TensorFile
from align_hooks.record.format.layout import Array
from align_hooks.record.format.sequence import in_order as in_sequence
from align_hooks.record.format.sketch import COLUMNS, PROJECTIONS, ROWS, signs
from align_hooks.record.format.structured import in_header
from align_hooks.record.read.batch import interleaved
from align_hooks.record.read.run_rows import RunRows
from align_hooks.settings import PREFIX

COUNT, NOT_FINITE, LEAST, MOST, SUM, SQUARES = range(6)
"""Indices of a value's numbers: elements, those not finite, extremes of the finite ones, sum, squared sum; signed sums follow."""
NUMBERS = 6 + PROJECTIONS
Numbers = NDArray[np.float64]


def row_signs(tokens: Array | None, count: int = 0) -> NDArray[np.int8]:
    """Return the signs of tokens by their places in the step, ``[tokens, PROJECTIONS]``; all +1 for ``count`` tokens without an order."""
    return np.ones((count, PROJECTIONS), np.int8) if tokens is None else signs(ROWS, tokens)


def column_signs(columns: tuple[int, int]) -> NDArray[np.int8]:
    """Return the signs of the columns [start, stop) of a value's full width."""
    return signs(COLUMNS, np.arange(*columns))


def places(rows: range, positions: Array, length: int) -> Array:
    """Return the places in the step of tokens ``[position, row]``, position after position, as in Megatron's models."""
    where: Array = (np.asarray(rows)[None, :] * length + positions[:, None]).reshape(-1)
    return where


def measured(value: Array, rows: NDArray[np.int8], columns: NDArray[np.int8]) -> Numbers:
    """Return the numbers of a value ``[tokens, columns]``; the reference implementation."""
    wide = value.astype(np.float64)
    finite = np.isfinite(wide)
    numbers = np.empty(NUMBERS)
    numbers[COUNT], numbers[NOT_FINITE] = wide.size, wide.size - int(finite.sum())
    numbers[LEAST] = wide[finite].min() if finite.any() else np.inf
    numbers[MOST] = wide[finite].max() if finite.any() else -np.inf
    with np.errstate(invalid="ignore", over="ignore"):
        numbers[SUM], numbers[SQUARES] = wide.sum(), np.square(wide).sum()
        # tokens are added up first: products of two tall matrices take twice the time
        numbers[NUMBERS - PROJECTIONS :] = ((rows.T.astype(np.float64) @ wide) * columns.T).sum(axis=1)
    return numbers


def added(parts: Sequence[Numbers]) -> Numbers:
    """Return the numbers of several parts of one value."""
    stacked = np.stack(parts)
    total: Numbers = stacked.sum(axis=0)
    total[LEAST], total[MOST] = stacked[:, LEAST].min(), stacked[:, MOST].max()
    return total


class Summary(Struct, frozen=True):
    """The numbers of a value, or of a part of it."""

    elements: int
    not_finite: int
    """Elements that are NaN or infinite."""
    minimum: float
    """The smallest finite element."""
    maximum: float
    """The largest finite element."""
    mean: float
    norm: float
    """The Frobenius norm."""
    sketch: Numbers
    """fp64 ``[1 + PROJECTIONS]``: the squared sum, then the signed sums."""

    @property
    def sketched(self) -> bool:
        """Whether there is a sketch; a record made of another tool's statistics has none."""
        return self.not_finite > 0 or not bool(np.isnan(self.sketch[1:]).all())

    @classmethod
    def of(cls, numbers: Numbers, factor: float = 1.0) -> Summary:
        """Return the summary of recorded numbers, each element multiplied by a positive ``factor``."""
        count = int(numbers[COUNT])
        sketch = np.concatenate([[numbers[SQUARES] * factor**2], numbers[NUMBERS - PROJECTIONS :] * factor])
        mean = float(numbers[SUM] * factor / count) if count else 0.0
        least, most = float(numbers[LEAST] * factor), float(numbers[MOST] * factor)
        return cls(count, int(numbers[NOT_FINITE]), least, most, mean, float(np.sqrt(sketch[0])), sketch)


class RankActivations(Struct, frozen=True):
    """One rank's files of a step."""

    sums: TensorFile
    tensors: TensorFile | None
    """Full tensors; None where none were kept."""
    points: ActivationHeader
    """The header of ``sums``."""
    factor: float
    """The factor of gradients."""

    def extent(self, name: str) -> Extent:
        """Return the rank's part of a point's value."""
        return self.points.extents[self.points.extent_of[name.removesuffix(GRADIENT)]]

    def counts(self, name: str) -> bool:
        """Return whether the rank has a part of a point that is no copy."""
        return name in self.sums and self.extent(name).counted


@dataclass(frozen=True)
class Activations(Mapping[str, Summary]):
    """The points of a step in the order of a forward pass, each with the numbers of its value on all ranks.

    A gradient has the point's name and ``#gradient``, and is a gradient of the reduced objective.
    """

    parts: Mapping[int, Sequence[RankActivations]]
    """The parts of each data-parallel rank."""
    where: str
    """The beginning of errors: the run and the step."""
    names: tuple[str, ...]
    _sums: dict[str, dict[tuple[int, int], Numbers]] = field(default_factory=dict, compare=False)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, name: str) -> Summary:
        if name not in self.names:
            raise KeyError(name)
        return Summary.of(added(list(self._of(name).values())), self._factor(name))

    @property
    def points(self) -> list[str]:
        """The names of the points whose values are recorded, without those of gradients."""
        return [name for name in self.names if not name.endswith(GRADIENT)]

    @property
    def unseen(self) -> list[str]:
        """The names of the points that a rank was asked for and that no hook of it saw."""
        return list(dict.fromkeys(name for parts in self.parts.values() for part in parts for name in part.points.unseen))

    @property
    def size(self) -> tuple[int, int]:
        """Rows of the job's batch, and positions of a sequence."""
        rows = (max((sum(part.points.rows) for part in parts), default=0) for parts in self.parts.values())
        return sum(rows), next(iter(self.parts.values()))[0].points.length

    def width(self, name: str) -> int:
        """Return the width of a point's value."""
        return next(part.extent(name).width for parts in self.parts.values() for part in parts if part.counts(name))

    def by_micro_batch(self, name: str) -> dict[tuple[int, int], Summary]:
        """Return the numbers of each micro-batch and data-parallel rank."""
        return {place: Summary.of(numbers, self._factor(name)) for place, numbers in self._of(name).items()}

    def has_tensor(self, name: str) -> bool:
        """Return whether full values of a point were kept."""
        kept = [[part.tensors is not None and name in part.tensors for part in parts if part.counts(name)] for parts in self.parts.values()]
        return all(of_rank and all(of_rank) for of_rank in kept)

    def tensor(self, name: str) -> Array:
        """Return a point's value or gradient, fp32 ``[rows, sequence, width]``, rows as in a batch; raises RecordError for a lost part."""
        joined, rows = [], []
        for rank, parts in sorted(self.parts.items()):
            here = [part for part in parts if part.counts(name)]
            if not here:
                raise RecordError(f"{self.where}: no rank of data-parallel rank {rank} has {name}; copy every rank again")
            joined.append(self._whole(name, here))
            rows.append(here[0].points.rows)
        whole = interleaved(joined, rows)
        factor = self._factor(name)
        return whole if factor == 1.0 else (whole * np.float32(factor)).astype(np.float32)

    def _whole(self, name: str, parts: Sequence[RankActivations]) -> Array:
        """Return one data-parallel rank's rows of a value."""
        arrays: dict[tuple[tuple[int, int], ...], list[tuple[Extent, Array]]] = {}
        for part in parts:
            if part.tensors is None or name not in part.tensors:
                raise RecordError(f"{self.where}: {name} was not kept whole; record it with {PREFIX}ACTIVATIONS_TENSORS")
            extent = part.extent(name)
            array = part.tensors.read(name)
            if array.ndim != 3 or len(array) != sum(part.points.rows) or array.shape[2] != extent.columns[1] - extent.columns[0]:
                raise RecordError(f"{part.tensors.path}: {name} is {list(array.shape)}, which its header does not say; record it again")
            slices = tuple((start, stop) for start, stop in extent.slices or [[0, part.points.length]])
            arrays.setdefault(slices, []).append((extent, array))
        strips = [self._across(name, of_slices) for of_slices in arrays.values()]
        return in_sequence(strips, [[list(bounds) for bounds in slices] for slices in arrays], f"{self.where}: {name}")

    def _across(self, name: str, parts: Sequence[tuple[Extent, Array]]) -> Array:
        """Join the parts of a value along the width."""
        ordered = sorted(parts, key=lambda part: part[0].columns[0])
        starts = [extent.columns[0] for extent, _ in ordered]
        stops = [extent.columns[1] for extent, _ in ordered]
        if starts != [0, *stops[:-1]] or stops[-1] != ordered[0][0].width:
            raise RecordError(f"{self.where}: {name} has columns on no rank, or on two; copy every rank again")
        return np.concatenate([array for _, array in ordered], axis=2)

    def _factor(self, name: str) -> float:
        if not name.endswith(GRADIENT):
            return 1.0
        return next(part.factor for parts in self.parts.values() for part in parts if part.counts(name))

    def _of(self, name: str) -> dict[tuple[int, int], Numbers]:
        """Return the numbers by micro-batch and data-parallel rank, each element counted once; raises RecordError for missing ones."""
        if name in self._sums:
            return self._sums[name]
        sums: dict[tuple[int, int], list[Numbers]] = {}
        for rank, parts in self.parts.items():
            for part in parts:
                if not part.counts(name):
                    continue
                numbers = part.sums.stored(name)
                if numbers.shape != (len(part.points.rows), NUMBERS):
                    raise RecordError(f"{part.sums.path}: {name} is {list(numbers.shape)}; record the step again")
                if not np.isfinite(numbers[:, [COUNT, NOT_FINITE]]).all():  # as of operators that a CUDA graph captured
                    raise RecordError(f"{part.sums.path}: {name} has NaN or infinity for a number of elements; record the step again")
                for micro_batch, row in enumerate(numbers):
                    sums.setdefault((micro_batch, rank), []).append(row)
        whole = {place: added(rows) for place, rows in sorted(sums.items())}
        if not is_of_experts(name):
            self._refuse_missing(name, whole)
        self._sums[name] = whole
        return whole

    def _refuse_missing(self, name: str, whole: Mapping[tuple[int, int], Numbers]) -> None:
        width = self.width(name)
        for (micro_batch, rank), numbers in whole.items():
            points = next(part.points for part in self.parts[rank] if part.counts(name))
            expected = points.rows[micro_batch] * points.length * width
            if int(numbers[COUNT]) != expected:
                raise RecordError(
                    f"{self.where}: {name} has {int(numbers[COUNT])} elements of micro-batch {micro_batch} on all ranks, where there are "
                    f"{expected}; copy every rank again"
                )


def read_activations(run: RunRows, step: int) -> Activations:
    """Return the values of ``step`` on all ranks, from headers only; raises RecordError for an incomplete file."""
    parts: dict[int, list[RankActivations]] = {}
    row = run.row(step)
    tokens = float(row.valid_tokens or 1.0) if row is not None else 1.0
    for rank, manifest in sorted(run.manifests.items()):
        path, digest = run.file(rank, step, files.SUMS)
        sums = TensorFile(path, digest, types=("F64",))
        points = in_header(ActivationHeader, sums, "its points", "record it again")
        if any(not 0 <= index < len(points.extents) for index in points.extent_of.values()):
            raise RecordError(f"{path}: its header names extents that it does not have; record the step again")
        tensors = TensorFile(*run.file(rank, step, files.TENSORS)) if run.has_file(rank, step, files.TENSORS) else None
        if strange := [name for name in sums if name.removesuffix(GRADIENT) not in points.extent_of]:
            raise RecordError(f"{path}: the header does not say what part of {strange[0]} it holds; record the step again")
        factor = points.scale / (tokens if points.by_tokens else 1.0)
        parts.setdefault(manifest.place.get("dp", 0), []).append(RankActivations(sums, tensors, points, factor))
    if not parts:
        raise RecordError(f"{run.path} was made by hand and holds no activations; record the run with {PREFIX}ACTIVATIONS={step}")
    names = {name for of_rank in parts.values() for part in of_rank for name in part.sums if part.counts(name)}
    values = in_order(name for name in names if not name.endswith(GRADIENT))
    gradients = in_order(name.removesuffix(GRADIENT) for name in names if name.endswith(GRADIENT))
    return Activations(parts, f"{run.path}: step {step}", (*values, *(name + GRADIENT for name in gradients)))
