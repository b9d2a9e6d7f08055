"""The start of one rank's record, from the lock on the directory to the facts of the run."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import asdict

from align_hooks.errors import RecordError, RefusedRun
from align_hooks.process.ranks import Launch
from align_hooks.quantities.scalars import SCALARS
from align_hooks.record.format import folder, layout
from align_hooks.record.format.files import read_sealed
from align_hooks.record.format.layout import JsonObject
from align_hooks.record.format.schema import Facts
from align_hooks.record.format.shard import Shard
from align_hooks.record.format.structured import structured
from align_hooks.record.read.committed import Committed
from align_hooks.record.write import atomic, directory_lock, earlier_record, plan
from align_hooks.settings import PREFIX, Settings


class RecordStart(Struct):
    """The part of :class:`.writer.Writer` before the first step: lock, manifest, ``run.json``, the end of an earlier record.

    Raises RefusedRun where the directory cannot be used.
    """

    run: Path
    launch: Launch
    side: str | None
    settings: Settings
    written: Counter[str] = field(default_factory=Counter)
    storage_limitations: list[str] = field(default_factory=list)
    """Features that the file system lacks, see :func:`.storage_limitations.weakness`."""
    segment: str = field(default_factory=lambda: secrets.token_hex(8))
    restarts: int = 0
    """How often the job's launcher restarted the job into this record."""
    kept: set[str] = field(default_factory=set)
    """Names of :mod:`.format.layout` that the steps of earlier starts have, as far as these stay."""
    _claim: directory_lock.DirectoryLock | None = None
    _manifest: JsonObject = field(default_factory=dict)
    _earlier: earlier_record.Earlier | None = None
    _described: bool = False
    _holds_all: bool = False

    def begin(self) -> None:
        """Lock this rank's place in the directory by ``RUN_EXISTS``, without a change to files of an earlier run."""
        rank, run = self.launch.rank, self.run
        self._manifest = {
            "format": layout.FORMAT,
            "side": self.side,
            "rank": rank,
            "launch": asdict(self.launch),
            "settings": self.settings.as_text(),
            "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "ended": None,
        }
        path = layout.manifest(run, rank)
        try:
            # before a claim: a directory that is refused stays unchanged
            earlier_record.earlier(run, self.launch, self.settings.run_exists)
            folder.make(run, path.parent)
            self._claim = directory_lock.take(layout.claim(run, rank), self.launch)
            self._earlier = earlier_record.earlier(run, self.launch, self.settings.run_exists, self._claim)
            self.storage_limitations = [*filter(None, [self._claim.storage_limitations]), *atomic.weaknesses(path)]
            if self.storage_limitations:
                self._manifest["storage_limitations"] = self.storage_limitations
            ids = {"segment": self.segment, "run_id": self._run_id()} if rank == 0 else {}
            self._claim.add(started=self._manifest["started"], **ids)
            if self._earlier is None and rank == 0:  # other ranks wait until rank 0 is known to be of this job
                (atomic.write_sealed if path.exists() else atomic.create)(path, self._manifest)
        except FileExistsError:
            raise self._refused(f"{path} was made by another job in this moment; choose another directory") from None
        except RecordError as error:
            raise self._refused(f"{PREFIX}RUN: {error}") from None
        except OSError as error:
            raise self._refused(
                f"{PREFIX}RUN={run} cannot be written: {error.strerror or error}; choose a directory that you may write to"
            ) from None
        except RefusedRun:
            self._refused("")
            raise

    def _refused(self, why: str) -> RefusedRun:
        """Release the lock and return the error to raise."""
        if self._claim is not None:
            self._claim.release(unused=True)
            self._claim = None
        return RefusedRun(why)

    def _run_id(self) -> str:
        """Return the id of the run that this start begins or goes on with; only rank 0's counts."""
        earlier = self._earlier
        if earlier is not None and earlier.manifest is not None and (earlier.is_own or self.settings.run_exists == "continue"):
            return earlier.manifest.run_id or self._run_facts().run_id or self.segment
        return self.segment

    def goes_on(self, first: int) -> bool:
        """Return whether steps of an earlier start stay in the record when this start begins with step ``first``."""
        earlier = self._earlier
        if earlier is None or self.settings.run_exists == "continue":
            return earlier is not None
        rows = earlier_record.counted(self.run, self.launch.rank, earlier.manifest, replaced=True) if earlier.is_own else None
        return rows is not None and min(rows.rows, default=first) < first

    def resumes(self, first: int) -> bool:
        """Return whether the job was started again and resumes its own training with step ``first``, from a checkpoint."""
        return self._earlier is not None and self._earlier.is_own and self.goes_on(first)

    def _run_facts(self) -> Facts:
        """Return the earlier record's ``run.json``."""
        path = layout.run_file(self.run)
        return structured(Facts, read_sealed(path), path, numbers=("optimizer",)) if path.exists() else Facts()

    def describe(self, *, place: Mapping[str, int], shards: Sequence[Shard], facts: JsonObject, steps: range) -> bool:
        """Write the facts that are known once model and optimizer are built, before the first step. Here an earlier record in the directory
        is replaced or continued; returns whether it is continued.

        ``facts`` are those of the whole run (versions, overrides, model, optimizer, training); rank 0 writes them.
        ``steps`` are the steps that the run intends. Raises RefusedRun where the disk cannot hold the plan, and where a
        continued run is another model or was injected from another run.
        """
        whole = all(shard.local_shape == shard.shape for shard in shards if shard.counted)
        self._holds_all = whole and all(place.get(f"{axis}_size", 1) == 1 for axis in ("tp", "pp", "ep"))
        elements = sum(shard.elements for shard in shards if shard.counted)
        planned = plan.ELEMENT * elements * plan.tensors(self.settings, steps)
        try:
            plan.refuse_full_disk(self.run, self.launch.rank, planned)
            groups = (facts.get("optimizer") or {}).get("groups", [])
            table = [asdict(shard) for shard in shards]
            self._manifest |= {"place": dict(place), "parameters": table, "groups": groups, "planned_bytes": planned}
            self._manifest |= {"first_step": steps.start, **self._ids()}
            run_facts = {"format": layout.FORMAT, "run_id": self._manifest["run_id"], "segment": self.segment, "side": self.side}
            run_facts |= {"world_size": self.launch.world_size, "created": self._manifest["started"]}
            run_facts |= {"settings": self.settings.as_text(), "planned_steps": len(steps), **facts}
            earlier = self._earlier.manifest if self._earlier is not None else None
            # a killed start may have replaced the record of rank 0 and not this rank's
            is_this_run = earlier is None or len({earlier.run_id, self._manifest["run_id"]} - {None}) < 2
            continuing = is_this_run and self.goes_on(steps.start)
            before = self._run_facts() if continuing else Facts()
            if earlier is not None and self._earlier is not None and self._earlier.is_own:
                self._manifest["restarts"] = self.restarts = earlier.restarts + 1
            rows = earlier_record.counted(self.run, self.launch.rank, earlier, replaced=not continuing)
            # run.json may be of a run that a killed start has replaced
            if before.is_there and self._manifest["run_id"] in (None, before.run_id):
                kept = sum(step < steps.start for step in rows.rows) if rows is not None else 0
                run_facts = earlier_record.continued(before, run_facts, steps.start, self.run, kept=kept)
            deleting = self._put_manifest(steps, shards, rows, continuing)
            if self.launch.rank == 0:  # at once: until then a record that is being replaced is refused
                atomic.write_sealed(layout.run_file(self.run), run_facts)
            self._delete(deleting, rows, continuing)
        except OSError as error:
            raise RefusedRun(f"{PREFIX}RUN={self.run} cannot be written: {error.strerror or error}; choose another disk") from None
        except RefusedRun:
            if self._earlier is not None and not self._described:  # the earlier record stays, and nobody holds it any more
                self._refused("")
            raise
        return continuing

    def _ids(self) -> dict[str, str | None]:
        """Return the ids of the run and of this start, which other ranks read from rank 0's lock file.

        Without such a file of its job, on a disk of its own, a rank draws a segment of its own and has no run id.
        """
        path = layout.claim(self.run, 0)
        if self.launch.rank == 0:
            return {"run_id": self._run_id(), "segment": self.segment}
        first = directory_lock.read(path)
        if directory_lock.is_of(first, self.launch) and "segment" in first:
            if self._claim is not None and self._claim.is_proof and directory_lock.has_ended(path, first):
                raise RefusedRun(f"{PREFIX}RUN={self.run}: rank 0 of this job does not record here any more; start the job again")
            earlier = self._earlier.manifest if self._earlier is not None else None
            if earlier is None or earlier.segment != first["segment"]:  # else this rank alone was started again
                self.segment = first["segment"]
            return {"run_id": first.get("run_id"), "segment": self.segment}
        if directory_lock.is_held(path):
            raise RefusedRun(
                f"{PREFIX}RUN={self.run}: rank 0 of another job records here, {directory_lock.holder(path)}; choose another directory"
            )
        return {"run_id": None, "segment": self.segment}

    def _is_of_this_job(self) -> bool:
        """Whether rank 0, where this rank sees its lock file, is of this rank's job."""
        first = directory_lock.read(layout.claim(self.run, 0)) if self.launch.rank else {}
        return not first or directory_lock.is_of(first, self.launch)

    def _put_manifest(self, steps: range, shards: Sequence[Shard], rows: Committed | None, continuing: bool) -> list[int]:
        """Commit this start's manifest in one rename; return the steps whose files do not count any more."""
        run, rank, earlier, first = self.run, self.launch.rank, self._earlier, steps.start
        path = layout.manifest(run, rank)
        self._check()
        earlier_record.refuse_links(run, rank, steps)
        known = [] if earlier is None else earlier_record.steps_of(earlier.manifest, rows)
        earlier_record.refuse_unwritable(run, rank, {*known}, steps)
        deleting = [step for step in known if not continuing or step > first]
        if earlier is not None and earlier.manifest is not None and rows is not None and continuing:
            names = {SCALARS.name: rows.rows, **rows.listed}
            self.kept = {name for name, numbers in names.items() if min(numbers, default=first) < first}
            earlier_record.refuse_other(earlier.manifest, self.side, shards, run)
            self._manifest["segments"] = earlier_record.earlier_segments(earlier.manifest, rows, first, self.settings)
        atomic.write_sealed(path, self._manifest | ({"deleting": deleting} if deleting else {}))
        self._described = True
        return deleting

    def _delete(self, steps: Sequence[int], rows: Committed | None, continuing: bool) -> None:
        """Delete the files of ``steps``, and other files of earlier records and killed processes that do not count."""
        run, rank, earlier = self.run, self.launch.rank, self._earlier
        earlier_record.sweep(run, rank, [] if earlier is None else earlier_record.steps_of(earlier.manifest, rows))
        earlier_record.remove(run, rank, steps)
        if earlier is not None and not continuing:
            folder.remove(run, earlier_record.rows_of(run, rank)[::-1])
            folder.remove(run, [layout.causal_mask(run)] if rank == 0 else [])
        if rank == 0:
            earlier_record.remove_beyond(run, self.launch, recorded=self.settings.run_exists == "replace")

    def _check(self) -> None:
        """Raise RecordError where another job has the directory now."""
        if self._claim is not None:
            self._claim.check()
