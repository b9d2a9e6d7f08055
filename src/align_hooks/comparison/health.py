"""One run by itself: its contents, whether its record is complete and consistent, and how training went.

A run is examined before it is compared: an unhealthy reference makes no verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from statistics import median

from msgspec import Struct

from align_hooks.comparison.curves import of_one, side
from align_hooks.comparison.finding import Finding, Metric, Words, when
from align_hooks.comparison.findings import contradictions, copies_alike
from align_hooks.comparison.patterns.sharding import AXES
from align_hooks.comparison.settings.recorded import of_no_family
from align_hooks.comparison.verdict import Curve, RunSummary
from align_hooks.messages import message, sentences, terms
from align_hooks.quantities.local_norms import LOCAL_NORMS
from align_hooks.quantities.weights import NO_FAMILY, unknown_of
from align_hooks.record.batch_statistics import of_data
from align_hooks.record.check.self_check import SelfCheck
from align_hooks.record.format.rows import ScalarRow
from align_hooks.record.format.schema import HookCount
from align_hooks.record.inventory import Holding
from align_hooks.record.read.problems import Problem
from align_hooks.record.reader import Run


class Condition(Enum):
    """State of a run: incomplete, unwell (contradicts itself, or has numbers that are not finite), or clean."""

    CLEAN = "clean"
    UNWELL = "unwell"
    INCOMPLETE = "incomplete"


class Rank(Struct, frozen=True):
    """One rank."""

    rank: int
    host: str
    place: str
    """Coordinates along the axes with more than one rank; ``-`` without any."""
    ended: Words
    hooks: Mapping[str, HookCount]
    recorded: Mapping[str, int]
    """Kind to the number of its records."""


class Health(Struct, frozen=True):
    """The health of a run."""

    side: RunSummary
    planned: int | None
    """Steps that the run was to make; None where unknown."""
    holds: Sequence[Holding]
    ranks: tuple[Rank, ...]
    problems: tuple[Problem, ...]
    checked: Words
    contradictions: tuple[Finding, ...]
    """Differences between two accounts of one quantity in the record."""
    remarks: tuple[Words, ...]
    unwell: bool
    """Whether a remark is a fault."""
    curves: tuple[Curve, ...]
    contradicted: Words | None = None
    """Causes of the contradictions, the layout of the ranks or the script's own loss function; None without any."""

    @property
    def condition(self) -> Condition:
        """Return the verdict on this run."""
        if self.problems:
            return Condition.INCOMPLETE
        return Condition.UNWELL if self.contradictions or self.unwell else Condition.CLEAN

    @property
    def exit_code(self) -> int:
        """Return the exit code of the contract."""
        return {Condition.CLEAN: 0, Condition.UNWELL: 1, Condition.INCOMPLETE: 3}[self.condition]


def health(run: Run, holds: Sequence[Holding], not_whole: Sequence[Problem], verified: Words | None = None) -> Health:
    """Judge a run made by ``open_run``; ``not_whole`` are problems of incomplete files, ``verified`` describes the check of digests."""
    rows, check = run.rows, run.self_check
    faults, verification = list(not_finite(rows)), [] if verified is None else [verified]
    causes = {"health.contradicts_itself": check.of_layout, "health.weighs_otherwise": check.of_losses}
    contradicted = [message(id) for id, found in causes.items() if found]
    return Health(
        side=side(run),
        planned=run.facts.planned_steps,
        holds=tuple(holds),
        ranks=tuple(described(run, rank) for rank in sorted(run.manifests)),
        problems=(*run.problems, *not_whole),
        checked=checked(check, asked=bool(run.asked(LOCAL_NORMS.name))) if run.manifests else message("health.made_by_hand"),
        contradictions=tuple(contradictions(check.contradictions)),
        remarks=(*faults, *of_data(run), *verification, *remarks(run, rows)),
        unwell=bool(faults),
        curves=of_one(rows),
        contradicted=sentences(*contradicted) if contradicted else None,
    )


def described(run: Run, rank: int) -> Rank:
    """Summarise a rank's manifest."""
    manifest = run.manifests[rank]
    place = " ".join(f"{axis}{manifest.place.get(axis, 0)}" for axis in AXES if manifest.size(axis) > 1)
    return Rank(rank, manifest.launch.host, place or "-", run.endings[rank].message, manifest.hooks, manifest.recorded)


def checked(check: SelfCheck, *, asked: bool = False) -> Words:
    """Describe the checks of a record; ``asked`` says whether norms were asked for."""
    copies, count, every = copies_alike(check.copies), len(check.steps), len(check.steps) + len(check.unchecked)
    if every:
        return message("health.norms", count=count, every=every, error=check.inexact, copies=copies)
    return message("health.no_norms_of_any_step" if asked else "health.no_norms", copies=copies)


def not_finite(rows: Sequence[ScalarRow]) -> Iterator[Words]:
    """Yield a remark for losses, and for norms of updates that were not skipped, that are NaN or infinite."""
    for name, quantity in (("loss", Metric.LOSS), ("grad_norm", Metric.GRAD_NORM)):
        if bad := [row.step for row in rows if not math.isfinite(getattr(row, name) or 0.0) and not row.skipped]:
            yield message("health.not_finite", quantity=quantity, count=len(bad), first=when(bad[0]))


def remarks(run: Run, rows: Sequence[ScalarRow]) -> Iterator[Words]:
    """Yield what else a reader should know."""
    if NO_FAMILY in run.facts.model:
        yield message("health.no_family", what=of_no_family(run.facts.model))
    if names := unknown_of(run.facts.model):
        yield message("health.unknown_settings", names=terms(names))
    if losses := [row.loss for row in rows if row.loss is not None]:
        yield message("health.losses", first=float(losses[0]), last=float(losses[-1]), count=len(rows))
    if names := run.stale_main_parameters:
        yield message("health.stale_main_parameters", count=len(names), first=names[0])
    if run.unrecorded_inputs:
        yield message("run.unrecorded_inputs", names=terms(run.unrecorded_inputs))
    if run.facts.distilled is not None:
        yield message("health.distilled", names=terms(run.facts.distilled.left_out))
    for weakness in run.storage_limitations:
        yield message("run.storage_limitations", weakness=weakness)
    if skipped := [row.step for row in rows if row.skipped]:
        yield message("health.skipped", count=len(skipped), first=when(skipped[0]))
    if seconds := [row.seconds for row in rows[1:] if row.seconds]:
        yield message("health.seconds", seconds=float(median(seconds)))
    if run.facts.overrides:
        yield message("health.overrides", count=len(run.facts.overrides))
