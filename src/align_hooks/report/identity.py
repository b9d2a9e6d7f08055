"""The sides of a page: framework and version, precision, layout, steps, date and path of each."""

from __future__ import annotations

from collections.abc import Sequence

from align_hooks.comparison.verdict import RunSummary
from align_hooks.messages import Argument, Message, Side, message
from align_hooks.report.console import plain
from align_hooks.report.document import Identity


def of_runs(sides: Sequence[RunSummary]) -> list[Identity]:
    """Return the identity of a single run, or those of reference and candidate."""
    roles: Sequence[Argument] = list(Side) if len(sides) > 1 else [message("page.group_run")]
    return [of_run(role, look, side) for role, look, side in zip(roles, Side, sides, strict=False)]


def of_run(role: Argument, look: Side, side: RunSummary) -> Identity:
    """Return the identity of one run."""
    path, framework, stands_on, precision = map(plain, (side.path, side.framework, side.stands_on, side.precision))
    recorded = plain(side.facts.created or "") if side.recorded is None else f"{side.recorded:%Y-%m-%d %H:%M %Z}".rstrip()
    steps = message("steps.count", count=side.steps)
    return Identity(role, look, path, framework, stands_on, precision, layout(side), steps, recorded)


def layout(side: RunSummary) -> Message | None:
    """Return a run's number of ranks, with the sizes of its parallel dimensions where they are known."""
    if not side.ranks:
        return None
    if not side.laid_out:
        return message("health.ranks", count=side.ranks)
    return message("health.ranks_laid_out", count=side.ranks, layout=side.laid_out)
