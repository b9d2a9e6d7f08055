"""An earlier record in the directory of a start, which the start refuses, replaces or continues.

Nothing of an earlier record changes before the model is built, so a start that fails before that does no harm. Then
the rename of one file, the rank's manifest, replaces the earlier record, or ends it where this one goes on
(:mod:`.read.committed`). Files that do not count any more are deleted afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Sequence
from pathlib import Path

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from align_hooks.errors import RecordError, RefusedRun
from align_hooks.process.ranks import Launch, is_restart
from align_hooks.quantities.registry import FOLDERS, KINDS, ROWS
from align_hooks.record.format import crash_stack, folder, layout
from align_hooks.record.format.files import read_sealed
from align_hooks.record.format.layout import JsonObject
from align_hooks.record.format.schema import Facts, Manifest
from align_hooks.record.format.shard import Shard
from align_hooks.record.format.structured import structured
from align_hooks.record.read.committed import Committed, read_committed
from align_hooks.record.write import directory_lock
from align_hooks.settings import PREFIX, Settings


def rows_of(run: Path, rank: int) -> list[Path]:
    """Return a rank's files of rows, scalars first."""
    return [layout.rows(run, kind.name, rank) for kind in ROWS]


class Earlier(Struct, frozen=True):
    """The record that a start replaces or continues."""

    manifest: Manifest | None
    """None where it cannot be read."""
    is_own: bool = False
    """Whether an earlier start of the same job wrote it."""


def earlier(run: Path, launch: Launch, how: str, claimed: directory_lock.DirectoryLock | None = None) -> Earlier | None:
    """Return the record that this start replaces or continues; None at the first start.

    Raises RefusedRun for a record that this start may not change. ``claimed`` is this start's lock, None before it.
    """
    path = layout.manifest(run, launch.rank)
    refuse_links(run, launch.rank)
    if claimed is None and directory_lock.is_held(place := layout.claim(run, launch.rank)):
        raise directory_lock.refusal(place)
    if not path.exists():
        if next(layout.step_folders(run, launch.rank), None) is not None:
            raise RefusedRun(
                f"{PREFIX}RUN={run} holds steps of rank {launch.rank} that no manifest lists, made by hand perhaps; "
                "choose another directory"
            )
        return None
    manifest = _read(path)
    is_own = manifest is not None and is_restart(manifest.launch.launchers, launch.launchers)
    if how == "refuse" and not is_own:
        over = (manifest and manifest.ended) or claimed is None or claimed.is_proof  # the earlier start ended, failed or was killed
        if holds_anything(run) or not over:
            raise _taken(run, launch.rank, rows=holds_rows(run) or not over)
        return None
    ranks = manifest.launch.world_size if manifest else launch.world_size
    if (how == "continue" or is_own) and ranks != launch.world_size and holds_anything(run):
        raise RefusedRun(
            f"{PREFIX}RUN={run} holds a run of {ranks} ranks and this job has {launch.world_size}; "
            "a record is of one number of ranks, choose another directory"
        )
    if how == "continue" and not manifest:
        raise RefusedRun(f"{path} cannot be read, so there is nothing to continue; record anew with {PREFIX}RUN_EXISTS=replace")
    return Earlier(manifest, is_own)


def refuse_finished(run: Path, how: str, launch: Launch) -> None:
    """Raise RefusedRun, before a command is started, for a directory with a run that ended."""
    # a run that has not ended may be this job's on another node, and a launcher may go on with its own
    manifest = _read(layout.manifest(run, 0)) if how == "refuse" and launch.world_size == 1 else None
    is_over = manifest is not None and manifest.ended is not None and not manifest.launch.launchers.keys() & launch.launchers.keys()
    if is_over and holds_anything(run):
        raise _taken(run, 0, rows=holds_rows(run))


def _taken(run: Path, rank: int, *, rows: bool) -> RefusedRun:
    holds = "already holds a run" if rows else "holds what a start wrote before it completed a step,"
    return RefusedRun(
        f"{PREFIX}RUN={run} {holds} of rank {rank}; "
        f"choose another directory, or set {PREFIX}RUN_EXISTS=replace (or continue, for a resumed run)"
    )


def _read(path: Path) -> Manifest | None:
    """Return a rank's manifest, of any format; None where it cannot be read."""
    try:
        return structured(Manifest, read_sealed(path), path, numbers=("groups",))
    except RecordError:
        return None


def refuse_links(run: Path, rank: int, steps: range = range(0)) -> None:
    """Raise RefusedRun for a link among a run's files, or in ``steps`` and the state after them."""
    files = [layout.run_file(run), layout.manifest(run, rank), *rows_of(run, rank)]
    places = [layout.step(run, step, rank) for step, _ in layout.steps(run) if steps and steps.start <= step <= steps.stop]
    for path in (*files, *(place / below for place in places for below in FOLDERS)):
        if link := folder.link(run, path):
            raise RefusedRun(f"{link} is a link, and nothing is written through one; remove it, or choose another directory")


def refuse_unwritable(run: Path, rank: int, *among: Container[int]) -> None:
    """Raise RefusedRun where a step's directory is not writable, so that nothing is replaced by halves."""
    # the directories that exist are walked, not the steps: a run may intend 10**9 of them
    for place in (layout.step(run, step, rank) for step, _ in layout.steps(run) if any(step in steps for steps in among)):
        for path in (place, *(place / below for below in FOLDERS)):
            if path.is_dir() and not os.access(path, os.W_OK | os.X_OK):
                raise RefusedRun(f"{PREFIX}RUN={run} cannot be written: {path} is not yours to write; choose another directory")


def counted(run: Path, rank: int, manifest: Manifest | None, *, replaced: bool = False) -> Committed | None:
    """Return the rows that count by a rank's ``manifest``; None without one, and for unreadable rows of a ``replaced`` record."""
    try:
        return None if manifest is None else read_committed(layout.scalars(run, rank), manifest)
    except RecordError:
        if not replaced:
            raise
        return None


def earlier_segments(manifest: Manifest, rows: Committed, first: int, settings: Settings) -> list[JsonObject]:
    """Return the segments before a start that goes on with step ``first`` and the ``settings``."""
    again = [kind.name for kind in KINDS if kind.is_state and first in settings.steps(kind)]  # states that it records of that step
    kept = []
    for segment in manifest.starts():
        if segment.stop is None or segment.stop > first:
            segment = replace(segment, stop=first, again=tuple(sorted(again)))
        elif segment.stop == first:  # an earlier start that recorded kinds again wrote over them, even if it failed later
            segment = replace(segment, again=tuple(sorted({*segment.again, *again})))
        kept.append(replace(segment, recorded={**(segment.recorded or {}), "scalars": rows.counts[segment.id]}))
    return [to_builtins(segment) for segment in kept]


REPLAYS = {
    "injected": ("INJECT_GRADIENTS", "was injected with gradients of"),
    "routed": ("REPLAY_ROUTING", "gave its tokens to the experts of"),
    "forced": ("TEACHER", "had its blocks fed with what was recorded of"),
}
"""Field of a run's facts for a replay of another run, to the variable and the words of a refusal."""


def continued(earlier: Facts, facts: JsonObject, first: int, run: Path, *, kept: int = 0) -> JsonObject:
    """Return the ``facts`` of a segment that begins with step ``first``, with the id, overrides and replays of ``earlier``.

    ``kept`` is the number of earlier steps that stay. Raises RefusedRun where these steps replayed another run than
    this segment: a record names one source.
    """
    merged = dict(facts)
    if merged.get("planned_steps") is not None:
        merged["planned_steps"] += kept
    if earlier.run_id is not None:
        merged["run_id"] = earlier.run_id
    overrides = list(facts.get("overrides", ()))
    merged["overrides"] = [*(override for override in map(to_builtins, earlier.overrides) if override not in overrides), *overrides]
    for key, (variable, was) in REPLAYS.items():
        before, after = getattr(earlier, key), facts.get(key) or {}
        steps = [step for step in before.steps if step < first]
        if steps and after and after["run_id"] != before.run_id:
            raise RefusedRun(
                f"{PREFIX}RUN={run} {was} {before.run} up to step {steps[-1]}, "
                f"now {PREFIX}{variable} names {after['run']}; choose another directory"
            )
        if steps:
            merged[key] = {**to_builtins(before), **after, "steps": [*steps, *after.get("steps", ())]}
    return merged


def refuse_other(earlier: Manifest, side: str | None, shards: Sequence[Shard], run: Path) -> None:
    """Raise RefusedRun where the earlier run was of another side or model."""
    for key, differs in (("side", earlier.side not in (None, side)), ("parameters", earlier.parameters not in ((), tuple(shards)))):
        if differs:
            raise RefusedRun(f"{PREFIX}RUN={run} holds a run of another {key}; choose another directory")


def remove_beyond(run: Path, launch: Launch, *, recorded: bool) -> None:
    """Delete the ranks of a larger job that this job lacks; ranks with recorded data only with ``recorded``."""
    for rank in (rank for rank in layout.ranks(run) if rank >= launch.world_size):
        rows = rows_of(run, rank)[::-1]
        if not recorded and (any(path.exists() for path in rows) or next(layout.step_folders(run, rank), None)):
            continue
        manifest = _read(layout.manifest(run, rank))
        steps = steps_of(manifest, counted(run, rank, manifest, replaced=True))
        sweep(run, rank, steps)
        remove(run, rank, steps)
        words = [layout.last_words(run, rank, number.name) for number in crash_stack.SIGNALS]
        folder.remove(run, [*words, *rows, layout.manifest(run, rank), layout.claim(run, rank)])


def remove(run: Path, rank: int, steps: Iterable[int]) -> None:
    """Delete the files of a rank's steps, and the directories that this leaves empty."""
    folder.remove(run, (layout.step(run, step, rank) / name for step in steps for name in layout.FILES))


def sweep(run: Path, rank: int, steps: Iterable[int] = ()) -> None:
    """Delete the temporary files of this rank's killed processes, beside its manifest and rows and in ``steps``."""
    of_run = (layout.run_file(run), layout.causal_mask(run)) if rank == 0 else ()
    for path in (layout.manifest(run, rank), *rows_of(run, rank), *of_run):
        folder.sweep(path.parent, f"{path.name}.")
    for step in steps:
        place = layout.step(run, step, rank)
        if folder.link(run, place) is None:
            for below in (place, *(place / name for name in FOLDERS)):
                folder.sweep(below)


def steps_of(manifest: Manifest | None, rows: Committed | None) -> list[int]:
    """Return the steps that may have files of a record: listed steps, the step under way with the state after it, and
    the steps that the record was deleting."""
    deleting = manifest.deleting if manifest else ()
    if manifest is None or rows is None:  # a manifest or rows that cannot be read list nothing
        return sorted({*deleting})
    # the first step may lie beyond the rows of the run that the start went on with
    begun = max(manifest.first_step, max(rows.rows, default=-1) + 1)
    return sorted({*deleting, begun, begun + 1, *rows.rows}.union(*rows.listed.values()))


def holds_a_run(run: Path) -> bool:
    """Whether ``RUN_EXISTS=refuse`` protects a directory: something was recorded in it, or a rank is recording."""
    # a start that is over and recorded nothing, however it ended, must not block the next
    return holds_anything(run) or any(directory_lock.is_held(layout.claim(run, rank)) for rank in layout.ranks(run))


def holds_anything(run: Path) -> bool:
    """Whether anything was recorded in a directory, or saved by hand."""
    # a start that fails in its first step has no rows, but has written its weights
    return holds_rows(run) or next(layout.step_folders(run), None) is not None


def holds_rows(run: Path) -> bool:
    """Whether a rank has rows in a directory."""
    return any(next((run / kind.name).glob("rank_*"), None) for kind in ROWS)
