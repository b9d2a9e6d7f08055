"""Faults of a parallel layout, told by what they do to gradients: a factor that all tensors share, or an error that one rank holds.

A gradient that was summed where it should have been averaged, or the other way round, keeps its direction: all tensors are the
reference's times one number, and that number is one of the run's own. A shard that was dropped or not reduced leaves every
other rank's elements as they were, so the error stands in the box of one rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from align_hooks.compare.unused import unused
from align_hooks.compare.verdict import Finding

CLOSE = 1e-3
"""How far a factor may be from one of the run's own numbers, relative."""
ALIKE = 0.01
"""How far the factors of two tensors may be apart, of their distance from 1."""
LESS_ONE = 0.05
"""How far a factor n/(n-1) may be from itself, of its distance from 1."""
AXES = ("dp", "tp", "pp", "cp", "ep")
"""The axes that a person places a rank by."""
SHOWN = 3
"""How many tensors are searched for the rank that holds their error."""


def explanation(runs: tuple[Any, Any], kind: str, step: int, findings: Sequence[Finding]) -> str:
    """What the findings of one exact step have in common, in words; empty where nothing is known of them."""
    factor = common_factor(findings)
    if factor is not None:
        what = "norm" if kind == "local_norms" else "tensor"
        return f"every {what} is {factor:.6g} times the reference's{origin(factor, runs)}"
    kind = "gradients" if kind == "local_norms" else kind  # a norm says nothing of places; what it is of does, where that was stored
    if not all(step in (run.gradient_steps() if kind == "gradients" else run.weight_steps()) for run in runs):
        return ""
    bad = sorted((one for one in findings if one.excess > 1), key=lambda one: -one.excess)
    tensors = tuple(getattr(run, kind)(step) for run in runs)
    told = [place_of_error(runs, tensors, one) for one in bad[:SHOWN]]
    return "; ".join(one for one in told if one) or (unused(tensors, bad) if kind == "gradients" else "")


def common_factor(findings: Sequence[Finding]) -> float | None:
    """The one number, not 1, that candidate tensors are the reference's times; None where directions differ or factors do."""
    known = [one for one in findings if one.scale is not None and one.error is not None]
    unknown = any(one.scale is None and one.excess > 1 for one in findings)
    if len(known) < 2 or unknown or not all(one.excess > 1 for one in known):
        return None
    scales = [one.scale for one in known if one.scale is not None]
    middle = sorted(scales)[len(scales) // 2]
    alike = all(abs(scale - middle) <= ALIKE * abs(middle - 1) for scale in scales)
    straight = all(one.direction is None or one.direction <= (one.limit or 0.0) for one in known)
    return middle if alike and straight and middle and math.isfinite(middle) else None


def objective_alone(runs: tuple[Any, Any], findings: Sequence[Finding]) -> str:
    """What was differentiated against what was computed: a loss that agrees and an objective that does not; empty otherwise."""
    wrong = [one for one in findings if one.excess > 1]
    if len(wrong) != 1 or not wrong[0].what.startswith("objective_loss") or wrong[0].scale is None or len(findings) < 2:
        return ""
    return f"the loss agrees, the objective is {wrong[0].scale:.6g} times the reference's{origin(wrong[0].scale, runs)}"


def origin(factor: float, runs: tuple[Any, Any]) -> str:
    """Which of the two runs' own numbers a factor is, in words."""
    for side, run, value in (("candidate", runs[1], factor), ("reference", runs[0], 1 / factor)):
        numbers = own_numbers(run)
        for what, number in numbers.items():
            if number > 1 and abs(value - number) <= CLOSE * number:
                return f": the {side} has {what}, over which it sums where the other averages"
        for what, number in numbers.items():
            if number > 1 and abs(value * number - 1) <= CLOSE:
                return f": the {side} has {what}, by which it divides once more than the other"
        for what, number in numbers.items():
            if "tokens" in what and number > 1 and abs((value - 1) * (number - 1) - 1) <= LESS_ONE:
                return f": the {side} has {what} and divides by one less"
    return ""


def own_numbers(run: Any) -> dict[str, float]:
    """Numbers of a run that a normalisation may have been multiplied or divided by, with their names."""
    place: Mapping[str, int] = next((manifest.get("place") or {} for manifest in run.manifests.values()), {})
    training = run.manifest.get("training") or {}
    dp, cp, tp = (place.get(f"{axis}_size", 1) for axis in ("dp", "cp", "tp"))
    size, micro = training.get("global_batch_size"), training.get("micro_batch_size")
    parts = size // (micro * dp) if size and micro else 1
    rows = run.scalars()
    numbers: dict[str, float] = {
        f"{dp} data-parallel ranks": dp,
        f"{parts} micro-batches a rank": parts,
        f"{cp} context-parallel ranks": cp,
    }
    numbers |= {f"{tp} tensor-parallel ranks": tp, f"{dp * cp} data- and context-parallel ranks": dp * cp}
    numbers |= {f"{dp * parts} micro-batches": dp * parts}
    if rows:
        numbers |= {f"a loss scale of {rows[0]['loss_scale']:g}": rows[0]["loss_scale"] or 1.0}
        tokens = rows[0]["valid_tokens"] or 1
        numbers |= {f"{tokens} tokens a step": tokens, f"{tokens / (dp * parts):g} tokens a micro-batch": tokens / (dp * parts)}
    return numbers


def place_of_error(runs: tuple[Any, Any], tensors: Sequence[Mapping[str, Any]], finding: Finding) -> str:
    """Which one rank's part of a tensor holds its error, in words; empty where several do or the tensor is not cut."""
    name = finding.name
    ours, theirs = (one[name] for one in tensors)
    total = float(np.square(theirs.astype(np.float64) - ours).sum())
    for side, run in (("candidate", runs[1]), ("reference", runs[0])):
        parts = list(parts_of(run, name))
        errors = [float(np.square(held(theirs, shard).astype(np.float64) - held(ours, shard)).sum()) for _, shard in parts]
        if len(parts) > 1 and total > 0 and max(errors) >= 0.999 * total:
            rank, shard = parts[errors.index(max(errors))]
            mine = held(theirs if side == "candidate" else ours, shard)
            zero = ", which is zero there" if not mine.any() else ""
            return f"{name}: the {side}'s rank {rank} ({coordinates(run, rank)}) holds all of its error, in {region(shard)}{zero}"
    return ""


def parts_of(run: Any, name: str) -> Iterator[tuple[int, Any]]:
    """Rank and shard of every part of a tensor that counts."""
    for rank in run.manifests:
        for shard in run.shards(rank):
            if shard.name == name and shard.counted and shard.elements:
                yield rank, shard


def held(whole: np.ndarray[Any, Any], shard: Any) -> np.ndarray[Any, Any]:
    """The elements of a whole tensor that a shard holds."""
    part = whole[tuple(slice(*bounds) for bounds in shard.box)]
    return part.reshape(-1)[slice(*shard.flat)] if shard.flat else part


def coordinates(run: Any, rank: int) -> str:
    """A rank's place along the axes that have more than one rank."""
    place = run.manifests[rank].get("place") or {}
    return ", ".join(f"{axis} {place[axis]}" for axis in AXES if place.get(f"{axis}_size", 1) > 1) or "alone"


def region(shard: Any) -> str:
    """The box of a shard in words."""
    cut = [
        f"{'rows' if axis == 0 else 'columns'} {start} to {stop - 1}"
        for axis, ((start, stop), size) in enumerate(zip(shard.box, shard.shape, strict=True))
        if (start, stop) != (0, size)
    ]
    if shard.flat:
        cut.append(f"elements {shard.flat[0]} to {shard.flat[1] - 1}" + (" of these" if cut else ""))
    return ", ".join(cut) or "the whole tensor"
