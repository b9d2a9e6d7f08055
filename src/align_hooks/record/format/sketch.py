"""The definition of a sketch, for both sides and the reader: 16 signed sums that estimate the distance of two tensors.

A norm ignores positions: exchanged rows, a transposition or a flipped sign leave a norm unchanged. The signed sums of a
difference are the difference of the sums, and the mean of their squares is, on average over signs, the squared norm
of the difference. So the sketches of two runs give their distance, although neither tensor is stored.

Each element goes into one sum, with one sign, times the root of ``PROJECTIONS`` (CountSketch; Charikar, Chen and
Farach-Colton 2002). The estimate scatters as if each sum took all elements under signs of its own (Alon, Matias and
Szegedy 1996), at a sixteenth of the arithmetic: 0.6 to 1.5 times the true distance in 99 of 100 cases, 0.4 to 1.9
times in the worst case, an outer product.

A tensor is a matrix: the first axis is rows, all others are columns, and a vector is one row. Element ``(i, j)`` goes
into sum ``(i + j) mod 16``, so that neither a row nor a column falls into one sum. Its sign is a row's times a
column's; columns have 16 sets of signs, which rows use in turn. Sums of shards add up, whatever the layout.

Differences in a few neighbouring elements can cancel (a block of 2 × 2 with an unchanged norm in 1 case of 100), so
equal sketches are no proof. Sums are fp64 and equal within 1e-12 for equal tensors; MindSpore's graph adds up a
gradient in fp32 first, within 1e-6 of the norm. The root of the squared sum (:mod:`.norms`) is within 3e-7.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from align_hooks.record.format.layout import Array
from align_hooks.record.format.shard import Shard

DEFINITION = 2
"""Its number in a record. Sketches of two definitions are not compared."""
PROJECTIONS = 16
TURNS = PROJECTIONS
"""The period, in rows, of the signs of columns."""
BLOCK = 1 << 18
"""Elements that are converted to fp64 at a time: 2 MB, which stay in a cache."""
AT_ONCE = 1 << 16
"""Positions whose signs are computed at a time."""
ROWS, COLUMNS = np.uint64(0x243F6A8885A308D3), np.uint64(0x13198A2E03707344)
"""The seeds of the signs of rows and of columns: digits of pi. Other seeds are another definition."""
SCALE = math.sqrt(PROJECTIONS)
STORED = np.dtype("<f8")
BYTES = (1 + PROJECTIONS) * STORED.itemsize
"""Of a stored sketch."""


def signs(seed: np.uint64, places: Array) -> NDArray[np.int8]:
    """Return +1 or -1, ``[places, PROJECTIONS]``: the low bits of splitmix64 (Steele, Lea, Flood 2014)."""
    signs = np.empty((len(places), PROJECTIONS), np.int8)
    for start in range(0, len(places), AT_ONCE):
        signs[start : start + AT_ONCE] = _signs(seed, places[start : start + AT_ONCE])
    return signs


def _signs(seed: np.uint64, places: Array) -> NDArray[np.int8]:
    with np.errstate(over="ignore"):
        mixed = seed + (places.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    bits = (mixed[:, None] >> np.arange(PROJECTIONS, dtype=np.uint64)) & np.uint64(1)
    signed: NDArray[np.int8] = 1 - 2 * bits.astype(np.int8)
    return signed


def row_signs(rows: Array) -> NDArray[np.int8]:
    """Return the signs of rows, ``[rows]``."""
    return signs(ROWS, rows)[:, 0]


def column_signs(columns: Array) -> NDArray[np.int8]:
    """Return the signs of columns, ``[TURNS, columns]``, for each remainder of a row's number."""
    return np.ascontiguousarray(signs(COLUMNS, columns).T)


class Slab(Struct, frozen=True):
    """The position of a rank's elements in the matrix of a sketch."""

    columns: NDArray[np.int64]
    """The rank's columns of each row, in its order."""
    start: int
    """The first element, counted from row 0 in a matrix of these columns."""
    stop: int
    """The end of the elements, counted alike."""

    @property
    def turn(self) -> int:
        """The number of elements in ``TURNS`` rows."""
        return TURNS * len(self.columns)

    @property
    def is_in_lanes(self) -> bool:
        """Whether the columns are contiguous and aligned to ``PROJECTIONS``."""
        width, first = len(self.columns), int(self.columns[0])
        return width % PROJECTIONS == 0 and first % PROJECTIONS == 0 and int(self.columns[-1]) == first + width - 1


def slab_of(shard: Shard) -> Slab:
    """Return the position of a rank's part, which is not empty, in its tensor."""
    shape, box = (shard.shape, shard.box) if shard.shape else ((1,), ((0, 1),))
    if len(shape) == 1:
        shape, box = (1, *shape), ((0, 1), *box)
    (first_row, _), *tail = box
    sizes = shape[1:]
    columns = np.arange(math.prod(sizes)).reshape(sizes)[tuple(slice(*bounds) for bounds in tail)].reshape(-1)
    first, last = shard.flat or (0, shard.elements)
    before = first_row * len(columns)
    return Slab(columns, before + first, before + last)


def blocks(slab: Slab, size: int = BLOCK) -> Iterator[tuple[slice, int]]:
    """Yield a rank's elements in blocks of about ``size``, aligned to ``TURNS`` rows, and each block's first row."""
    turns = max(size // slab.turn, 1)
    for turn in range(slab.start // slab.turn, -(-slab.stop // slab.turn), turns):
        low, high = max(slab.start, turn * slab.turn), min(slab.stop, (turn + turns) * slab.turn)
        yield slice(low - slab.start, high - slab.start), turn * TURNS


def sketch(piece: Array, shard: Shard) -> NDArray[np.float64]:
    """Return the squared sum, then the signed sums, fp64 ``[1 + PROJECTIONS]``; the reference implementation."""
    total, flat = np.zeros(1 + PROJECTIONS), piece.reshape(-1)
    if not flat.size:
        return total
    slab = slab_of(shard)
    of_columns, lanes = column_signs(slab.columns), np.zeros((TURNS, PROJECTIONS))
    order = np.argsort(slab.columns % PROJECTIONS, kind="stable")
    filled, starts = np.unique(slab.columns[order] % PROJECTIONS, return_index=True)
    with np.errstate(invalid="ignore", over="ignore"):  # the sums of an overflow are not finite, as they should be
        for elements, row in blocks(slab):
            before = (slab.start + elements.start) % slab.turn
            size = -(-(before + elements.stop - elements.start) // slab.turn) * slab.turn
            block = np.zeros(size)
            block[before : before + elements.stop - elements.start] = flat[elements]
            total[0] += np.dot(block, block)
            signed = block.reshape(-1, TURNS, len(slab.columns))
            signed *= of_columns
            if slab.is_in_lanes:
                sums = signed.reshape(len(signed), TURNS, -1, PROJECTIONS).sum(axis=2)
            else:
                sums = np.zeros((len(signed), TURNS, PROJECTIONS))
                sums[..., filled] = np.add.reduceat(signed[..., order], starts, axis=2)
            lanes += (sums * row_signs(np.arange(row, row + TURNS * len(signed))).reshape(-1, TURNS, 1)).sum(axis=0)
        total[1:] = turned(lanes)
    return total


def as_stored(sketches: Mapping[str, Sequence[float]]) -> dict[str, str]:
    """Return sketches as a row has them: base64 of fp64, little-endian, in half of the bytes of decimal digits."""
    return {name: b64encode(np.asarray(sums, STORED).tobytes()).decode("ascii") for name, sums in sketches.items()}


def as_sums(stored: bytes) -> NDArray[np.float64]:
    """Return a stored sketch, fp64 ``[1 + PROJECTIONS]``."""
    return np.frombuffer(stored, STORED).astype(np.float64)


def named(sums: Array, owners: Array, names: Sequence[str], squared: Mapping[str, float]) -> dict[str, list[float]]:
    """Return canonical name to sketch; ``sums`` are sets of ``[TURNS, PROJECTIONS]``, ``owners`` their indices in ``names``."""
    lanes = np.zeros((len(names), TURNS, PROJECTIONS))
    with np.errstate(over="ignore", invalid="ignore"):
        np.add.at(lanes, owners, sums.astype(np.float64).reshape(-1, TURNS, PROJECTIONS))
        signed = turned(lanes).tolist()
    return {name: [squared[name], *of_name] for name, of_name in zip(names, signed, strict=True)}


def turned(lanes: Array) -> NDArray[np.float64]:
    """Return signed sums, fp64 ``[..., PROJECTIONS]``, from sums by row and column remainder, ``[..., TURNS, PROJECTIONS]``."""
    rest = np.arange(PROJECTIONS)
    summed: NDArray[np.float64] = SCALE * lanes[..., rest[:, None], (rest - rest[:, None]) % PROJECTIONS].sum(axis=-2)
    return summed
