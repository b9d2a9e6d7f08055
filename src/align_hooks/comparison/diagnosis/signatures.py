"""The causes that differences are known to come from, as a table in which :mod:`.blame` looks a comparison up. A new cause is a row of
``signatures.txt``, and its words in the catalogues: ``cause.…`` says what it is, ``look.…`` what to look at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from align_hooks.comparison.data.token_losses import AffectedRows, Where
from align_hooks.comparison.stage_result import FaultLocation
from align_hooks.data_file import columns, sections
from align_hooks.families.registry import routers

_TABLES = sections(Path(__file__).parent / "signatures.txt")
SIGNS = dict(line.split(": ", 1) for line in _TABLES["signs"])
"""What a comparison shows beside places and names, each sign in words; :class:`.observations.Observations` says when."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What a cause looks like. Every condition that is set must hold.

    ``place`` is where the fault is blamed. ``where`` are the positions at which token losses part, ``unless`` those that speak against the
    cause. ``first`` are patterns, one of which must match the name of the first suspect, or with ``only`` of all suspects; ``ids`` are
    those of messages, one of which must word it. ``rows`` are the rows that are wrong. ``later`` says whether an earlier step on equal
    weights agrees. ``sign`` must be seen as well. ``points`` are kinds, one of which the point must have at which the error comes about.
    ``source`` is where the cause is known from."""

    place: FaultLocation
    cause: str
    where: Where | None = None
    unless: Where | None = None
    first: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    only: bool = False
    rows: AffectedRows | None = None
    later: bool | None = None
    sign: str | None = None
    points: tuple[str, ...] = ()
    source: str = "zoo"


ROUTERS = tuple(f"*.{kind}.weight" for kind in routers())
OF_DATA = frozenset({"labels_made", "padding_hidden", "mask_made", "documents_apart", "positions_made"})
"""Causes that a replay of batches hides: it feeds what one side made to the other, which then makes nothing itself."""


def _signature(row: str) -> Signature:
    """Return a row of the file."""
    place, _, rest = row.partition(": ")
    conditions, _, source = rest.partition(" by ")
    cause, *words = conditions.split()
    given = columns(words, ("where", "unless", "first", "ids", "only", "rows", "later", "sign", "points"))
    return Signature(
        FaultLocation[place],
        cause,
        where=next((Where[name] for name in given["where"]), None),
        unless=next((Where[name] for name in given["unless"]), None),
        first=ROUTERS if given["first"] == ["ROUTERS"] else tuple(given["first"]),
        ids=tuple(given["ids"]),
        only="only" in words,
        rows=next((AffectedRows[name] for name in given["rows"]), None),
        later=True if "later" in words else None,
        sign=next(iter(given["sign"]), None),
        points=tuple(given["points"]),
        source=source or "zoo",
    )


SIGNATURES = tuple(map(_signature, _TABLES["signatures"]))
