"""One rank's rows of scalars: each in its file, and numbers of all rows as columns.

A run of 100,000 steps and 8 ranks has 800,000 rows, gigabytes as objects. So a row stays in its file, and is read and
checked against its digest on access. Columns answer most questions ("does a norm differ?") for all steps at once.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from align_hooks.errors import RecordError
from align_hooks.process.storage import opened
from align_hooks.record.format import digests
from align_hooks.record.format.files import in_words
from align_hooks.record.format.layout import Array
from align_hooks.record.format.schema import RankRow, SealedRow
from align_hooks.record.read import sealed_rows

NUMBERS = (
    *("loss", "objective_loss", "valid_tokens", "consumed_samples", "grad_norm", "clip_coefficient", "learning_rate"),
    *("loss_scale", "seconds", "squared"),
)
"""Columns of fp64 by a row's key: NaN is unknown, infinity another type; a row with such a number itself is ``kept``."""
PLAIN = tuple(name for name in NUMBERS if name not in ("consumed_samples", "learning_rate"))
SPREADS = ("least_by_count", "most_by_count", "least_by_micro_batch", "most_by_micro_batch")
"""Columns of the extremes of a token's weight (:func:`.self_check.weighed`), also times its micro-batch's tokens; NaN is unknown."""
WHOLE, KNOWN, SKIPPED, FLOAT, NO_TERMS, TERMS = (1 << bit for bit in range(6))
"""Bits of a row: loss of all ranks; ``skipped`` known; ``skipped`` true; ``valid_tokens`` a float; no loss terms; some loss terms
(neither of the two: unknown)."""
MARKS = ("flags", "random", "state", "tokens")
"""Columns of integers."""
EXACT = 1 << 53
"""Integers up to this are numbers of fp64."""
BLOCK = 1 << 20
"""Bytes of a file that are read at once: rows are mostly asked for one after the other."""


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Columns of rows, an entry a row."""

    numbers: Mapping[str, Array]
    """:data:`NUMBERS` and :data:`SPREADS`, fp64."""
    flags: Array
    random: Array
    """Digests of :func:`.sealed_rows.mark`, as ``state``."""
    state: Array
    tokens: Array
    """Digests of ``token_digest``."""
    kept: Array
    """Whether the columns are incomplete, so that the row itself is needed."""

    def at(self, index: Array) -> RowColumns:
        """Return the columns of some rows."""
        numbers = {name: column[index] for name, column in self.numbers.items()}
        return RowColumns(numbers, *(getattr(self, name)[index] for name in (*MARKS, "kept")))


Names: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]
"""``unrecorded_inputs`` and ``unseen`` of a row, or of several."""


class RankRows(Mapping[int, RankRow]):
    """Step to row, steps ascending; access raises RecordError for an unreadable or changed row."""

    def __init__(self, path: Path, places: Places, kept: Mapping[int, RankRow], columns: RowColumns, named: Names) -> None:
        """Keep rows of the general path (``kept``), and all names of ``unrecorded_inputs`` and ``unseen`` (``named``)."""
        self.path, self._all = path, columns
        self.unrecorded_inputs, self.unseen = map(frozenset, named)
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

    def columns(self, steps: Array) -> RowColumns:
        """Return the columns of some of the steps, each of which must exist."""
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
    """The places of rows in their file, steps ascending."""

    steps: Array
    starts: Array
    """The first byte of each row."""
    sizes: Array
    """The bytes of each row's sealed part."""
    digests: bytes
    """The digest of each sealed part, 16 bytes each."""

    def index(self, step: int) -> int | None:
        """Return the index of a step; None without a row."""
        index = step - int(self.steps[0]) if len(self.steps) else 0  # steps mostly follow one another
        if not (0 <= index < len(self.steps) and self.steps[index] == step):
            index = int(np.searchsorted(self.steps, step))
        return index if index < len(self.steps) and self.steps[index] == step else None


class Gathering:
    """Collects rows of one rank, of which the last of each step counts; :data:`AT_ONCE` are converted to columns together."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: list[SealedRow] = []
        self._starts, self._sizes, self._digests = array("q"), array("q"), bytearray()
        self._pieces: list[tuple[Array, Array, RowColumns]] = []
        self._kept: dict[int, RankRow] = {}
        self._names: dict[Names, int] = {((), ()): 0}

    def add(self, row: SealedRow, start: int, size: int) -> None:
        """Add a row of the fast path, from a line of ``size`` bytes from ``start`` on."""
        self._waiting.append(row)
        self._starts.append(start)
        self._sizes.append(size - digests.ROW_END)
        if len(self._waiting) == AT_ONCE:
            self._put()

    def keep(self, row: RankRow) -> None:
        """Add and keep a row of the general path, whose columns have only step, names and tokens."""
        self._kept[len(self._starts)] = row
        named = {"unrecorded_inputs": row.unrecorded_inputs, "unseen": row.unseen, "token_digest": row.token_digest}
        stand_in = SealedRow(**_STAND_IN, **named, step=row.step)  # type: ignore[arg-type]
        self.add(stand_in, 0, digests.ROW_END)

    def _put(self) -> None:
        rows, self._waiting = self._waiting, []
        self._digests += bytes.fromhex("".join([row.digest for row in rows]))
        number = self._names.setdefault
        named = [number((row.unrecorded_inputs, row.unseen), len(self._names)) for row in rows]
        self._pieces.append((np.array([row.step for row in rows], np.int64), np.array(named, np.int64), _side_by_side(rows)))

    def gathered(self) -> RankRows:
        """Return the rows that count."""
        self._put()
        steps, named = (np.concatenate([piece[part] for piece in self._pieces]) for part in (0, 1))
        index = _last_of_each(steps)
        pieces = [columns for _, _, columns in self._pieces]
        numbers = {name: _joined([piece.numbers[name] for piece in pieces], index) for name in (*NUMBERS, *SPREADS)}
        marks = {name: _joined([getattr(piece, name) for piece in pieces], index) for name in MARKS}
        kept = np.isin(index, np.array([*self._kept], np.int64))
        starts, sizes = (np.array(column, np.int64)[index] for column in (self._starts, self._sizes))
        of_digests = np.frombuffer(bytes(self._digests), np.uint8).reshape(-1, 16)[index].tobytes()
        every = list(self._names)
        inputs, unseen = zip(*(every[which] for which in (0, *np.unique(named[index]).tolist())), strict=True)
        names = tuple({name for of in inputs for name in of}), tuple({word for of in unseen for word in of})
        by_step = {self._kept[position].step: self._kept[position] for position in index[kept].tolist()}
        places, columns = Places(steps[index], starts, sizes, of_digests), RowColumns(numbers, **marks, kept=kept)
        return RankRows(self._path, places, by_step, columns, names)


AT_ONCE = 4096
"""Rows of one conversion; one by one takes three times as long."""
_UNKNOWN = (math.nan,) * len(SPREADS)
_STAND_IN = {
    **dict.fromkeys(("loss", "objective_loss", "valid_tokens", "grad_norm", "clip_coefficient", "learning_rate", "skipped")),
    **{"files": {}, "rank": 0, "segment": "", "digest": digests.LENGTH * "0"},
}


def _side_by_side(rows: Sequence[SealedRow]) -> RowColumns:
    """Return the columns of rows, none of them kept; None becomes NaN."""
    plain = {name: np.array([getattr(row, name) for row in rows], np.float64) for name in PLAIN}
    samples = [row.consumed_samples for row in rows]
    rates = [row.learning_rate for row in rows]
    plain["consumed_samples"] = np.array([math.inf if _is_no_number_of_samples(count) else count for count in samples], np.float64)
    plain["learning_rate"] = np.array([math.inf if isinstance(rate, list) else rate for rate in rates], np.float64)
    shares = [_spreads(row.micro_batches) if row.micro_batches else _UNKNOWN for row in rows]
    plain |= dict(zip(SPREADS, np.array(shares, np.float64).reshape(-1, len(SPREADS)).T, strict=True))
    random, state = (np.array([sealed_rows.mark(getattr(row, name)) for row in rows], np.uint64) for name in ("random", "state"))
    texts = [row.token_digest.encode("utf-8", "surrogatepass") for row in rows]
    tokens = np.array([digests.short(text) or 1 if text else 0 for text in texts], np.uint64)
    return RowColumns(plain, _flags(rows), random, state, tokens, np.zeros(len(rows), bool))


def _is_no_number_of_samples(count: float | None) -> bool:
    return count is not None and (type(count) is float or not -EXACT <= count <= EXACT)


def _flags(rows: Sequence[SealedRow]) -> Array:
    """The flags of rows."""
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
