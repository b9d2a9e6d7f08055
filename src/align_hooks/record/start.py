"""The start of a rank's recording: what its directory holds already, and what becomes of it.

Nothing of an earlier record is touched before the model is built, when it is known what this start will record: a start that fails
before leaves what was there. Then one file is renamed, the rank's manifest, and with it the earlier record is replaced, or ends where
this one goes on (:mod:`.committed`). Only what does not count any more is deleted, and only after that.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from align_hooks.errors import RecordError, RefusedRun
from align_hooks.job.ranks import Launch
from align_hooks.quantities.registry import FOLDERS, KINDS, ROWS
from align_hooks.record import claim, folder, last_words, layout
from align_hooks.record.committed import Committed, read_committed
from align_hooks.record.files import read_sealed
from align_hooks.record.schema import Manifest, structured
from align_hooks.record.shard import Shard
from align_hooks.settings import PREFIX, Settings


def rows_of(run: Path, rank: int) -> list[Path]:
    """The files of rows of a rank, that of the scalars first."""
    return [layout.rows(run, kind.name, rank) for kind in ROWS]


@dataclass(frozen=True, slots=True)
class Earlier:
    """The record that a start replaces or continues: its ``manifest``, None where that cannot be read."""

    manifest: Manifest | None


def earlier(run: Path, launch: Launch, how: str, claimed: claim.Claim | None = None) -> Earlier | None:
    """The record that this start replaces or continues; None where it is the first. ``claimed`` is its own claim, None before it has one.

    Raises RefusedRun where the directory holds what this start may not touch.
    """
    path = layout.manifest(run, launch.rank)
    refuse_links(run, launch.rank)
    if claimed is None:
        claim.refuse_held(layout.claim(run, launch.rank))
    if not path.exists():
        if next(layout.step_folders(run, launch.rank), None) is not None:
            raise RefusedRun(
                f"{PREFIX}RUN={run} holds steps of rank {launch.rank} that no manifest lists, made by hand perhaps; "
                "choose another directory"
            )
        return None
    found = _read(path)
    if how == "refuse":
        over = (found and found.ended) or claimed is None or claimed.is_proof  # a start that was killed, or that failed
        if holds_anything(run) or not over:
            raise RefusedRun(
                f"{PREFIX}RUN={run} already holds a run of rank {launch.rank}; "
                f"choose another directory, or set {PREFIX}RUN_EXISTS=replace (or continue, for a resumed run)"
            )
        return None
    ranks = found.launch.world_size if found else launch.world_size
    if how == "continue" and ranks != launch.world_size and holds_anything(run):
        raise RefusedRun(
            f"{PREFIX}RUN_EXISTS=continue: {run} holds a run of {ranks} ranks and this job has {launch.world_size}; "
            "a record is of one number of ranks, choose another directory"
        )
    if how == "continue" and not found:
        raise RefusedRun(f"{path} cannot be read, so there is nothing to continue; record anew with {PREFIX}RUN_EXISTS=replace")
    return Earlier(found)


def _read(path: Path) -> Manifest | None:
    """A rank's manifest, of any format; None where it cannot be read."""
    try:
        return structured(Manifest, read_sealed(path, older=True), path, numbers=("groups",))
    except RecordError:
        return None


def refuse_links(run: Path, rank: int, steps: range = range(0)) -> None:
    """Raise RefusedRun for a link among a run's files, or among the directories of ``steps`` and the state after them: it leads to what is
    somebody else's."""
    files = [layout.run_file(run), layout.manifest(run, rank), *rows_of(run, rank)]
    numbers = (layout.number(path.name, "step_") for path in run.glob("step_*"))
    places = [layout.step(run, number, rank) for number in numbers if number is not None and steps.start <= number <= steps.stop and steps]
    for path in (*files, *(place / below for place in places for below in FOLDERS)):
        wrong = folder.link(run, path)
        if wrong is not None:
            raise RefusedRun(f"{wrong} is a link, and nothing is written through one; remove it, or choose another directory")


def refuse_unwritable(run: Path, rank: int, steps: Iterable[int]) -> None:
    """Raise RefusedRun where a step's directory is another user's: nothing is replaced by halves.

    Only what is there is looked at: a run may intend a million ``steps``."""
    there = {number for path in run.glob("step_*") if (number := layout.number(path.name, "step_")) is not None}
    for place in (layout.step(run, step, rank) for step in there.intersection(steps)):
        for path in (place, *(place / below for below in FOLDERS)):
            if path.is_dir() and not os.access(path, os.W_OK | os.X_OK):
                raise RefusedRun(f"{PREFIX}RUN={run} cannot be written: {path} is not yours to write; choose another directory")


def counted(run: Path, rank: int, manifest: Manifest) -> Committed:
    """The rows that count by a rank's ``manifest``; raises RecordError where they cannot be read."""
    return read_committed(layout.scalars(run, rank), manifest)


def went_on(manifest: Manifest, rows: Committed, first: int, again: Iterable[str]) -> list[dict[str, Any]]:
    """What the manifest of a start that goes on with step ``first`` says of the segments before it. ``manifest`` is the earlier one, with
    the ``rows`` that count; ``again`` are the kinds of states that the start records of ``first`` itself."""
    kept = []
    for one in manifest.starts():
        if one.stop is None or one.stop > first:
            one = replace(one, stop=first, again=tuple(sorted(again)))
        elif one.stop == first:  # what an earlier start went on to record again was written over, whatever became of that start
            one = replace(one, again=tuple(sorted({*one.again, *again})))
        kept.append(replace(one, recorded={**(one.recorded or {}), "scalars": rows.counts[one.id]}))
    return [to_builtins(one) for one in kept]


def refuse_other(earlier: Manifest, side: str, shards: Sequence[Shard], run: Path) -> None:
    """Raise RefusedRun where a run that is continued was of another side or model."""
    for key, other in (("side", earlier.side not in (None, side)), ("parameters", earlier.parameters not in ((), tuple(shards)))):
        if other:
            raise RefusedRun(f"{PREFIX}RUN_EXISTS=continue: {run} holds a run of another {key}; choose another directory")


def remove_replaced(run: Path, launch: Launch) -> None:
    """Delete a replaced run's rows."""
    folder.remove(run, rows_of(run, launch.rank)[::-1])
    if launch.rank == 0:
        folder.remove(run, [layout.causal_mask(run)])


def remove_beyond(run: Path, launch: Launch, *, recorded: bool) -> None:
    """Delete the ranks of a larger job that no rank of this one replaces; those that recorded something only where it is replaced."""
    for rank in (one for one in layout.ranks(run) if one >= launch.world_size):
        rows = rows_of(run, rank)[::-1]
        if not recorded and (any(path.exists() for path in rows) or next(layout.step_folders(run, rank), None)):
            continue
        manifest = _read(layout.manifest(run, rank))
        steps = steps_of(manifest, readable(run, rank, manifest))
        sweep(run, rank, steps)
        remove(run, rank, steps)
        words = [last_words.path(run, rank, number) for number in last_words.SIGNALS]
        folder.remove(run, [*words, *rows, layout.manifest(run, rank), layout.claim(run, rank)])


def remove(run: Path, rank: int, steps: Iterable[int]) -> None:
    """Delete the files of a rank's steps, and the directories that this leaves empty."""
    folder.remove(run, (layout.step(run, step, rank) / name for step in steps for name in layout.FILES))


def sweep(run: Path, rank: int, steps: Iterable[int] = ()) -> None:
    """Delete what a killed process of this rank was writing, beside its manifest and rows and in ``steps``."""
    for path in (layout.manifest(run, rank), *rows_of(run, rank)):
        folder.sweep(path.parent, f"{path.name}.")
    if rank == 0:
        for path in (layout.run_file(run), layout.causal_mask(run)):
            folder.sweep(run, f"{path.name}.")
    for step in steps:
        place = layout.step(run, step, rank)
        if folder.is_own(run, place):
            for below in (place, *(place / name for name in FOLDERS)):
                folder.sweep(below)


def readable(run: Path, rank: int, manifest: Manifest | None) -> Committed | None:
    """The same rows as :func:`counted` gives; None where they cannot be read: what is replaced need not be whole."""
    try:
        return None if manifest is None else counted(run, rank, manifest)
    except RecordError:
        return None


def steps_of(manifest: Manifest | None, rows: Committed | None) -> list[int]:
    """The steps whose files are a record's by its manifest: those that its ``rows`` list, the one that was under way, the state after it,
    and those that it was deleting itself."""
    found = set(manifest.deleting if manifest else ())
    if manifest is None or rows is None:  # what cannot be read lists nothing
        return sorted(found)
    first = manifest.first_step  # which may lie beyond the rows of the run that it went on with
    begun = max(first, max(rows.rows, default=-1) + 1)
    found |= {begun, begun + 1} | set(rows.rows)
    return sorted(found.union(*rows.listed.values()))


def holds_a_run(run: Path) -> bool:
    """Whether a directory holds what ``RUN_EXISTS=refuse`` protects: anything recorded, or a rank that is recording.

    A start that recorded nothing and is over, however it ended, must not block the next.
    """
    return holds_anything(run) or any(claim.is_held(layout.claim(run, rank)) for rank in layout.ranks(run))


def holds_anything(run: Path) -> bool:
    """Whether anything was recorded in a directory, or saved by hand."""
    return any(next((run / kind.name).glob("rank_*"), None) for kind in ROWS) or next(layout.step_folders(run), None) is not None


def again(settings: Settings, first: int) -> list[str]:
    """The kinds of states that a start records of the step that it begins with."""
    return [kind.name for kind in KINDS if kind.is_state and first in settings.steps(kind)]
