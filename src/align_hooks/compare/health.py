"""One run by itself: what it holds, whether its record is whole and does not contradict itself, and what its training looks like.

What ``show`` shows. A run is looked at before it is compared: a reference that is not healthy makes no verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from align_hooks.compare.curves import of_one, side
from align_hooks.compare.findings import contradictions, copies_alike
from align_hooks.compare.verdict import Curve, Finding, RunSummary, when

CLEAN, UNWELL, UNREADABLE = 0, 1, 3


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank: its place in the layout, how it ended, its hooks with how often each fired, and how much it recorded of each kind."""

    rank: int
    host: str
    place: str
    ended: str
    hooks: Mapping[str, Any]
    recorded: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Health:
    """``holds`` is what ``record.holdings`` gives; ``problems`` say why the record is not whole, ``contradictions`` what it says twice and
    differently, ``remarks`` what its training did that a reader should know, of which ``unwell`` says whether any is a fault."""

    side: RunSummary
    planned: int | None
    holds: Sequence[Any]
    ranks: tuple[Rank, ...]
    problems: tuple[str, ...]
    checked: str
    contradictions: tuple[Finding, ...]
    remarks: tuple[str, ...]
    unwell: bool
    curves: tuple[Curve, ...]

    @property
    def exit_code(self) -> int:
        """0 clean, 3 not whole, 1 whole but contradicts itself or holds numbers that are not finite."""
        return UNREADABLE if self.problems else UNWELL if self.contradictions or self.unwell else CLEAN

    @property
    def verdict(self) -> str:
        """The same in words."""
        return {CLEAN: "clean", UNWELL: "unwell", UNREADABLE: "incomplete"}[self.exit_code]


def health(run: Any, holds: Sequence[Any], not_whole: Sequence[str], verified: Sequence[str] = ()) -> Health:
    """Of a run made by ``open_run``, what it holds, and what of it is not whole; ``verified`` says what its digests were held against."""
    rows = run.scalars()
    check = run.self_check
    faults = list(not_finite(rows))
    return Health(
        side=side(run),
        planned=run.facts.get("planned_steps") if isinstance(run.facts.get("planned_steps"), int) else None,
        holds=tuple(holds),
        ranks=tuple(map(ranked, sorted(run.manifests.items()))),
        problems=(*run.problems, *not_whole),
        checked=checked(check) if run.manifests else "a directory made by hand says nothing of itself",
        contradictions=tuple(contradictions(check.contradictions)),
        remarks=(*faults, *verified, *remarks(run, rows)),
        unwell=bool(faults),
        curves=of_one(rows),
    )


def ranked(given: tuple[int, Mapping[str, Any]]) -> Rank:
    """One rank's manifest, in short."""
    rank, manifest = given
    place = manifest.get("place") or {}
    where = " ".join(f"{name}{place[name]}" for name in ("dp", "tp", "pp", "cp", "ep") if place.get(f"{name}_size", 1) > 1)
    launch, hooks, recorded = (manifest.get(name) or {} for name in ("launch", "hooks", "recorded"))
    return Rank(rank, str(launch.get("host", "")), where or "-", str(manifest.get("ended") or "never ended"), hooks, recorded)


def checked(check: Any) -> str:
    """What a record was held against, in words."""
    if not check.steps and not check.unchecked:
        return f"no step's norms were recorded beside the framework's own (ALIGN_HOOKS_LOCAL_NORMS), {copies_alike(check.copies)}"
    held = f"norms of {len(check.steps)} of {len(check.steps) + len(check.unchecked)} steps are the framework's own"
    return f"{held} (its rounding {check.inexact:.1e}), {copies_alike(check.copies)}"


def not_finite(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Losses, and norms of updates that were not skipped, that are NaN or infinite."""
    for name in ("loss", "grad_norm"):
        bad = [row["step"] for row in rows if row.get(name) is not None and not math.isfinite(row[name]) and not row.get("skipped")]
        if bad:
            yield f"{name} is not finite at {len(bad)} steps, first {when(bad[0])}"


def remarks(run: Any, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What else a reader should know."""
    losses = [row["loss"] for row in rows if row.get("loss") is not None]
    if losses:
        yield f"loss from {losses[0]:.6g} to {losses[-1]:.6g} over {len(rows)} steps"
    if run.unrecorded_inputs:
        yield f"the model is given {', '.join(run.unrecorded_inputs)} beside the batch, which is neither recorded nor replayed"
    if run.without_digests:
        yield run.without_digests
    for one in run.weaker:
        yield f"the file system that it was recorded on is weaker than a record counts on: {one}"
    skipped = [row["step"] for row in rows if row.get("skipped")]
    if skipped:
        yield f"{len(skipped)} updates were skipped for an overflow, first {when(skipped[0])}"
    seconds = [row["seconds"] for row in rows[1:] if row.get("seconds")]
    if seconds:
        yield f"{median(seconds):.3g} seconds a step (median)"
    changed = [one for one in run.facts.get("overrides") or () if isinstance(one, dict)]
    if changed:
        yield f"{len(changed)} settings of the framework were changed, as asked: run.json lists them under overrides"
