"""One rank's rows of scalars: each in its file, and of all of them what is held side by side, as columns.

A run of 100,000 steps and 8 ranks has 800,000 rows, which are gigabytes as objects. So a row stays where it is, known by its place and its
digest, and is read and held against that digest when it is asked for. Numbers that are looked at at every step stand in arrays: most
questions ("does a norm differ?") are answered for all steps at once, and rows are read at the few steps where that does not do.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from align_hooks.errors import RecordError
from align_hooks.process.storage import opened
from align_hooks.record import digests, sealed_rows
from align_hooks.record.files import in_words
from align_hooks.record.layout import Array
from align_hooks.record.schema import RankRow
from align_hooks.record.sealed_rows import SealedRow

NUMBERS = (
    *("loss", "objective_loss", "valid_tokens", "consumed_samples", "grad_norm", "clip_coefficient", "learning_rate"),
    *("loss_scale", "seconds", "squared"),
)
"""Columns of fp64 by a row's key. NaN is unknown, infinity says that the row has what is no such number: a row with NaN or infinity itself
is ``kept``."""
SPREADS = ("least_by_count", "most_by_count", "least_by_micro_batch", "most_by_micro_batch")
"""Columns of the weight of tokens in a rank's micro-batches (:func:`.self_check.weighed`): the extremes of a token's weight, and of that
times the tokens of its micro-batch; NaN where no weight is known."""
WHOLE, KNOWN, SKIPPED, FLOAT, NO_TERMS, TERMS = (1 << bit for bit in range(6))
"""Flags of a row: its loss is that of all ranks; ``skipped`` is known, and true; its tokens are no int; its terms are none, or some.
Without either of the last two the terms are not known."""
EXACT = 1 << 53
"""Integers up to this are numbers of fp64."""
BLOCK = 1 << 20
"""Bytes of a file that are read at once: rows are mostly asked for one after the other."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What is known of rows side by side, an entry a row. ``numbers`` are of :data:`NUMBERS`, ``spreads`` of :data:`SPREADS`, ``flags`` of
    bits; ``random`` and ``state`` are marks of :mod:`.sealed_rows`. ``kept`` are rows of which only the row itself says anything."""

    numbers: Mapping[str, Array]
    spreads: Mapping[str, Array]
    flags: Array
    random: Array
    state: Array
    kept: Array

    def at(self, index: Array) -> Columns:
        """The columns of some rows."""
        numbers, spreads = ({name: column[index] for name, column in of.items()} for of in (self.numbers, self.spreads))
        return Columns(numbers, spreads, self.flags[index], self.random[index], self.state[index], self.kept[index])


class RankRows(Mapping[int, RankRow]):
    """Step to row, steps ascending. A row that cannot be read any more, or is another than before, raises RecordError."""

    def __init__(self, path: Path, places: Places, kept: Mapping[int, RankRow], columns: Columns, inputs: frozenset[str]) -> None:
        """``kept`` are the rows that the general way read, by step; ``inputs`` are all names under ``unrecorded_inputs``."""
        self.path, self.unrecorded_inputs, self._all = path, inputs, columns
        self._places, self._kept = places, kept
        self._block: tuple[int, bytes] = (0, b"")

    def __len__(self) -> int:
        return len(self._places.steps)

    def __iter__(self) -> Iterator[int]:
        return iter(self.steps.tolist())

    def __contains__(self, step: object) -> bool:
        return isinstance(step, int | np.integer) and self._places.index(int(step)) is not None

    def __getitem__(self, step: int) -> RankRow:
        if step in self._kept:
            return self._kept[step]
        index = self._places.index(step)
        if index is None:
            raise KeyError(step)
        try:
            body = self._read(int(self._places.starts[index]), int(self._places.sizes[index]))
        except (OSError, ValueError) as error:
            raise RecordError(f"{self.path}: the row of step {step} cannot be read ({in_words(error)}); record the run again") from None
        if digests.raw(body) != self._places.digests[16 * index : 16 * index + 16]:
            raise RecordError(f"{self.path} was changed while it was being read; start again once nobody writes it")
        return sealed_rows.rank_row(body)

    @property
    def steps(self) -> Array:
        """The steps, int64."""
        return self._places.steps

    def columns(self, steps: Array) -> Columns:
        """The columns of some of the steps, each of which must be there."""
        if len(steps) == len(self.steps) and bool((steps == self.steps).all()):
            return self._all
        return self._all.at(np.searchsorted(self.steps, steps))

    def _read(self, start: int, size: int) -> bytes:
        begin, block = self._block
        if not begin <= start <= start + size <= begin + len(block):
            with opened(self.path) as file:
                begin, block = self._block = start, bytes(file.read(start, max(size, BLOCK)))
        return block[start - begin : start - begin + size]

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_block": (0, b"")}


@dataclass(frozen=True, slots=True)
class Places:
    """Where rows lie, one behind the other: their steps, ascending, the first byte and the size of the sealed part, and its digest of 16
    bytes."""

    steps: Array
    starts: Array
    sizes: Array
    digests: bytes

    def index(self, step: int) -> int | None:
        """The index of a step; None where there is none of it."""
        index = step - int(self.steps[0]) if len(self.steps) else 0  # steps mostly follow one another
        if not (0 <= index < len(self.steps) and self.steps[index] == step):
            index = int(np.searchsorted(self.steps, step))
        return index if index < len(self.steps) and self.steps[index] == step else None


class Gathering:
    """Rows of one rank as they are read, of which the last of each step counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._steps, self._starts, self._sizes, self._digests = array("q"), array("q"), array("q"), bytearray()
        self._numbers, self._spreads, self._flags, self._marks, self._inputs = array("d"), array("d"), array("B"), array("Q"), array("Q")
        self._kept: dict[int, RankRow] = {}
        self._names: dict[tuple[str, ...], int] = {(): 0}

    def add(self, row: SealedRow, start: int, size: int) -> None:
        """A row that :func:`.sealed_rows.opened` took; its line without the end has ``size`` bytes from ``start`` on."""
        self._steps.append(row.step)
        self._starts.append(start)
        self._sizes.append(size - digests.ROW_END)
        self._digests += bytes.fromhex(row.digest)
        self._numbers.extend(_numbers(row))
        self._flags.append(_flags(row))
        self._marks.append(sealed_rows.mark(row.random))
        self._marks.append(sealed_rows.mark(row.state))
        self._spreads.extend(_spreads(row.micro_batches) if row.micro_batches else UNKNOWN)
        self._inputs.append(self._names.setdefault(row.unrecorded_inputs, len(self._names)) if row.unrecorded_inputs else 0)

    def keep(self, row: RankRow) -> None:
        """A row that the general way read, which is kept."""
        self._kept[len(self._steps)] = row
        self._steps.append(row.step)
        self._starts.append(0)
        self._sizes.append(0)
        self._digests += bytes(16)
        self._numbers.extend([math.nan] * len(NUMBERS))
        self._flags.append(0)
        self._marks.extend((0, 0))
        self._spreads.extend(UNKNOWN)
        self._inputs.append(self._names.setdefault(row.unrecorded_inputs, len(self._names)))

    def gathered(self) -> RankRows:
        """The rows that count."""
        steps = np.array(self._steps, np.int64)
        index = _last_of_each(steps)
        chosen = {position: place for place, position in enumerate(index.tolist())} if self._kept else {}
        kept = np.zeros(len(index), bool)
        kept[[chosen[position] for position in self._kept if position in chosen]] = True
        starts, sizes = (np.array(column, np.int64)[index] for column in (self._starts, self._sizes))
        of_digests = np.frombuffer(bytes(self._digests), np.uint8).reshape(-1, 16)[index].tobytes()
        numbers = _columns(NUMBERS, np.array(self._numbers, np.float64), index)
        spreads = _columns(SPREADS, np.array(self._spreads, np.float64), index)
        marks = _columns(("random", "state"), np.array(self._marks, np.uint64), index)
        columns = Columns(numbers, spreads, np.array(self._flags, np.uint8)[index], marks["random"], marks["state"], kept)
        named = list(self._names)
        inputs = {name for number in set(np.array(self._inputs, np.int64)[index].tolist()) for name in named[number]}
        places = Places(steps[index], starts, sizes, of_digests)
        by_step = {row.step: row for position, row in self._kept.items() if position in chosen}
        return RankRows(self._path, places, by_step, columns, frozenset(inputs))


UNKNOWN = (math.nan,) * len(SPREADS)
_NAN, _INF = math.nan, math.inf


def _numbers(row: SealedRow) -> Sequence[float]:
    """The numbers of a row, in the order of :data:`NUMBERS`."""
    samples, rate = row.consumed_samples, row.learning_rate
    return (
        _NAN if row.loss is None else row.loss,
        _NAN if row.objective_loss is None else row.objective_loss,
        _NAN if row.valid_tokens is None else row.valid_tokens,
        _NAN if samples is None else samples if type(samples) is int and -EXACT <= samples <= EXACT else _INF,
        _NAN if row.grad_norm is None else row.grad_norm,
        _NAN if row.clip_coefficient is None else row.clip_coefficient,
        _NAN if rate is None else rate if type(rate) is float else _INF,
        _NAN if row.loss_scale is None else row.loss_scale,
        _NAN if row.seconds is None else row.seconds,
        _NAN if row.squared is None else row.squared,
    )


def _flags(row: SealedRow) -> int:
    flags = WHOLE if row.whole else 0
    if row.skipped is not None:
        flags |= KNOWN | SKIPPED if row.skipped else KNOWN
    if type(row.valid_tokens) is float:
        flags |= FLOAT
    return flags if row.terms is None else flags | (TERMS if row.terms else NO_TERMS)


def _spreads(shares: Sequence[tuple[float | None, float | None, float | None]]) -> Sequence[float]:
    known = [(objective / loss, tokens) for loss, tokens, objective in shares if loss and tokens and objective is not None]
    if not known:
        return UNKNOWN
    by_count, by_micro_batch = [weight for weight, _ in known], [weight * tokens for weight, tokens in known]
    return min(by_count), max(by_count), min(by_micro_batch), max(by_micro_batch)


def _last_of_each(steps: Array) -> Array:
    """The indices of the last entry of each step, steps ascending."""
    if len(steps) < 2 or bool((np.diff(steps) > 0).all()):
        return np.arange(len(steps))
    _, from_behind = np.unique(steps[::-1], return_index=True)
    return np.asarray(len(steps) - 1 - from_behind)


def _columns(names: Sequence[str], numbers: Array, index: Array) -> dict[str, Array]:
    """The columns of a table that was written row after row; one whose entries are all alike takes no memory."""
    table = numbers.reshape(-1, len(names))[index]
    columns = {}
    for name, column in zip(names, table.T, strict=True):
        bits = column.view(np.uint64)
        alike = len(bits) > 0 and bool((bits == bits[0]).all())
        columns[name] = np.broadcast_to(column[:1].copy(), column.shape) if alike else column.copy()
    return columns
