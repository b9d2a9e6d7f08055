"""Explain copies that ranks should share and do not: a reduction, an update or a norm that some ranks missed.

A self-check names each tensor whose copies differ. The first in a step is the cause of the rest: weights, then gradients, then their
global norm."""

from __future__ import annotations

import math
from collections.abc import Sequence

from align_hooks.comparison.finding import Pattern
from align_hooks.comparison.patterns.sharding import AXES, CLOSE
from align_hooks.comparison.settings.recorded import listed
from align_hooks.comparison.stage_result import FaultLocation
from align_hooks.messages import Argument, Message, Side, all_of, message
from align_hooks.record.check.contradictions import Contradiction, ContradictionKind
from align_hooks.record.reader import Run

FAULTS: dict[ContradictionKind, tuple[str, Pattern | None, FaultLocation]] = {
    ContradictionKind.WEIGHT_COPIES: ("rank_copies.updated_apart", Pattern.RANKS_DIFFER, FaultLocation.OPTIMIZER),
    ContradictionKind.GRADIENT_COPIES: ("rank_copies.not_reduced", Pattern.RANKS_NOT_REDUCED, FaultLocation.GRADIENTS),
    ContradictionKind.GRAD_NORM: ("rank_copies.norm_of_a_group", None, FaultLocation.CLIPPING),
}
"""What ranks should share, in the order of a step, with message, pattern and location."""
ORDER = [*FAULTS]
OF_NORMS = (
    ContradictionKind.RANKS_OF_NORM,
    ContradictionKind.NORM_TAKEN_AGAIN,
    ContradictionKind.NORM_OF_RANKS,
    ContradictionKind.ELEMENTS,
    ContradictionKind.LEFT_OUT,
    ContradictionKind.COUNTED_ALONE,
)
"""Contradictions of norms, which follow from gradients that are not shared."""


def not_shared(run: Run, side: Side, found: Sequence[Contradiction]) -> tuple[Message, Pattern | None, FaultLocation] | None:
    """Return what the ranks of a run do not share first, with its pattern and where that fault is; None for anything else that the
    self-check found."""
    causes = [each for each in found if each.kind in ORDER]
    if not causes or not all(each.kind in (*ORDER, *OF_NORMS) for each in found):
        return None
    first = min(causes, key=lambda each: (each.step, ORDER.index(each.kind)))
    if first.step > min(each.step for each in found):
        return None
    alike = [each for each in found if (each.step, each.kind) == (first.step, first.kind)]
    axes = [axis for axis in AXES if any(differs_along(run, each, axis) for each in alike)]
    if not axes:
        return None
    id, pattern, place = FAULTS[first.kind]
    if first.kind is ContradictionKind.WEIGHT_COPIES and first.step == min(run.weight_steps()):
        id, place = "rank_copies.start_apart", FaultLocation.WEIGHTS
    claims = {"reference": first.first.value, "other": first.second.value}
    numbers = {name: value for name, value in claims.items() if isinstance(value, float)}
    shared = {
        "axes": all_of(*(message(f"rank_copies.{axis}") for axis in axes)),
        "names": listed([*dict.fromkeys(each.name for each in alike)]),
    }
    return message(id, side=side, **shared, rank=first.first.rank, odd=first.second.rank, **numbers), pattern, place


def norm_by_a_factor(run: Run, side: Side, found: Sequence[Contradiction]) -> tuple[Message, Pattern | None, FaultLocation] | None:
    """Return by which factor a framework's norms are off at every step, and of which ranks it is the root, with the place of that fault;
    None where they differ otherwise, or where anything else was found."""
    norms = [(each.first.value, each.second.value) for each in found if each.kind is ContradictionKind.NORM_TAKEN_AGAIN]
    factors = [theirs / same for theirs, same in norms if isinstance(theirs, float) and isinstance(same, float) and same]
    if not factors or len(factors) < len(found) or not all(math.isclose(factor, factors[0], rel_tol=CLOSE) for factor in factors):
        return None
    (theirs, same), place = norms[0], next(iter(run.manifests.values())).place
    axes = [axis for axis in AXES if (ranks := place.get(f"{axis}_size", 1)) > 1 and math.isclose(factors[0] ** 2, ranks, rel_tol=CLOSE)]
    shared: dict[str, Argument] = {"side": side, "factor": factors[0], "reference": theirs, "other": same}
    if axes:
        over = all_of(*(message(f"rank_copies.{axis}") for axis in axes))
        return message("rank_copies.norm_added_again", **shared, axes=over), None, FaultLocation.CLIPPING
    return message("rank_copies.norm_by_a_factor", **shared), None, FaultLocation.CLIPPING


def differs_along(run: Run, contradiction: Contradiction, axis: str) -> bool:
    """Return whether the two ranks of a contradiction have different coordinates on an axis of the layout."""
    ranks = (contradiction.first.rank, contradiction.second.rank)
    places = [run.manifests[rank].place.get(axis) for rank in ranks if rank is not None]
    return len(set(places)) > 1
