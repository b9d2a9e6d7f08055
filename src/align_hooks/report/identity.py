"""Who the sides of a page are: framework and version, precision, layout, steps, when it was recorded, and where it lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from align_hooks.comparison.verdict import RunSummary
from align_hooks.messages import Argument, Message, Side, message
from align_hooks.report.console import plain


@dataclass(frozen=True, slots=True)
class Identity:
    """One side as the head of a page shows it; what is not on record is empty. ``look`` is how the style sheet colours its swatch."""

    role: Argument
    look: str
    path: str
    framework: str = ""
    stands_on: str = ""
    precision: str = ""
    layout: Message | None = None
    steps: Message | None = None
    recorded: str = ""


def of_runs(sides: Sequence[RunSummary]) -> list[Identity]:
    """Of a run alone, or of reference and candidate."""
    roles: Sequence[Argument] = list(Side) if len(sides) > 1 else [message("page.group_run")]
    return [of_run(role, look, side) for role, look, side in zip(roles, Side, sides, strict=False)]


def of_run(role: Argument, look: Side, side: RunSummary) -> Identity:
    """Of one run."""
    return Identity(
        role,
        look,
        plain(side.path),
        plain(side.framework),
        plain(side.stands_on),
        plain(side.precision),
        layout(side),
        message("steps.count", count=side.steps),
        at(side.recorded) or plain(side.facts.created or ""),
    )


def of_watched(reference: RunSummary, candidate: str) -> list[Identity]:
    """Of a finished reference and of a job that runs, of which the path is known."""
    return [of_run(Side.REFERENCE, Side.REFERENCE, reference), Identity(Side.CANDIDATE, Side.CANDIDATE, plain(candidate))]


def layout(side: RunSummary) -> Message | None:
    """Its ranks, and the sizes of the parallel dimensions."""
    if not side.ranks:
        return None
    if not side.laid_out:
        return message("health.ranks", count=side.ranks)
    return message("health.ranks_laid_out", count=side.ranks, layout=side.laid_out)


def at(time: datetime | None) -> str:
    """A time to the minute, with its zone where that is known; empty where there is no time."""
    return "" if time is None else f"{time:%Y-%m-%d %H:%M %Z}".rstrip()
