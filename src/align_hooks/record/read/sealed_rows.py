"""The fast path for a line of a rank's scalars: one typed pass over a row in the writer's usual form.

The path accepts a line only where the general one (:mod:`.committed`, with all errors) gives the same row. NaN,
infinities and keys of a later version take the general path.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import MsgspecError, Raw
from msgspec.json import Decoder

from align_hooks.record.format import digests
from align_hooks.record.format.schema import RankRow, SealedRow

_SEALED = Decoder(SealedRow)
_ROW = Decoder(RankRow)
_RANDOM = Decoder(tuple[dict[str, str], ...])
_STATE = Decoder(dict[str, float | str])
_NOT_FINITE = frozenset(("nan", "inf", "-inf"))


def opened(line: bytes, rank: int | None) -> SealedRow | None:
    """Return the row of a line without its end, digest checked; None for a line of the general path."""
    if digests.body_of_row(line) is None:
        return None
    try:
        row = _SEALED.decode(line)
        plain = not row.random or _are_plain(*(states.values() for states in _RANDOM.decode(row.random)))
        plain = plain and (not row.state or _are_plain(_STATE.decode(row.state).values()))
        return row if plain and _are_plain(row.unrecorded_inputs, row.unseen, [row.token_digest]) and row.rank == rank else None
    except (MsgspecError, ValueError, RecursionError):
        return None


def _are_plain(*values: Iterable[float | str]) -> bool:
    """Whether no string stands for NaN or an infinity."""
    return all(map(_NOT_FINITE.isdisjoint, values))


def rank_row(body: bytes) -> RankRow:
    """Return the row from the sealed part of a line that :func:`opened` accepted."""
    return _ROW.decode(body + b"}")


def mark(text: Raw) -> int:
    """Return a digest of the text of ``random`` or ``state``, 0 where empty; equal content may have two texts."""
    return digests.short(text) or 1 if len(text) > len(b"{}") else 0
