"""Known causes of differences, as a table in which :mod:`.blame` looks up a comparison.

A new cause is a row of ``signatures.txt``, and its words in the catalogues: ``cause.…`` says what it is, ``look.…`` what to look at."""

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
    """The appearance of a cause; every condition that is set must hold."""

    place: FaultLocation
    """Where the fault is."""
    cause: str
    where: Where | None = None
    """Positions at which token losses differ."""
    unless: Where | None = None
    """Positions that exclude the cause."""
    first: tuple[str, ...] = ()
    """Patterns, one of which matches the name of the first suspect."""
    ids: tuple[str, ...] = ()
    """Message ids, one of which the first suspect has."""
    only: bool = False
    """Whether ``first`` and ``ids`` apply to all suspects."""
    rows: AffectedRows | None = None
    """Rows that are wrong."""
    later: bool | None = None
    """Whether an earlier step on equal weights agrees."""
    sign: str | None = None
    points: tuple[str, ...] = ()
    """Kinds of points, one of which the error arises at."""
    source: str = "zoo"
    """Where the cause is known from."""


ROUTERS = tuple(f"*.{kind}.weight" for kind in routers())
OF_DATA = frozenset({"labels_made", "padding_hidden", "mask_made", "documents_apart", "positions_made"})
"""Causes that a replay of batches hides: the other side then makes nothing itself."""


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
