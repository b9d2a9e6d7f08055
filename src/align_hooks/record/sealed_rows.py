"""The fast way to read a line of a rank's scalars: one typed pass over a sealed row that is as the writer makes them.

What the pass does not take it says nothing of: the caller reads the line in the general way (:mod:`.committed`), which has the words for
everything that is wrong. So a line is taken only where both ways give the same row. NaN, the infinities and keys of a later version go the
general way.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta, MsgspecError, Raw, Struct
from msgspec.json import Decoder

from align_hooks.record import digests
from align_hooks.record.schema import Count, RankRow, Step

NOTHING = Raw(b"")


class SealedRow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """The fields of :class:`.schema.RankRow` as nearly every row has them, and what a sealed row has beside them. ``random`` and ``state``
    stay text, which :func:`opened` holds against their types."""

    step: Step
    loss: float | None
    objective_loss: float | None
    valid_tokens: Count | float | None
    consumed_samples: int | float | None = None
    grad_norm: float | None
    clip_coefficient: float | None
    learning_rate: float | Annotated[list[float], Meta(min_length=1)] | None
    loss_scale: float | None = None
    skipped: bool | None
    seconds: float | None = None
    terms: dict[str, float] | None = None
    whole: bool = False
    squared: float | None = None
    micro_batches: tuple[tuple[float | None, float | None, float | None], ...] = ()
    random: Raw = NOTHING
    state: Raw = NOTHING
    unrecorded_inputs: tuple[str, ...] = ()
    files: dict[str, str]
    rank: int
    segment: str
    digest: str


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
        return row if plain and _are_plain(row.unrecorded_inputs) and row.rank == rank else None
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
