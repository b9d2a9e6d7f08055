"""The files of a run by rank and their committed content; internals of :class:`.reader.Run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from msgspec import Struct

from align_hooks.errors import RecordError
from align_hooks.process.storage import size_of
from align_hooks.process.work import WorkPool
from align_hooks.quantities.local_norms import LOCAL_NORMS
from align_hooks.quantities.scalars import SCALARS
from align_hooks.record.format import layout
from align_hooks.record.format.descriptions import Description
from align_hooks.record.format.files import read_array, read_json
from align_hooks.record.format.folder import inside
from align_hooks.record.format.layout import Array
from align_hooks.record.format.rows import NormRow
from align_hooks.record.format.schema import Facts, Manifest
from align_hooks.record.format.shard import Shard
from align_hooks.record.format.structured import structured
from align_hooks.record.read.committed import Committed, read_committed
from align_hooks.record.read.lines import Lines
from align_hooks.record.read.norm_rows import NormRows, read_norm_rows
from align_hooks.record.read.rank_rows import Columns

SLOWER = 64
"""The time to read a byte of a row, in bytes of a tensor."""


class BatchSource(Struct, frozen=True):
    """The directory of a rank's batch in a run."""

    run: Path
    place: Path
    digest: str | None = None
    """The digest of batch.json; None in a directory made by hand."""

    def array(self, name: str, digest: str | None = None, *, headers_only: bool = False) -> Array:
        """Return an array by name; ``digest`` is of its file."""
        return read_array(inside(self.run, self.place / f"{name}.npy"), digest, headers_only=headers_only)

    def described(self) -> Description:
        """Return the rank's description of its batch."""
        path = self.place / layout.BATCH
        return structured(Description, read_json(inside(self.run, path), self.digest), path)


@dataclass(frozen=True, repr=False)
class RunFiles:
    """The directory of a run, its ``run.json``, and the manifest of each rank."""

    path: Path
    facts: Facts
    manifests: Mapping[int, Manifest]
    _norm_rows: dict[int, NormRows] = field(default_factory=dict, init=False, compare=False)
    _lines: dict[tuple[str, int], Lines] = field(default_factory=dict, init=False, compare=False)

    @cached_property
    def committed(self) -> dict[int, Committed]:
        """Rank to the rows that count, with their lists."""
        return {rank: _committed(self.path, rank, manifest) for rank, manifest in self.manifests.items()}

    def columns(self, steps: Sequence[int]) -> dict[int, Columns]:
        """Return the columns of each rank's rows of scalars at completed steps."""
        return {rank: committed.rows.columns(np.array(steps, np.int64)) for rank, committed in self.committed.items()}

    def shards(self, rank: int) -> Sequence[Shard]:
        """Return a rank's parameter table."""
        return self.manifests[rank].parameters

    def counted(self, rank: int, *, trainable: bool = True) -> list[Shard]:
        """Return the shards of a rank that are no copies; with ``trainable`` only trainable ones."""
        return [shard for shard in self.shards(rank) if shard.counted and (shard.trainable or not trainable)]

    def counted_once(self, rank: int, *, trainable: bool = True) -> list[Shard]:
        """Return those of :meth:`counted` that no earlier rank holds as its own too."""
        shards = self.counted(rank, trainable=trainable)
        return [shard for shard in shards if (rank, shard.name) not in self.held_twice] if self.held_twice else shards

    @cached_property
    def held_twice(self) -> dict[tuple[int, str], int]:
        """Rank and canonical name of each shard that an earlier rank holds as well, neither marked as a copy, to that rank."""
        first: dict[tuple[object, ...], int] = {}
        twice = {}
        for rank in sorted(self.manifests):
            for shard in self.shards(rank):
                # the framework's own names may be those of a stage
                if shard.counted and not shard.own and shard.elements:
                    earlier = first.setdefault((shard.name, shard.box, shard.flat), rank)
                    if earlier != rank:
                        twice[rank, shard.name] = earlier
        return twice

    def read_ahead(self, work: WorkPool) -> None:
        """Read the rows of all ranks by the workers of ``work``, where long; raises RecordError for an unreadable row."""
        paths = {rank: [layout.rows(self.path, name, rank) for name in (SCALARS.name, LOCAL_NORMS.name)] for rank in self.manifests}
        sizes = [SLOWER * sum(size_of(path) for path in of_rank) for of_rank in paths.values()]
        if not work.is_shared(sizes):
            return
        read = work.map(partial(_rows, self.path), list(self.manifests.items()), sizes)
        of_ranks = dict(zip(self.manifests, read, strict=True))
        self.__dict__["committed"] = {rank: committed for rank, (committed, _) in of_ranks.items()}
        self._norm_rows.update({rank: norms for rank, (_, norms) in of_ranks.items() if norms is not None})

    def norm_rows(self, rank: int) -> NormRows:
        """Return a rank's squared sums of all steps."""
        if rank not in self._norm_rows:
            self._norm_rows[rank] = read_norm_rows(self.lines(LOCAL_NORMS.name, rank), self.shards(rank))
        return self._norm_rows[rank]

    def weight_squares(self, rank: int, step: int) -> dict[str, float]:
        """Return the squared sums of a rank's weights after ``step`` updates, copies included."""
        if not self.has_file(rank, step, layout.SQUARED):
            return {}
        path, digest = self.file(rank, step, layout.SQUARED)
        return structured(NormRow, {"squared": read_json(path, digest)}, path, numbers=("squared",)).squared

    def batch_descriptions(self, step: int) -> dict[int, Description]:
        """Return each rank's batch.json."""
        return {rank: self.source(step, rank).described() for rank in self.manifests}

    def file(self, rank: int, step: int, name: str) -> tuple[Path, str]:
        """Return the path and the digest of a step's file, by its name in :mod:`.format.layout`.

        Raises RecordError where the file is missing or not listed, and where a link leads out of the run.
        """
        path, digest = inside(self.path, layout.step(self.path, step, rank) / name), self.recorded(rank, name).get(step)
        if digest is None or not path.exists():
            raise RecordError(f"{path} is missing; copy it again, or record step {step} again")
        return path, digest

    def has_file(self, rank: int, step: int, name: str) -> bool:
        """Whether a row lists a file."""
        return step in self.recorded(rank, name)

    def recorded(self, rank: int, name: str) -> Mapping[int, str]:
        """Return the steps of a rank's file or row, by its name in :mod:`.format.layout`, each with its digest."""
        return self.committed[rank].listed.get(name, {})

    def source(self, step: int, rank: int) -> BatchSource:
        """Return the directory of a rank's batch."""
        return BatchSource(self.path, layout.step(self.path, step, rank), self.recorded(rank, layout.BATCH).get(step))

    def lines(self, name: str, rank: int) -> Lines:
        """Return a rank's rows of a quantity, by its name."""
        if (name, rank) not in self._lines:
            self._lines[name, rank] = _lines(self.path, name, rank, self.committed[rank])
        return self._lines[name, rank]


def _committed(run: Path, rank: int, manifest: Manifest) -> Committed:
    return read_committed(inside(run, layout.scalars(run, rank)), manifest)


def _lines(run: Path, name: str, rank: int, committed: Committed) -> Lines:
    return Lines(inside(run, layout.rows(run, name, rank)), committed.listed.get(name, {}))


def _rows(run: Path, of_rank: tuple[int, Manifest]) -> tuple[Committed, NormRows | None]:
    """Return a rank's rows of scalars, and of norms or None."""
    rank, manifest = of_rank
    committed = _committed(run, rank, manifest)
    lines = _lines(run, LOCAL_NORMS.name, rank, committed)
    return committed, read_norm_rows(lines, manifest.parameters) if lines.steps else None
