"""Which rows of a rank count, and what they list.

A rank's manifest names the segments that its record is made of: one a start of the job, the earlier ones up to the step from which a
later one went on. Every row names its segment. So what belongs to the record changes in one moment, when a manifest is renamed into its
place: whatever another start left, before or after, is there and does not count. A row lists what its step wrote, each with its digest.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from align_hooks.errors import RecordError
from align_hooks.record import digests
from align_hooks.record.files import no_row, read_lines
from align_hooks.record.schema import Manifest, RankRow, Segment, structured


@dataclass(slots=True)
class Committed:
    """One rank's ``rows`` by step, and what they list: ``listed`` maps a name of :mod:`.layout` to the steps that have it, each with its
    digest. ``unlisted`` are the steps of rows that list nothing, because they were recorded before format 2; ``older`` is the segment of
    these. ``counts`` is how many rows of each segment are there.
    """

    rows: dict[int, RankRow] = field(default_factory=dict)
    listed: dict[str, dict[int, str]] = field(default_factory=dict)
    unlisted: set[int] = field(default_factory=set)
    counts: Counter[str | None] = field(default_factory=Counter)
    older: Segment | None = None

    def digest(self, name: str, step: int) -> str | None:
        """The digest of what was recorded of a step by a name; None where it has none."""
        return self.listed.get(name, {}).get(step)


def read_committed(path: Path, manifest: Manifest) -> Committed:
    """The rows of one rank that count by its ``manifest``; ``path`` is its file of scalars.

    Raises RecordError for a line that is no row, or was changed.

    Of a step that was repeated the last row counts; a last line that a killed process left torn does not.
    """
    by_id = {one.id: one for one in manifest.starts()}
    found = Committed(older=by_id.get(None))
    for name, step, digest in _listed(manifest.files, path):
        found.listed.setdefault(name, {})[step] = digest
    seen: set[str] = set()
    for number, line in enumerate(read_lines(path), 1):
        if not line.endswith(b"\n") and not digests.WHOLE_ROW.search(line):
            break  # torn: a row of which only the end of its line was not written has its digest
        row = _row(line.rstrip(b"\n"), path, number, older=None in by_id)
        segment = row.pop("segment", None)
        if segment is not None and row.pop("rank", None) != manifest.rank:
            raise no_row(path, number, " of this rank")
        digest = digests.of(line)
        found.counts[segment] += digest not in seen  # one that is there twice does not make up for one that is gone
        seen.add(digest)
        if segment not in by_id:
            continue
        _add(found, row, by_id[segment], path)
    return found


def _add(found: Committed, row: dict[str, Any], segment: Segment, path: Path) -> None:
    step, listed = row["step"], row.pop("files", None)
    for name, number, digest in _listed(listed or {}, path):
        if segment.counts(name, number):
            found.listed.setdefault(name, {})[number] = digest
    if segment.counts("scalars", step):
        found.rows[step] = structured(RankRow, row, f"{path}: step {step}", numbers=RankRow.__struct_fields__)
        (found.unlisted.add if listed is None else found.unlisted.discard)(step)


def _row(line: bytes, path: Path, number: int, *, older: bool) -> dict[str, Any]:
    try:
        row = json.loads(line) if older and not digests.is_sealed(line) else digests.opened(line)
        if "segment" in row and not digests.is_sealed(line):
            raise digests.Unsealed("it has lost its digest")
        if type(row["step"]) is not int or row["step"] < 0 or not isinstance(row.get("segment"), str | None):
            raise ValueError("step")
    except digests.Unsealed as error:
        raise no_row(path, number, f": {error}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise no_row(path, number) from None
    return dict(row)


def _listed(files: Any, path: Path) -> Iterator[tuple[str, int, str]]:
    """Name, step and digest of what a row lists as ``"3/gradients.safetensors": digest``."""
    try:
        for key, digest in files.items():
            step, _, name = key.partition("/")
            if not isinstance(digest, str):
                raise TypeError
            yield sys.intern(name), int(step), digest
    except (AttributeError, TypeError, ValueError):
        raise RecordError(f"{path}: what a row lists cannot be read; record the run again") from None
