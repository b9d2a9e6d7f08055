"""Find faults of a parallel layout by their effect on gradients: a factor that all tensors share, or an error in one rank's part.

A gradient that was summed instead of averaged, or the reverse, keeps its direction: all tensors are the reference's times one number,
which is one of the run's own (its ranks, micro-batches, tokens). A shard that was dropped or not reduced leaves every other rank's
elements as they were.

Rows or columns of a weight may get a gradient in only one run, because the other does not use what they stand for: keys of a group that
no head attends with, a head whose output is dropped, half of a gate. Such rows say more than the size of an error."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from enum import Enum

import numpy as np

from align_hooks.comparison.finding import Finding, Metric, Pattern, Words
from align_hooks.comparison.metrics.measures import distances
from align_hooks.comparison.metrics.model_positions import place
from align_hooks.families.registry import end_kinds
from align_hooks.messages import Message, Side, all_of, any_of, id_of, message, sentences, terms
from align_hooks.record.format.layout import Array
from align_hooks.record.format.shard import Shard
from align_hooks.record.read.tensors import Tensors
from align_hooks.record.reader import Run

CLOSE = 1e-3
"""Relative distance of a factor from one of the run's own numbers."""
ALIKE = 0.01
"""How far the factors of two tensors may differ, of their distance from 1."""
OFF_BY_ONE = 0.05
"""How far a factor n/(n-1) or n/(n+1) may be from itself, of its distance from 1."""
AXES = ("dp", "tp", "pp", "cp", "ep")
"""Axes of a rank's coordinates."""
SHOWN = 3
"""Tensors that are searched for the rank that holds their error."""
SEARCHED, NAMED = 24, 3
"""How many tensors are searched, those of the attention first, and how many are named."""
LOOKED_UP = end_kinds()
"""Kinds whose rows are used or not depending on the tokens of a batch."""


class Divisor(Enum):
    """A number by which a normalisation may multiply or divide."""

    DATA_PARALLEL_RANKS = "data-parallel ranks"
    MICRO_BATCHES_A_RANK = "micro-batches a rank"
    CONTEXT_PARALLEL_RANKS = "context-parallel ranks"
    TENSOR_PARALLEL_RANKS = "tensor-parallel ranks"
    EXPERT_PARALLEL_RANKS = "expert-parallel ranks"
    DATA_AND_CONTEXT_PARALLEL_RANKS = "data- and context-parallel ranks"
    MICRO_BATCHES = "micro-batches"
    ROWS_OF_A_MICRO_BATCH = "rows of a micro-batch"
    LOSS_SCALE = "loss scale"
    TOKENS_A_STEP = "tokens a step"
    TOKENS_A_MICRO_BATCH = "tokens a micro-batch"


OF_ALL = ("sharding.scaled", "sharding.scaled_by_own_number")
OF_EXPERTS = ("sharding.experts_scaled", "sharding.experts_scaled_by_own_number")
OF_TOKENS = (Divisor.TOKENS_A_STEP, Divisor.TOKENS_A_MICRO_BATCH)
"""Numbers that a loss may miss by one."""


def explanation(runs: tuple[Run, Run], kind: Metric, step: int, findings: Sequence[Finding]) -> tuple[Words | None, Pattern | None]:
    """Say what the findings of one exact step have in common, and which known pattern that is; None where nothing is known."""
    of_gradients = kind in (Metric.LOCAL_NORMS, Metric.GRADIENTS) and any(finding.limit_ratio > 1 for finding in findings)
    if of_gradients and (clipped := clipped_before(runs)) is not None:
        return clipped, Pattern.CLIPPED_BEFORE
    return shared(runs, kind, step, findings), None


def shared(runs: tuple[Run, Run], kind: Metric, step: int, findings: Sequence[Finding]) -> Words | None:
    """Say which factor findings share, or where in their tensors the error is; None where nothing is known."""
    experts = [finding for finding in findings if ".experts." in finding.name]
    rest = [finding for finding in findings if ".experts." not in finding.name]
    factor, (scaled, by_own_number) = common_factor(findings), OF_ALL
    if factor is None and experts and rest and all(finding.limit_ratio <= 1 for finding in rest):
        factor, (scaled, by_own_number) = common_factor([finding for finding in experts if finding.limit_ratio > 1]), OF_EXPERTS
    if factor is not None:
        if (source := origin(factor, runs)) is None:
            return message(scaled, what=kind, factor=factor)
        return message(by_own_number, what=kind, factor=factor, origin=source)
    # a norm says nothing of places; its tensor does, if stored
    kind = Metric.GRADIENTS if kind is Metric.LOCAL_NORMS else kind
    if not all(run.has(kind, step) for run in runs):
        return None
    bad = sorted((finding for finding in findings if finding.limit_ratio > 1), key=lambda finding: -finding.limit_ratio)
    tensors = tuple(getattr(run, kind.value)(step) for run in runs)
    places = [words for words in (place_of_error(runs, tensors, finding) for finding in bad[:SHOWN]) if words is not None]
    if places:
        return sentences(*places)
    return unused(tensors, bad) if kind is Metric.GRADIENTS else None


def common_factor(findings: Sequence[Finding]) -> float | None:
    """Return the one number, not 1, by which candidate tensors are the reference's; None where directions or factors differ."""
    known = [finding for finding in findings if finding.scale is not None and finding.error is not None]
    unknown = any(finding.scale is None and finding.limit_ratio > 1 for finding in findings)
    if len(known) < 2 or unknown or not all(finding.limit_ratio > 1 for finding in known):
        return None
    scales = [finding.scale for finding in known if finding.scale is not None]
    middle = sorted(scales)[len(scales) // 2]
    alike = all(abs(scale - middle) <= ALIKE * abs(middle - 1) for scale in scales)
    straight = all(finding.direction is None or finding.direction <= (finding.limit or 0.0) for finding in known)
    return middle if alike and straight and middle and math.isfinite(middle) else None


def objective_alone(runs: tuple[Run, Run], findings: Sequence[Finding]) -> Message | None:
    """Say the factor of an objective that differs beside a loss that agrees; None otherwise."""
    wrong = [finding for finding in findings if finding.limit_ratio > 1]
    if len(wrong) != 1 or wrong[0].name != "objective_loss" or wrong[0].scale is None or len(findings) < 2:
        return None
    factor = wrong[0].scale
    source = origin(factor, runs)
    if source is None:
        return message("sharding.objective_scaled", factor=factor)
    return message("sharding.objective_scaled_by_own_number", factor=factor, origin=source)


def origin(factor: float, runs: tuple[Run, Run]) -> Message | None:
    """Say which of the two runs' own numbers a factor is, one that is off by one last; None where it is none."""
    for side, run, value in ((Side.CANDIDATE, runs[1], factor), (Side.REFERENCE, runs[0], 1 / factor if factor else math.inf)):
        numbers = {divisor: number for divisor, number in own_numbers(run).items() if number > 1}
        summed = [divisor for divisor, number in numbers.items() if abs(value - number) <= CLOSE * number]
        divided = [divisor for divisor, number in numbers.items() if abs(value * number - 1) <= CLOSE]
        ids = {"sharding.sums": summed, "sharding.divides_once_more": divided}
        for id, divisors in ids.items():
            if divisors:
                words = [message(id_of(divisor), number=numbers[divisor]) for divisor in divisors]
                return message(id, side=side, what=any_of(*words) if words[1:] else words[0])
    return off_by_one(factor, runs)


def off_by_one(factor: float, runs: tuple[Run, Run]) -> Message | None:
    """Say which side divides by one token less, or one more, than it counts; None where neither."""
    ways = [
        (abs(factor - predicted) / abs(predicted - 1), id, side, divisor, number)
        for side, run, power in ((Side.CANDIDATE, runs[1], 1), (Side.REFERENCE, runs[0], -1))
        for divisor, number in own_numbers(run).items()
        if divisor in OF_TOKENS and number > 1
        for id, by in (("sharding.divides_by_one_less", -1), ("sharding.divides_by_one_more", 1))
        for predicted in [(number / (number + by)) ** power]
    ]
    none = (math.inf, "", Side.CANDIDATE, Divisor.TOKENS_A_STEP, 0.0)
    # the nearest: n/(n+1) of one side and (n-1)/n of the other differ by only 1/n of their distance from 1
    distance, id, side, divisor, number = min(ways, key=lambda way: way[0], default=none)
    return message(id, side=side, what=message(id_of(divisor), number=number)) if distance <= OFF_BY_ONE else None


def clipped_before(runs: tuple[Run, Run]) -> Message | None:
    """Say that only one side's gradients reach the optimizer with the norm ``clip_grad`` at every step: clipped already."""
    found = []
    for side, run in zip(Side, runs, strict=True):
        limit = run.facts.optimizer.clip_grad if run.facts.optimizer is not None else None
        norms = [row.grad_norm for row in run.rows if row.grad_norm is not None]
        if limit and len(norms) > 1 and all(abs(norm - limit) <= CLOSE * limit for norm in norms):
            found.append(message("sharding.clipped_before", side=side, count=len(norms), limit=limit))
    return found[0] if len(found) == 1 else None


def own_numbers(run: Run) -> dict[Divisor, float]:
    """Return the run's own numbers by which a normalisation may have multiplied or divided."""
    first = next(iter(run.manifests.values()), None)
    dp, cp, tp, ep = (first.size(axis) if first else 1 for axis in ("dp", "cp", "tp", "ep"))
    size, micro = run.facts.training.global_batch_size, run.facts.training.micro_batch_size
    parts = size // (micro * dp) if size and micro else 1
    numbers: dict[Divisor, float] = {
        Divisor.DATA_PARALLEL_RANKS: dp,
        Divisor.MICRO_BATCHES_A_RANK: parts,
        Divisor.CONTEXT_PARALLEL_RANKS: cp,
        Divisor.TENSOR_PARALLEL_RANKS: tp,
        Divisor.EXPERT_PARALLEL_RANKS: ep,
        Divisor.DATA_AND_CONTEXT_PARALLEL_RANKS: dp * cp if min(dp, cp) > 1 else 1,
        Divisor.MICRO_BATCHES: dp * parts if min(dp, parts) > 1 else 1,
        Divisor.ROWS_OF_A_MICRO_BATCH: micro or 1,
    }
    if run.rows:
        tokens = run.rows[0].valid_tokens or 1
        numbers[Divisor.LOSS_SCALE] = run.rows[0].loss_scale or 1.0
        numbers |= {Divisor.TOKENS_A_STEP: tokens, Divisor.TOKENS_A_MICRO_BATCH: tokens / (dp * parts)}
    return numbers


def place_of_error(runs: tuple[Run, Run], tensors: Sequence[Tensors], finding: Finding) -> Message | None:
    """Say which rank's part of a tensor holds its error; None where several do or the tensor is not cut."""
    name = finding.name
    ours, theirs = (named[name] for named in tensors)
    for side, run, whole in ((Side.CANDIDATE, runs[1], theirs), (Side.REFERENCE, runs[0], ours)):
        shards = [(rank, shard) for rank in run.manifests for shard in run.shards(rank)]
        parts = [(rank, shard) for rank, shard in shards if shard.name == name and shard.counted and shard.elements]
        if len(parts) < 2:
            continue
        measured = [distances(part(ours, shard), part(theirs, shard)) for _, shard in parts]
        wrong = [index for index, (error, size, _) in enumerate(measured) if not error <= (finding.limit or 0.0) * size]
        if len(wrong) == 1 and math.isfinite(measured[wrong[0]][0]):
            rank, shard = parts[wrong[0]]
            id = "sharding.rank_holds_the_error" if part(whole, shard).any() else "sharding.rank_holds_the_error_and_zeros"
            return message(id, name=name, side=side, rank=rank, place=coordinates(run, rank), region=region(shard))
    return None


def part(whole: Array, shard: Shard) -> Array:
    """Return the elements of a complete tensor that a shard holds."""
    box = whole[tuple(slice(*bounds) for bounds in shard.box)]
    return box.reshape(-1)[slice(*shard.flat)] if shard.flat else box


def coordinates(run: Run, rank: int) -> Words:
    """Return a rank's coordinates on the axes that have more than one rank."""
    manifest = run.manifests[rank]
    axes = [f"{axis} {manifest.place.get(axis, 0)}" for axis in AXES if manifest.size(axis) > 1]
    return terms(axes) if axes else message("sharding.alone")


def region(shard: Shard) -> Words:
    """Return the box of a shard, and the range of its elements."""
    cut = [
        message("sharding.columns" if axis else "sharding.rows", first=start, last=stop - 1)
        for axis, ((start, stop), size) in enumerate(zip(shard.box, shard.shape, strict=True))
        if (start, stop) != (0, size)
    ]
    if not shard.flat:
        return terms(cut) if cut else message("sharding.whole_tensor")
    first, last = shard.flat[0], shard.flat[1] - 1
    if cut:
        return message("sharding.elements_of_these", region=terms(cut), first=first, last=last)
    return message("sharding.elements", first=first, last=last)


def unused(tensors: Sequence[Tensors], findings: Sequence[Finding]) -> Words | None:
    """Say what is used on one side only, of tensors that differ; ``tensors`` are the gradients of both sides."""
    wrong = [finding.name for finding in findings if finding.limit_ratio > 1]
    names = sorted((name for name in wrong if place(name).kind not in LOOKED_UP), key=lambda name: (".self_attn." not in name, place(name)))
    parts = [part for name in names[:SEARCHED] for part in sides(name, *(tensor[name] for tensor in tensors))]
    more = len(parts) - NAMED
    return sentences(*parts[:NAMED], message("unused.and_so_on", count=more) if more > 0 else None) if parts else None


def sides(name: str, ours: Array, theirs: Array) -> Iterator[Message]:
    """Yield what one tensor has without a gradient on one side only."""
    if ours.ndim != 2 or ours.shape != theirs.shape:
        return
    for axis in range(2):
        used = [tensor.any(axis=1 - axis) for tensor in (ours, theirs)]
        for side, without in ((Side.CANDIDATE, used[0] & ~used[1]), (Side.REFERENCE, used[1] & ~used[0])):
            places = np.flatnonzero(without)
            if 0 < places.size < without.size and used[0].any() and used[1].any():
                yield message("unused.columns" if axis else "unused.rows", name=name, places=spans(places), side=side)


def spans(places: Array) -> Words:
    """Return consecutive numbers as first and last, the first two such spans."""
    groups = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
    ends = [(int(group[0]), int(group[-1])) for group in groups[:2]]
    shown = all_of(*(message("unused.span", first=first, last=last) if last > first else first for first, last in ends))
    return message("unused.and_further", places=shown) if len(groups) > 2 else shown
