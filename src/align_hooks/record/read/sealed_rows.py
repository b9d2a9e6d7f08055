"""The fast way to read a line of a rank's scalars: one typed pass over a sealed row that is as the writer makes them.

What the pass does not take it says nothing of: the caller reads the line in the general way (:mod:`.committed`), which has the words for
everything that is wrong. So a line is taken only where both ways give the same row. NaN, the infinities and keys of a later version go the
general way.
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
    """The row of a line without its end, whose digest was compared; None where the general way has to say what it is."""
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
    """Whether none is a string that stands for a number."""
    return all(map(_NOT_FINITE.isdisjoint, values))


def rank_row(body: bytes) -> RankRow:
    """The row of a line that :func:`opened` took, of its sealed part."""
    return _ROW.decode(body + b"}")


def mark(text: Raw) -> int:
    """A number for the content of ``random`` or ``state``, 0 where it is empty. Different texts have different numbers, but for two in
    2**64; equal content may be written in two ways."""
    return digests.short(text) or 1 if len(text) > len(b"{}") else 0
