"""Explain copies that ranks should share and do not: a reduction, an update or a norm that some ranks missed.

A self-check names each tensor whose copies differ. The first in a step is the cause of the rest: weights, then gradients, then their
global norm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from align_hooks.comparison.finding import Pattern, Words
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.patterns.sharding import AXES, CLOSE
from align_hooks.comparison.settings.recorded import HyperParameter, listed
from align_hooks.comparison.stage_result import FaultLocation
from align_hooks.messages import Argument, Message, Side, all_of, message, sentences
from align_hooks.record.check.contradictions import Contradiction, ContradictionKind
from align_hooks.record.reader import Run

FAULTS: dict[ContradictionKind, tuple[str, Pattern | None, FaultLocation]] = {
    ContradictionKind.WEIGHT_COPIES: ("rank_copies.updated_apart", Pattern.RANKS_DIFFER, FaultLocation.OPTIMIZER),
    ContradictionKind.COMPUTED_COPIES: ("rank_copies.computed_apart", Pattern.RANKS_DIFFER, FaultLocation.OPTIMIZER),
    ContradictionKind.GRADIENT_COPIES: ("rank_copies.not_reduced", Pattern.RANKS_NOT_REDUCED, FaultLocation.GRADIENTS),
    ContradictionKind.GRAD_NORM: ("rank_copies.norm_of_a_group", None, FaultLocation.CLIPPING),
}
"""What ranks should share, in the order of a step, with message, pattern and location."""
ORDER = [*FAULTS]
MISCOUNTED = {
    ContradictionKind.LEFT_OUT: ("rank_copies.left_out", FaultLocation.SELF_CHECK),
    ContradictionKind.COUNTED_ALONE: ("rank_copies.counted_alone", FaultLocation.CLIPPING),
    ContradictionKind.RANK_LEFT_OUT: ("rank_copies.rank_left_out", FaultLocation.CLIPPING),
    ContradictionKind.COPIES_COUNTED: ("rank_copies.copies_counted", FaultLocation.CLIPPING),
}
"""Tensors that a norm leaves out, or counts once more, with message and location: one alone may be the record's own, a copy."""
OF_ALL_SQUARES = (ContradictionKind.NORM_TAKEN_AGAIN, ContradictionKind.ELEMENTS)
"""Norms of other squares than those of all gradients, no tensor of which is singled out."""
OF_NORMS = (ContradictionKind.RANKS_OF_NORM, ContradictionKind.NORM_OF_RANKS, *OF_ALL_SQUARES, *MISCOUNTED)
"""Contradictions of norms, which follow from gradients that are not shared."""
Explained: TypeAlias = tuple[Words, Pattern | None, FaultLocation]
"""What a self-check found, with its pattern and where that fault is."""


def explained(pair: Pair, run: Run, side: Side, found: Sequence[Contradiction]) -> Explained | None:
    """Return the one fault of a run that all explains which its self-check found; None where none is known."""
    ways = (held_twice, not_shared, norm_by_a_factor, miscounted)
    return not_marked(pair, run, side, found) or next((known for way in ways if (known := way(run, side, found)) is not None), None)


def not_marked(pair: Pair, run: Run, side: Side, found: Sequence[Contradiction]) -> Explained | None:
    """Return which tensors' parts a framework takes for copies on its tensor-parallel ranks: they differ at the start, and the other run's
    shapes are as many times as large as there are ranks. Megatron-LM leaves copies out of its norm."""
    ranks = next(iter(run.manifests.values())).place.get("tp_size", 1)
    other = pair.pieces(next(each for each in pair.runs if each is not run)) if ranks > 1 and not pair.is_itself else {}
    mine, names = pair.pieces(run) if other else {}, []
    for each in found:
        if each.kind is ContradictionKind.WEIGHT_COPIES and differs_along(run, each, "tp") and each.name in other:
            sizes = list(zip(mine[each.name], other[each.name], strict=False))
            if sum(ours != theirs for ours, theirs in sizes) == 1 and any(theirs == ours * ranks for ours, theirs in sizes):
                names.append(each.name)
    if not names:
        return None
    words = message("rank_copies.not_marked", side=side, names=listed([*dict.fromkeys(names)]), count=ranks)
    return words, Pattern.NORM_MISCOUNTS, FaultLocation.CLIPPING


def held_twice(run: Run, side: Side, found: Sequence[Contradiction]) -> Explained | None:
    """Return what several ranks hold as their own: other tensors under one name where they differ, else one tensor that the framework's
    norm counts on each; None where there is nothing."""
    held = [each for each in found if each.kind is ContradictionKind.HELD_TWICE]
    axes = axes_apart(run, held)
    if not axes:
        return None
    names = [each.name for each in held]
    apart = any(each.kind in FAULTS and each.name in names for each in found)
    shared: dict[str, Argument] = {"side": side, "axes": in_words(axes), "names": listed(names)}
    if apart:
        return message("rank_copies.named_alike", **shared), Pattern.NAMED_ALIKE, FaultLocation.WEIGHTS
    return message("rank_copies.counted_twice", **shared), Pattern.NORM_MISCOUNTS, FaultLocation.CLIPPING


def not_shared(run: Run, side: Side, found: Sequence[Contradiction]) -> Explained | None:
    """Return what the ranks of a run do not share first; None for anything else that the self-check found."""
    causes = [each for each in found if each.kind in ORDER]
    if not causes or not all(each.kind in (*ORDER, *OF_NORMS) for each in found):
        return None
    first = min(causes, key=lambda each: (each.step, ORDER.index(each.kind)))
    if first.step > min(each.step for each in found):
        return None
    alike = [each for each in found if (each.step, each.kind) == (first.step, first.kind)]
    axes = axes_apart(run, alike)
    if not axes:
        return None
    id, pattern, place = FAULTS[first.kind]
    begins = {ContradictionKind.WEIGHT_COPIES: run.weight_steps(), ContradictionKind.COMPUTED_COPIES: run.steps}.get(first.kind, [])
    if begins and first.step == begins[0]:
        id, place = "rank_copies.start_apart", FaultLocation.WEIGHTS
    claims = {"reference": first.first.value, "other": first.second.value}
    numbers = {name: value for name, value in claims.items() if isinstance(value, float)}
    names = listed([*dict.fromkeys(each.name for each in alike)])
    words = message(id, side=side, axes=in_words(axes), names=names, rank=first.first.rank, odd=first.second.rank, **numbers)
    groups = other_groups(run, first.name) if place is FaultLocation.OPTIMIZER else None
    return sentences(words, groups) if groups is not None else words, pattern, place


def other_groups(run: Run, name: str) -> Message | None:
    """Say that the groups that ranks put a tensor into have other rates or decays; None where these are alike or not on record."""
    optimizer = run.facts.optimizer
    groups = [group for group in optimizer.groups if name in group.parameters] if optimizer is not None else []
    for setting in (HyperParameter.LEARNING_RATE, HyperParameter.WEIGHT_DECAY):
        values = {value for group in groups if (value := getattr(group, setting.value)) is not None}
        if len(values) > 1:
            return message("rank_copies.other_groups", setting=setting, values=all_of(*sorted(values)))
    return None


def norm_by_a_factor(run: Run, side: Side, found: Sequence[Contradiction]) -> Explained | None:
    """Return by which factor a framework's norms are off at every step, and of which ranks it is the root; None where they differ in
    another way, or where anything else was found."""
    norms = [(each.first.value, each.second.value) for each in found if each.kind in OF_ALL_SQUARES]
    factors = [theirs / same for theirs, same in norms if isinstance(theirs, float) and isinstance(same, float) and same]
    if not factors or len(factors) < len(found) or not all(math.isclose(factor, factors[0], rel_tol=CLOSE) for factor in factors):
        return None
    (theirs, same), place = norms[0], next(iter(run.manifests.values())).place
    axes = [axis for axis in AXES if (ranks := place.get(f"{axis}_size", 1)) > 1 and math.isclose(factors[0] ** 2, ranks, rel_tol=CLOSE)]
    shared: dict[str, Argument] = {"side": side, "factor": factors[0], "reference": theirs, "other": same}
    if axes:
        return message("rank_copies.norm_added_again", **shared, axes=in_words(axes)), Pattern.NORM_MISCOUNTS, FaultLocation.CLIPPING
    return message("rank_copies.norm_by_a_factor", **shared), Pattern.NORM_MISCOUNTS, FaultLocation.CLIPPING


def miscounted(run: Run, side: Side, found: Sequence[Contradiction]) -> Explained | None:
    """Return what a framework's norms leave out of the same ranks, or count there, at every step; None for anything else."""
    ranks = {step: {each.rank for each in found if each.step == step} for step in {each.step for each in found}}
    held = [rank for rank in ranks[found[0].step] if rank is not None]
    if len({(each.kind, each.name) for each in found}) != 1 or any(of_step != {*held} for of_step in ranks.values()):
        return None
    theirs, ours = found[0].first.value, found[0].second.value
    if found[0].kind not in MISCOUNTED or not isinstance(theirs, float) or not isinstance(ours, float):
        return None
    id, place = MISCOUNTED[found[0].kind]
    names = {"names": found[0].name} if found[0].name else {}
    words = message(id, side=side, **names, ranks=ranks_in_words(run, held), reference=theirs, other=ours)
    return words, Pattern.NORM_MISCOUNTS, place


def ranks_in_words(run: Run, ranks: Sequence[int]) -> Message:
    """Name ranks by the coordinate that they alone have, or by their numbers."""
    for axis in AXES:
        places = {rank: manifest.place.get(axis, 0) for rank, manifest in run.manifests.items() if manifest.size(axis) > 1}
        shared = {places[rank] for rank in ranks if rank in places}
        if len(shared) == 1 and {rank for rank, place in places.items() if place in shared} == {*ranks}:
            return message("rank_copies.at", axis=message(f"rank_copies.{axis}"), number=shared.pop())
    return message("rank_copies.ranks", count=len(ranks), numbers=all_of(*sorted(ranks)))


def axes_apart(run: Run, found: Sequence[Contradiction]) -> list[str]:
    """Return the axes of the layout on which the two ranks of any contradiction have different coordinates."""
    return [axis for axis in AXES if any(differs_along(run, each, axis) for each in found)]


def in_words(axes: Sequence[str]) -> Argument:
    """Name axes of the layout."""
    return all_of(*(message(f"rank_copies.{axis}") for axis in axes))


def differs_along(run: Run, contradiction: Contradiction, axis: str) -> bool:
    """Return whether the two ranks of a contradiction have different coordinates on an axis of the layout."""
    ranks = (contradiction.first.rank, contradiction.second.rank)
    places = [run.manifests[rank].place.get(axis) for rank in ranks if rank is not None]
    return len(set(places)) > 1
