"""The rows of a rank that count, with the files and lines that these rows list by digest.

A manifest names the segments of its record, one for each start of the job; every row names its segment. So the
record changes in one moment, the rename of a manifest: rows of other starts do not count. Every line is checked
against its digest: by :mod:`.sealed_rows` in the usual form, in a tenth of the time, and else here, with all errors.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from align_hooks.errors import RecordError
from align_hooks.record.format import digests
from align_hooks.record.format.files import no_row, read_lines
from align_hooks.record.format.layout import JsonObject
from align_hooks.record.format.schema import Manifest, RankRow, SealedRow, Segment, structured
from align_hooks.record.read import sealed_rows
from align_hooks.record.read.rank_rows import Gathering, RankRows


@dataclass(slots=True)
class Committed:
    """One rank's rows that count."""

    rows: RankRows
    listed: dict[str, dict[int, str]]
    """Name of :mod:`.layout` to step to digest."""
    counts: Counter[str]
    """Segment to the number of its distinct rows."""


def read_committed(path: Path, manifest: Manifest) -> Committed:
    """Return the rows in a file of scalars that count by the ``manifest``: of each step the last, without a torn last line.

    Raises RecordError for a line that is no row, or was changed.
    """
    segments = {segment.id: segment for segment in manifest.starts()}
    counting = Counting(path)
    counting.list(manifest.files, None)
    counts, seen, start = Counter[str](), set[str](), 0
    for number, line in enumerate(read_lines(path), 1):
        text = line.rstrip(b"\n")
        if len(text) == len(line) and not digests.WHOLE_ROW.search(line):
            break  # torn: a row that lacks only the end of its line has its digest
        row = sealed_rows.opened(text, manifest.rank)
        if row is not None:
            segment, digest = row.segment, row.digest if len(text) < len(line) else f"{row.digest} without an end"
            if segment in segments:
                counting.add_sealed(row, segments[segment], start, len(text))
        else:
            segment, content = written(text, path, number, manifest)
            digest = digests.xxh3(line)
            if segment in segments:
                counting.add(content, segments[segment])
        if digest not in seen:  # a repeated row does not make up for a row that is gone
            counts[segment] += 1
            seen.add(digest)
        start += len(line)
    return Committed(counting.rows.gathered(), counting.listed, counts)


class Counting:
    """The rows that count so far, with their lists; raises RecordError for an invalid row or list."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows = Gathering(path)
        self.listed: dict[str, dict[int, str]] = {}

    def add_sealed(self, row: SealedRow, segment: Segment, start: int, size: int) -> None:
        """Add a row of the fast path, from a line of ``size`` bytes from ``start`` on."""
        if row.files:
            self.list(row.files, segment)
        if segment.counts("scalars", row.step):
            self.rows.add(row, start, size)

    def add(self, row: JsonObject, segment: Segment) -> None:
        """Add a row of the general path."""
        self.list(row.pop("files", None) or {}, segment)
        if segment.counts("scalars", row["step"]):
            self.rows.keep(rank_row(row, self._path))

    def list(self, files: Mapping[str, str], segment: Segment | None) -> None:
        """Add the list of a manifest, or of a row of a ``segment``."""
        for name, number, digest in _listed(files, self._path):
            if segment is None or segment.counts(name, number):
                self.listed.setdefault(name, {})[number] = digest


def written(line: bytes, path: Path, number: int, manifest: Manifest) -> tuple[str, JsonObject]:
    """Return the segment and the row of a line of scalars; raises RecordError for a line that is no row of the rank."""
    try:
        row = digests.opened(line)
        if type(row["step"]) is not int or row["step"] < 0 or not isinstance(row["segment"], str):
            raise ValueError("step")
    except digests.Unsealed as error:
        raise no_row(path, number, f": {error}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise no_row(path, number) from None
    segment: str = row.pop("segment")
    if row.pop("rank", None) != manifest.rank:
        raise no_row(path, number, " of this rank")
    return segment, row


def rank_row(row: JsonObject, path: Path) -> RankRow:
    """Return a row of scalars with types; raises RecordError for wrong ones."""
    return structured(RankRow, row, f"{path}: step {row['step']}", numbers=RankRow.__struct_fields__)


def _listed(files: Mapping[str, str], path: Path) -> Iterator[tuple[str, int, str]]:
    """Yield name, step and digest of each entry ``"3/gradients.safetensors": digest``."""
    try:
        for key, digest in files.items():
            step, _, name = key.partition("/")
            if not isinstance(digest, str):
                raise TypeError
            yield sys.intern(name), int(step), digest
    except (AttributeError, TypeError, ValueError):
        raise RecordError(f"{path}: what a row lists cannot be read; record the run again") from None
