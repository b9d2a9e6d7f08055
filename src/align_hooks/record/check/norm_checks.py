"""Checks of recorded norms: against the framework's norms, and between copies on several ranks.

Each rank writes its own shards and reads no other rank's. So only a reader of all ranks can notice a shard that was
lost or counted twice: then the norm made of all squared sums is not the framework's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from align_hooks.record.check.contradictions import Contradiction, ContradictionKind, Statement, Witness
from align_hooks.record.check.tolerances import EXACT, SAME, UNKNOWN, relative_distance
from align_hooks.record.format.layout import Array
from align_hooks.record.format.rows import Norm
from align_hooks.record.read.run_rows import RunRows

ShardExtent: TypeAlias = tuple[str, tuple[tuple[int, int], ...], tuple[int, int] | None]
"""Canonical name, box and range of a shard."""
OF_DATA = ("dp", "cp", "edp")
"""Axes along which ranks compute with the same weights."""
Miscounted: TypeAlias = tuple[ContradictionKind, int | None, str]
"""What a norm miscounts on a rank: a parameter, or a kind of them; no name for everything that the rank counts or has as copies."""
KINDS = {
    (True, True): ContradictionKind.LEFT_OUT,
    (True, False): ContradictionKind.RANK_LEFT_OUT,
    (False, True): ContradictionKind.COUNTED_ALONE,
    (False, False): ContradictionKind.COPIES_COUNTED,
}
"""Whether squares are left out, and whether they are of some parameters alone, to the contradiction."""


class NormRecheck(Struct, frozen=True):
    """A norm by the framework, with its recomputations."""

    norm: float
    same: float | None
    """The square by the framework's arithmetic; None where a rank's part is unknown."""
    exact: float | None
    """The square by the definition of :mod:`.format.norms`; None where a rank's part is unknown."""
    ranks: int
    """The number of ranks that recorded the norm."""
    expected: int
    """The number of ranks that the framework reduced over."""
    repeated: tuple[float, ...]
    """The results on the other ranks."""


def rechecks(run: RunRows, step: int) -> list[NormRecheck]:
    """Return the framework's norms of a step: one, or one of experts and one of the other parameters."""
    norms = []
    for rows in _rows_of_norms(run, step):
        group, (first, *others) = _reduced_first(rows), rows.values()
        same, exact = _sum([row.same for row in group.values()]), _sum([row.exact for row in group.values()])
        norms.append(NormRecheck(first.norm, same, exact, len(group), group[min(group)].ranks, tuple(row.norm for row in others)))
    return norms


def _rows_of_norms(run: RunRows, step: int) -> list[dict[int, Norm]]:
    """Return the ranks' rows of each of the framework's norms of a step."""
    tables = {rank: run.norm_rows(rank).taken[step] for rank in run.manifests}
    longest = max(map(len, tables.values()), default=0)
    return [{rank: table[index] for rank, table in tables.items() if index < len(table)} for index in range(longest)]


def _reduced_first(rows: Mapping[int, Norm]) -> dict[int, Norm]:
    """Return the first group of ranks: data-parallel ranks without a distributed optimizer reduce over copies of the same gradients."""
    first = min(row.first for row in rows.values())
    return {rank: row for rank, row in rows.items() if row.first == first}


def _sum(parts: Sequence[float | None]) -> float | None:
    """Return the sum of all parts; None where a part is unknown."""
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def recomputed(step: int, calls: Sequence[NormRecheck]) -> Iterator[Contradiction]:
    """Yield norms that differ from their recomputation, or between ranks."""
    for call in calls:
        if call.ranks != call.expected:
            ranks = Statement(Witness.FRAMEWORK, call.expected), Statement(Witness.RECORD, call.ranks)
            yield Contradiction(step, ContradictionKind.RANKS_OF_NORM, *ranks)
        elif call.same is not None and relative_distance(call.norm, math.sqrt(call.same)) > SAME:
            norms = Statement(Witness.FRAMEWORK, call.norm), Statement(Witness.SAME_GRADIENTS, math.sqrt(call.same))
            yield Contradiction(step, ContradictionKind.NORM_TAKEN_AGAIN, *norms)
        if odd := [norm for norm in call.repeated if relative_distance(call.norm, norm) > SAME]:
            norms = Statement(Witness.FIRST_RANK, call.norm), Statement(Witness.LATER_RANK, odd[0])
            yield Contradiction(step, ContradictionKind.NORM_OF_RANKS, *norms, count=len(odd))


def lost_or_repeated(run: RunRows, step: int, calls: Sequence[NormRecheck], ours: float) -> Iterator[Contradiction]:
    """Yield a contradiction where the recorded norms, of squared sum ``ours``, do not make up the framework's."""
    if not calls:
        return
    exact = all(call.exact is not None for call in calls)
    theirs = math.fsum(call.exact if call.exact is not None else call.norm * call.norm for call in calls)
    if relative_distance(math.sqrt(theirs), math.sqrt(ours)) <= (EXACT if exact else UNKNOWN):
        return
    norms = Statement(Witness.COUNTED_GRADIENTS, math.sqrt(theirs)), Statement(Witness.RECORDED_NORMS, math.sqrt(ours))
    unknown: Miscounted = (ContradictionKind.ELEMENTS, None, "")
    for kind, rank, name in _miscounted(run, step, ours - theirs, ours * 4 * EXACT) or [unknown]:
        yield Contradiction(step, kind, *norms, name=name, rank=rank)


def _miscounted(run: RunRows, step: int, difference: float, blur: float) -> list[Miscounted]:
    """Return what the framework's norm leaves out of each rank, or counts there once more; none where any rank's part is unexplained."""
    squares = {rank: run.norm_rows(rank).named(step) for rank in run.manifests}
    rows = [_reduced_first(rows) for rows in _rows_of_norms(run, step)]
    if any(row.exact is None for of_norm in rows for row in of_norm.values()):
        found = _fitting(run, squares, difference, blur)  # of whatever rank
        return [] if found is None else [found]
    counted = {rank: math.fsum(squares[rank][shard.name] for shard in run.counted_once(rank) if shard.trainable) for rank in squares}
    theirs = {rank: math.fsum(of_norm[rank].exact or 0.0 for of_norm in rows if rank in of_norm) for rank in squares}
    odd = {rank: counted[rank] - theirs[rank] for rank in squares if abs(counted[rank] - theirs[rank]) > blur}
    found_on = [_fitting(run, {rank: squares[rank]}, missing, blur) for rank, missing in odd.items()]
    return [found for found in found_on if found is not None] if None not in found_on else []


def _fitting(run: RunRows, squares: Mapping[int, Mapping[str, float]], missing: float, blur: float) -> Miscounted | None:
    """Return the parameter of a rank whose squares are ``missing``, or the kind of parameters, with ``*`` for the numbers of layers and
    experts, or everything that the rank counts, or holds as copies where squares are too many; None where none or several fit."""
    of_one: dict[tuple[int, str], float] = {}
    of_kind: dict[tuple[int, str], float] = {}
    of_rank: dict[tuple[int, str], float] = {}
    for rank, named in squares.items():
        counts = {shard.name for shard in run.counted_once(rank)}
        for shard in run.shards(rank):
            is_counted, squared = shard.name in counts, named.get(shard.name, 0.0)
            if shard.trainable and (is_counted or missing < 0):
                kind = re.sub(r"\.\d+(?=\.)", ".*", shard.native)
                sums = [(of_one, shard.native), (of_kind, kind)] + ([(of_rank, "")] if is_counted == (missing > 0) else [])
                for sum_of, name in sums:
                    sum_of[rank, name] = sum_of.get((rank, name), 0.0) + squared
    for sum_of in (of_one, of_kind, of_rank):
        near = [key for key, squared in sum_of.items() if squared > 0 and abs(squared - abs(missing)) <= max(blur, 1e-4 * squared)]
        if near:
            rank, name = max(near)  # the first copy counts, so the last is the odd one
            return (KINDS[missing > 0, bool(name)], rank, name) if len({name for _, name in near}) == 1 else None
    return None


def copies_of(run: RunRows) -> dict[ShardExtent, list[int]]:
    """Return the extents that several ranks hold, with these ranks, the rank that counts first."""
    holders: dict[ShardExtent, list[tuple[bool, int]]] = {}
    for rank in run.manifests:
        for shard in run.shards(rank):
            if shard.trainable:
                holders.setdefault((shard.name, shard.box, shard.flat), []).append((not shard.counted, rank))
    return {extent: [rank for _, rank in sorted(ranks)] for extent, ranks in holders.items() if len(ranks) > 1}


def held_twice(run: RunRows) -> Iterator[Contradiction]:
    """Yield shards that several ranks hold and none marks as a copy."""
    for (rank, name), first in run.held_twice.items():
        claims = Statement(Witness.OWN, rank=first), Statement(Witness.OWN, rank=rank)
        yield Contradiction(min(run.steps, default=0), ContradictionKind.HELD_TWICE, *claims, name=name, rank=rank)


def unequal_gradients(run: RunRows, steps: Sequence[int], copies: Mapping[ShardExtent, list[int]], limit: float) -> Iterator[Contradiction]:
    """Yield copies of a gradient with another norm than on the rank that counts; the worst rank of each tensor and step."""
    for (name, _, _), ranks in copies.items():
        squares = np.stack([run.norm_rows(rank).squared_sums(steps, [name])[:, 0] for rank in ranks])
        for index, first, other in _unequal(squares, ranks, limit):
            yield Contradiction(steps[index], ContradictionKind.GRADIENT_COPIES, first, other, name=name, rank=other.rank)


def unequal_computed(run: RunRows, steps: Sequence[int]) -> Iterator[Contradiction]:
    """Yield weights that data-parallel ranks compute with and that have other norms; the worst rank of each weight and step."""
    groups: dict[object, list[int]] = {}
    for rank, manifest in run.manifests.items():
        place = tuple(sorted((axis, index) for axis, index in manifest.place.items() if axis not in OF_DATA))
        groups.setdefault((place, tuple(run.norm_rows(rank).weight_names)), []).append(rank)
    for ranks in (ranks for ranks in groups.values() if len(ranks) > 1):
        rows = [run.norm_rows(rank) for rank in ranks]
        for step in (step for step in steps if all(step in row.weights for row in rows)):
            squares = np.stack([row.weights[step] for row in rows])
            for index, first, other in _unequal(squares, ranks, EXACT):
                name = rows[0].weight_names[index]
                yield Contradiction(step, ContradictionKind.COMPUTED_COPIES, first, other, name=name, rank=other.rank)


def _unequal(squares: Array, ranks: Sequence[int], limit: float) -> Iterator[tuple[int, Statement, Statement]]:
    """Yield each column of squared sums, a row a rank, whose norms differ, with the first rank's and the worst rank's."""
    norms = np.sqrt(squares)
    with np.errstate(invalid="ignore"):
        error = np.abs(norms - norms[0]) / np.maximum(norms, norms[0])
    error[(norms == norms[0]) | np.isnan(norms) | np.isnan(norms[0])] = 0.0
    error[np.isnan(error)] = np.inf
    for index in np.flatnonzero((error > limit).any(axis=0)).tolist():
        worst = int(error[:, index].argmax())
        first, other = (Statement(Witness.COPY, float(norms[copy, index]), ranks[copy]) for copy in (0, worst))
        yield index, first, other


def unequal_weights(run: RunRows, step: int, copies: Mapping[ShardExtent, list[int]], limit: float) -> Iterator[Contradiction]:
    """Yield copies of a weight with another norm than on the rank that counts; the worst rank of each tensor."""
    squares = {rank: run.weight_squares(rank, step) for rank in run.manifests}
    for (name, _, _), ranks in copies.items():
        norms = {rank: math.sqrt(squares[rank][name]) for rank in ranks if name in squares[rank]}
        counted = norms.pop(ranks[0], math.nan)
        odd = [(error, rank) for rank, norm in norms.items() if (error := relative_distance(counted, norm)) > limit]
        if odd and not math.isnan(counted):
            rank = max(odd)[1]
            claims = Statement(Witness.COPY, counted, ranks[0]), Statement(Witness.COPY, norms[rank], rank)
            yield Contradiction(step, ContradictionKind.WEIGHT_COPIES, *claims, name=name, rank=rank)
