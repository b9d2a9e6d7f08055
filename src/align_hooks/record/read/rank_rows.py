"""One rank's rows of scalars: each in its file, and numbers of all rows as columns.

A run of 100,000 steps and 8 ranks has 800,000 rows, gigabytes as objects. So a row stays in its file, and is read and
checked against its digest on access. Columns answer most questions ("does a norm differ?") for all steps at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TypeAlias

import numpy as np
from msgspec.json import Encoder

from align_hooks.errors import RecordError
from align_hooks.process.storage import opened
from align_hooks.record.format import digests
from align_hooks.record.format.files import in_words
from align_hooks.record.format.layout import Array
from align_hooks.record.format.rows import RankRow
from align_hooks.record.read.rows import RowLine, digest_of, usual_row

Columns: TypeAlias = dict[str, Array]
"""Columns of rows, an entry a row.

By a row's key, fp64: :data:`NUMBERS`, NaN where unknown, infinity where a sample count or a rate is of another type.
:data:`SPREADS`, fp64. ``flags``, see :data:`WHOLE`. ``random``, ``state`` and ``token_digest``: digests of these
fields, 0 for empty ones. ``kept``: whether the columns are incomplete, so that the row itself is needed.
Of lines: ``step``, ``start``, ``size`` and ``digest``. ``names``: an index of :class:`RankRows`' names.
"""
NUMBERS = (
    *("loss", "objective_loss", "valid_tokens", "consumed_samples", "grad_norm", "clip_coefficient", "learning_rate"),
    *("loss_scale", "seconds", "squared"),
)
SPREADS = ("least_by_count", "most_by_count", "least_by_micro_batch", "most_by_micro_batch")
"""Extremes of a token's weight (:func:`.step_checks.other_weights`), also times its micro-batch's tokens; NaN is unknown."""
WHOLE, KNOWN, SKIPPED, FLOAT, NO_TERMS, TERMS = (1 << bit for bit in range(6))
"""Bits of a row: loss of all ranks; ``skipped`` known; ``skipped`` true; ``valid_tokens`` a float; no loss terms; some loss terms
(neither of the two: unknown)."""
EXACT = 1 << 53
"""Integers up to this are numbers of fp64."""
BLOCK = 1 << 20
"""Bytes of a file that are read at once: rows are mostly asked for one after the other."""
AT_ONCE = 512
"""Rows of one conversion: one by one takes three times as long, and more leave the processor's cache."""
Names: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]
"""``unrecorded_inputs`` and ``unseen`` of a row."""
_encoded = Encoder().encode
_UNKNOWN = (math.nan,) * len(SPREADS)


class RankRows(Mapping[int, RankRow]):
    """Step to row, steps ascending; access raises RecordError for an unreadable or changed row."""

    def __init__(self, path: Path, columns: Columns, kept: Mapping[int, RankRow], names: Sequence[Names]) -> None:
        """Keep the columns of all rows, the rows whose columns are incomplete (``kept``), and all different names."""
        self.path, self._columns, self._kept = path, columns, kept
        self.unrecorded_inputs, self.unseen = (frozenset(name for of_row in names for name in of_row[part]) for part in range(2))
        self._block: tuple[int, bytes] = (0, b"")

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[int]:
        return iter(self.steps.tolist())

    def __contains__(self, step: object) -> bool:
        return isinstance(step, int | np.integer) and self._index(int(step)) is not None

    def __getitem__(self, step: int) -> RankRow:
        if step in self._kept:
            return self._kept[step]
        index = self._index(step)
        if index is None:
            raise KeyError(step)
        start, size, digest = (int(self._columns[name][index]) for name in ("start", "size", "digest"))
        try:
            text = self._read(start, size)
        except (OSError, ValueError) as error:
            raise RecordError(f"{self.path}: the row of step {step} cannot be read ({in_words(error)}); record the run again") from None
        row = usual_row(text)
        if row is None or digest_of(text) != digest:
            raise RecordError(f"{self.path} was changed while it was being read; start again once nobody writes it")
        return row

    @property
    def steps(self) -> Array:
        """The steps, int64."""
        return self._columns["step"]

    def columns(self, steps: Array) -> Columns:
        """Return the columns of some of the steps, each of which must exist."""
        if len(steps) == len(self.steps) and bool((steps == self.steps).all()):
            return self._columns
        return at(self._columns, np.searchsorted(self.steps, steps))

    def _index(self, step: int) -> int | None:
        """Return the index of a step; None without a row."""
        steps = self.steps
        index = step - int(steps[0]) if len(steps) else 0  # steps mostly follow one another
        if not (0 <= index < len(steps) and steps[index] == step):
            index = int(np.searchsorted(steps, step))
        return index if index < len(steps) and steps[index] == step else None

    def _read(self, start: int, size: int) -> bytes:
        begin, block = self._block
        if not begin <= start <= start + size <= begin + len(block):
            with opened(self.path) as file:
                begin, block = self._block = start, bytes(file.read(start, max(size, BLOCK)))
        return block[start - begin : start - begin + size]

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_block": (0, b"")}


def at(columns: Columns, index: Array) -> Columns:
    """Return the columns of some rows."""
    return {name: column[index] for name, column in columns.items()}


class RowCollector:
    """Collects rows of one rank, of which the last of each step counts; :data:`AT_ONCE` are converted to columns together."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[RowLine] = []
        self._pieces: list[Columns] = []
        self._kept: list[RankRow] = []
        self._names: dict[Names, int] = {}

    def add(self, line: RowLine) -> None:
        """Add a row."""
        self._lines.append(line)
        if not line.is_usual:
            self._kept.append(line.row)
        if len(self._lines) == AT_ONCE:
            self._convert()

    def _convert(self) -> None:
        lines, self._lines = self._lines, []
        rows = [line.row for line in lines]
        number = self._names.setdefault
        names = [number((row.unrecorded_inputs, row.unseen), len(self._names)) for row in rows]
        of_lines = {
            "names": np.array(names, np.int64),
            "start": np.array([line.start for line in lines], np.int64),
            "size": np.array([line.size for line in lines], np.int64),
            "digest": np.array([line.digest for line in lines], np.uint64),
            "kept": np.array([not line.is_usual for line in lines], bool),
        }
        self._pieces.append(_columns(rows) | of_lines)

    def collected(self) -> RankRows:
        """Return the rows that count."""
        self._convert()
        index = _last_of_each(np.concatenate([piece["step"] for piece in self._pieces]))
        columns = {name: _joined([piece[name] for piece in self._pieces], index) for name in self._pieces[0]}
        names = list(self._names)
        used = [names[number] for number in np.unique(columns["names"]).tolist()]
        steps = set(columns["step"][columns["kept"]].tolist())
        return RankRows(self._path, columns, {row.step: row for row in self._kept if row.step in steps}, used)


def _columns(rows: Sequence[RankRow]) -> Columns:
    """Return the columns that rows make without their lines; None becomes NaN."""
    columns: dict[str, list[float | None]] = {name: list(map(attrgetter(name), rows)) for name in NUMBERS}
    columns["consumed_samples"] = [math.inf if _is_no_number_of_samples(count) else count for count in columns["consumed_samples"]]
    columns["learning_rate"] = [math.inf if isinstance(rate, list) else rate for rate in columns["learning_rate"]]
    spreads = np.array([_spreads(row.micro_batches) if row.micro_batches else _UNKNOWN for row in rows], np.float64)
    columns |= dict(zip(SPREADS, spreads.reshape(-1, len(SPREADS)).T, strict=True))
    marks = {name: [_mark(getattr(row, name)) for row in rows] for name in ("random", "state", "token_digest")}
    numbers = {name: np.array(column, np.float64) for name, column in columns.items()}
    return (
        numbers
        | {name: np.array(column, np.uint64) for name, column in marks.items()}
        | {"step": np.array([row.step for row in rows], np.int64), "flags": _flags(rows)}
    )


def _mark(content: object) -> int:
    """Return a digest of a field's content, 0 where empty."""
    if not content:
        return 0
    try:
        return digests.short(_encoded(content)) or 1
    except UnicodeEncodeError:  # a surrogate
        return digests.short(repr(content).encode()) or 1


def _is_no_number_of_samples(count: object) -> bool:
    return count is not None and (type(count) is not int or not -EXACT <= count <= EXACT)


def _flags(rows: Sequence[RankRow]) -> Array:
    """Return the flags of rows."""
    skipped = np.array([row.skipped for row in rows], np.float64)
    terms = np.array([-1 if row.terms is None else len(row.terms) for row in rows])
    said = {
        WHOLE: np.array([row.whole for row in rows], bool),
        KNOWN: ~np.isnan(skipped),
        SKIPPED: skipped == 1.0,
        FLOAT: np.array([type(row.valid_tokens) is float for row in rows], bool),
        NO_TERMS: terms == 0,
        TERMS: terms > 0,
    }
    flags = np.zeros(len(rows), np.uint8)
    for flag, where in said.items():
        flags[where] |= flag
    return flags


def _spreads(shares: Sequence[tuple[float | None, float | None, float | None]]) -> Sequence[float]:
    """Return :data:`SPREADS` of a row's micro-batches."""
    known = [(objective / loss, tokens) for loss, tokens, objective in shares if loss and tokens and objective is not None]
    if not known:
        return _UNKNOWN
    by_count, by_micro_batch = [weight for weight, _ in known], [weight * tokens for weight, tokens in known]
    return min(by_count), max(by_count), min(by_micro_batch), max(by_micro_batch)


def _last_of_each(steps: Array) -> Array:
    """Return the indices of the last entry of each step, steps ascending."""
    if len(steps) < 2 or bool((np.diff(steps) > 0).all()):
        return np.arange(len(steps))
    _, from_behind = np.unique(steps[::-1], return_index=True)
    return np.asarray(len(steps) - 1 - from_behind)


def _joined(pieces: Sequence[Array], index: Array) -> Array:
    """Return a column from its pieces; a constant column takes no memory."""
    column = np.concatenate(pieces)[index]
    bits = column.view(f"u{column.itemsize}")
    return np.broadcast_to(column[:1].copy(), column.shape) if len(bits) and bool((bits == bits[0]).all()) else column
