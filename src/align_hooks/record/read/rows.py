"""The reader of a rank's rows of scalars: one line a step, each with its own digest.

A manifest names the segments of its record, one for each start of the job; every row names its segment. Rows of other
starts are no part of the record, nor is a last line that a killed process left torn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec import MsgspecError, Struct
from msgspec.json import Decoder

from align_hooks.record.format import digests
from align_hooks.record.format.files import no_row, read_lines
from align_hooks.record.format.rows import RankRow
from align_hooks.record.format.schema import Manifest, Segment
from align_hooks.record.format.structured import structured

_decoded = Decoder(RankRow).decode
_FIELDS = frozenset(RankRow.__struct_fields__)
_NUMBERS = _FIELDS - {"files", "segment"}
_NOT_FINITE = frozenset(("nan", "inf", "-inf"))
_COUNTS = (int, float, type(None))


class Position(NamedTuple):
    """A place between two lines of a file."""

    offset: int = 0
    """Bytes before the place."""
    lines: int = 0
    """Lines before the place."""


START = Position()


class RowLine(Struct, frozen=True, gc=False):
    """One row and its line."""

    row: RankRow
    segment: Segment
    """The start of the job that wrote the row."""
    start: int
    """The first byte of the line."""
    size: int
    """Bytes of the line without its end."""
    number: int
    """The number of the line, from 1 on."""
    has_end: bool
    """False for a last line whose end may still be to come."""
    is_usual: bool
    """Whether :func:`usual_row` reads the line."""
    digest: int
    """The lower 64 bits of the row's digest."""

    @property
    def end(self) -> Position:
        """The place after the line."""
        return Position(self.start + self.size + 1, self.number)


def read_rows(path: Path, manifest: Manifest, after: Position = START) -> Iterator[RowLine]:
    """Yield the rows of a rank behind a position, in the order of the file.

    Raises RecordError for a line that is no row of the rank, or was changed.
    """
    segments = {segment.id: segment for segment in manifest.starts()}
    start, number = after
    for line in read_lines(path, start):
        number += 1
        text = line.rstrip(b"\n")
        has_end = len(text) < len(line)
        if not has_end and not digests.WHOLE_ROW.search(line):
            return  # torn: a row that lacks only the end of its line has its digest
        usual = usual_row(text)
        is_usual = usual is not None and usual.rank == manifest.rank
        row = usual if is_usual else checked_row(text, path, number, manifest, segments)
        if row is not None and row.segment in segments:
            yield RowLine(row, segments[row.segment], start, len(text), number, has_end, is_usual, digest_of(text))
        start += len(line)


def usual_row(text: bytes) -> RankRow | None:
    """Return the row of a line in the writer's usual form, in one typed pass: a tenth of the general one's time.

    Returns None where the digest differs, and where only the general pass reads the row: for NaN, infinities, and keys
    of a later version.
    """
    sealed = digests.body_of_row(text)
    if sealed is None:
        return None
    try:
        row = _decoded(sealed + b"}")
    except (MsgspecError, ValueError, RecursionError):
        return None
    are_plain = _NOT_FINITE.isdisjoint  # NaN and infinities are strings; where a string may stand, the decoder accepts them
    is_plain = row.token_digest not in _NOT_FINITE and are_plain(row.unrecorded_inputs) and are_plain(row.unseen)
    is_plain = is_plain and are_plain(row.state.values()) and (not row.random or all(are_plain(of.values()) for of in row.random))
    return row if is_plain and type(row.consumed_samples) in _COUNTS else None


def digest_of(text: bytes) -> int:
    """Return the lower 64 bits of the digest that a row's line holds."""
    return int(text[-2 - digests.LENGTH // 2 : -2], 16)


def checked_row(line: bytes, path: Path, number: int, manifest: Manifest, segments: Mapping[str, Segment]) -> RankRow | None:
    """Return the row of a line by the general pass, None for one of no segment of the record."""
    try:
        content = digests.opened(line)
        step, segment = content["step"], content["segment"]
        if type(step) is not int or step < 0 or not isinstance(segment, str):
            raise ValueError("step")
    except digests.Unsealed as error:
        raise no_row(path, number, f": {error}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise no_row(path, number) from None
    if content.get("rank") != manifest.rank:
        raise no_row(path, number, " of this rank")
    if segment not in segments:
        return None
    known = {key: value for key, value in content.items() if key in _FIELDS}
    return structured(RankRow, known, f"{path}: step {step}", numbers=_NUMBERS)
