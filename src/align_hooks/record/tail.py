"""The rows of a run under way, each read once.

A row is one line with its own digest, so a line with its end is complete. A step is returned once every rank has its
row. A start that goes on from an earlier step (``ALIGN_HOOKS_RUN_EXISTS=continue``) changes which rows count: files
are then read from the beginning, and no step is returned twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct, field

from align_hooks.errors import RecordError
from align_hooks.process.storage import size_of
from align_hooks.quantities.scalars import SCALARS
from align_hooks.record.format import crash_stack, layout
from align_hooks.record.format.ending import Ending, ending
from align_hooks.record.format.files import in_words
from align_hooks.record.format.folder import inside
from align_hooks.record.format.rows import RankRow, ScalarRow
from align_hooks.record.format.schema import Manifest
from align_hooks.record.read.rows import START, Position, read_rows
from align_hooks.record.read.scalar_rows import merged_row
from align_hooks.record.reader import Run, open_run


class Followed(Struct):
    """A run under way."""

    path: Path
    last: int = -1
    """The last step returned."""
    run: Run | None = None
    _stamp: tuple[object, ...] = ()
    _read_up_to: dict[int, Position] = field(default_factory=dict)
    _waiting: dict[int, dict[int, RankRow]] = field(default_factory=dict)

    def rows(self) -> list[ScalarRow]:
        """Return the rows of steps completed since the last call, ascending; raises RecordError for an unreadable record."""
        try:
            return self._rows()
        except (OSError, ValueError) as error:
            raise RecordError(f"{getattr(error, 'filename', None) or self.path} cannot be read: {in_words(error)}") from None

    def _rows(self) -> list[ScalarRow]:
        ranks = layout.ranks(self.path)
        if not ranks:
            return []
        self._reload(ranks)
        assert self.run is not None
        if self.run.missing is not None:  # a rank has not begun
            return []
        for rank, manifest in self.run.manifests.items():
            self._read(rank, manifest)
        per_token = bool(self.run.facts.training.per_token_loss)
        completed = []
        for step in sorted(step for step, rows in self._waiting.items() if len(rows) == len(self.run.manifests)):
            rows = self._waiting.pop(step)
            if step > self.last:
                completed.append(merged_row(rows, self.run.manifests, per_token=per_token))
                self.last = step
        return completed

    def endings(self) -> list[Ending] | None:
        """Return how every rank ended, by manifest or crash stack; None while a rank may still write."""
        if self.run is None or self.run.missing is not None:
            return None
        found = []
        for rank, manifest in self.run.manifests.items():
            words = None if manifest.ended else crash_stack.read(self.path, rank)
            if not manifest.ended and words is None:
                return None
            found.append(ending(rank, manifest.end, manifest.ended, words))
        return found

    def _reload(self, ranks: Sequence[int]) -> None:
        """Read the manifests again where any changed."""
        paths = [layout.manifest(self.path, rank) for rank in ranks]
        stamp = tuple((facts.st_ino, facts.st_mtime_ns, facts.st_size) for facts in (path.lstat() for path in paths))
        if stamp == self._stamp:
            return
        before = self.run and {rank: manifest.segment for rank, manifest in self.run.manifests.items()}
        self.run, self._stamp = open_run(self.path), stamp
        if before != {rank: manifest.segment for rank, manifest in self.run.manifests.items()}:
            self._read_up_to, self._waiting = {}, {}

    def _read(self, rank: int, manifest: Manifest) -> None:
        """Read a rank's new complete lines."""
        path = inside(self.path, layout.scalars(self.path, rank))
        if not path.exists():
            return
        after = self._read_up_to.get(rank, START)
        if size_of(path) < after.offset:
            raise RecordError(f"{path} became shorter while it was followed; start again")
        for line in read_rows(path, manifest, after):
            if not line.has_end:  # the process may still be writing the line
                return
            self._read_up_to[rank] = line.end
            if line.segment.counts(SCALARS.name, line.row.step) and line.row.step > self.last:
                self._waiting.setdefault(line.row.step, {})[rank] = line.row
