"""The rows of a rank that count, with the files and lines that these rows list by digest.

The record changes in one moment, the rename of a manifest: it says which starts of the job, and which of their steps,
count.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from align_hooks.errors import RecordError
from align_hooks.quantities.scalars import SCALARS
from align_hooks.record.format.schema import Json, Manifest
from align_hooks.record.read.rank_rows import RankRows, RowCollector
from align_hooks.record.read.rows import read_rows


class Committed(Struct):
    """One rank's rows that count."""

    rows: RankRows
    listed: dict[str, dict[int, str]]
    """Name of :mod:`.format.layout` to step to digest."""
    counts: Counter[str]
    """Segment to the number of its distinct rows."""


def read_committed(path: Path, manifest: Manifest) -> Committed:
    """Return the rows in a file of scalars that count by the ``manifest``: of each step the last.

    Raises RecordError as :func:`.read_rows` does, and for a list of files that cannot be read.
    """
    listed: dict[str, dict[int, str]] = {}
    for name, number, digest in _entries(manifest.files, path):
        listed.setdefault(name, {})[number] = digest
    rows, counts, seen = RowCollector(path), Counter[str](), set[int]()
    for line in read_rows(path, manifest):
        row, segment = line.row, line.segment
        if row.files:
            for name, number, digest in _entries(row.files, path):
                if segment.counts(name, number):
                    listed.setdefault(name, {})[number] = digest
        if segment.counts(SCALARS.name, row.step):
            rows.add(line)
        if line.digest not in seen:  # a repeated row does not make up for a row that is gone
            counts[segment.id] += 1
            seen.add(line.digest)
    return Committed(rows.collected(), listed, counts)


def _entries(files: Json, path: Path) -> Iterator[tuple[str, int, str]]:
    """Yield name, step and digest of each entry ``"3/gradients.safetensors": digest``."""
    try:
        for key, digest in files.items():  # type: ignore[attr-defined]
            step, _, name = key.partition("/")
            if not isinstance(digest, str):
                raise TypeError
            yield sys.intern(name), int(step), digest
    except (AttributeError, TypeError, ValueError):
        raise RecordError(f"{path}: what a row lists cannot be read; record the run again") from None
