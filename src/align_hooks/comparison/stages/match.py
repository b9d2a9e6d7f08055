"""The stage of the match: how much of two runs can be compared at all."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.finding import Finding, Metric, Words
from align_hooks.comparison.settings.recorded import presence, show
from align_hooks.comparison.stage_result import FaultLocation, Reason, StageResult, Status
from align_hooks.comparison.stages.stage import stage
from align_hooks.messages import message, sentences, terms


@stage("match", place=FaultLocation.MATCH, is_before_numbers=True)
def match(context: ComparisonContext) -> StageResult:
    """Compare steps and parameters: how much of the two runs can be compared."""
    known = [(side, problem) for side, run in context.pair.sides for problem in run.problems]
    problems = [Finding(each.message, side, step=each.step, rank=each.rank, quantity=Metric.WHOLENESS) for side, each in known]
    if unfit := _unfit(context):
        reason, why = unfit
        shown = tuple(problems) if reason is not Reason.NO_REPEAT else ()
        return StageResult(match, Status.NOT_COMPARABLE, why, shown, reason=reason, differs=why)
    nameless = any(side in context.pair.converted and not context.pair.pieces(run) for side, run in context.pair.sides)
    ours, theirs = ({}, {}) if nameless else map(context.pair.pieces, context.pair.runs)
    own = context.pair.incomparable
    ours, theirs = ({name: shape for name, shape in shapes.items() if name not in own} for shapes in (ours, theirs))
    summary, short = _laid_out(context, None if nameless else (ours, theirs)), _in_short(context, ours.keys() & theirs.keys())

    def not_comparable(why: Words, reason: Reason, *findings: Finding) -> StageResult:
        words = sentences(why, summary)
        return StageResult(match, Status.NOT_COMPARABLE, words, (*findings, *problems), reason=reason, short=short, differs=why)

    padding = sorted(name for name in ours.keys() | theirs.keys() if name.endswith("#padding") and ours.get(name) != theirs.get(name))
    shapes, alone = _of_other_shapes(ours, theirs), _of_one_side(context, ours, theirs)
    if padding and not _beside_padding(padding, [*shapes, *alone], ours, theirs):
        return not_comparable(message("match.other_padding", names=terms(padding)), Reason.OTHER_PADDING)
    if shapes or alone:
        counts = {"match.other_shapes": len(shapes), "match.one_side_only": len(alone)}
        differing = terms(message(id, count=count) for id, count in counts.items() if count)
        return not_comparable(message("match.other_model", what=differing), Reason.OTHER_MODEL, *shapes, *alone)
    if not context.pair.rows:
        return not_comparable(message("match.no_common_step"), Reason.NO_COMMON_STEP)
    broken = message("match.not_whole", side=problems[0].reference, problem=problems[0].what) if problems else None
    status = Status.INCOMPLETE if problems else Status.SAME
    return StageResult(match, status, summary, tuple(problems), short=short, differs=broken)


def _unfit(context: ComparisonContext) -> tuple[Reason, Words] | None:
    """Return why a run cannot be compared with any other; None where both can."""
    for side, run in context.pair.sides:
        if not run.steps:
            return Reason.NO_WHOLE_STEP, message("match.no_whole_step", side=side)
        if context.noise.problem:
            return Reason.NO_REPEAT, context.noise.problem
        if run.facts.settings.get("perturb"):
            return Reason.MOVED_WEIGHTS, message("match.moved_weights", side=side)
        if run.missing is not None:
            return Reason.RANKS_MISSING, message("match.ranks_missing", side=side, missing=run.missing.message)
    return None


Shapes = Mapping[str, tuple[int, ...]]
"""Canonical name to shape."""


def _laid_out(context: ComparisonContext, shapes: tuple[Shapes, Shapes] | None) -> Words:
    """Say how many steps, parameters and elements both have in common; of a log or a dump only the steps."""
    steps, expected = len(context.pair.rows), max(len(run.steps) for run in context.pair.runs)
    if shapes is None:
        return message("match.dump" if context.pair.dumped else "match.log", steps=steps, expected=expected)
    ours, theirs = shapes
    shared = [shape for name, shape in ours.items() if shape == theirs.get(name)]
    elements, total = (sum(map(math.prod, shapes)) for shapes in (shared, {**theirs, **ours}.values()))
    names, every = len(ours.keys() & theirs.keys()), len(ours.keys() | theirs.keys())
    return message("match.laid_out", steps=steps, expected=expected, names=names, all=every, elements=elements, total=total)


def _in_short(context: ComparisonContext, names: Collection[str]) -> Words:
    """Say how many steps both have, of how many unless of all, and how many parameters."""
    steps, expected = len(context.pair.rows), max(len(run.steps) for run in context.pair.runs)
    made = message("steps.count", count=steps) if steps == expected else message("short.steps_of", count=steps, expected=expected)
    return terms([made, message("short.names", count=len(names))]) if names else made


def _of_other_shapes(ours: Shapes, theirs: Shapes) -> list[Finding]:
    """Return the parameters that both sides have in different shapes."""
    differing = [name for name in sorted(ours.keys() & theirs.keys()) if ours[name] != theirs[name]]
    shapes = {name: (show(list(ours[name])), show(list(theirs[name]))) for name in differing}
    return [Finding(message("match.shape", name=name), *pair, name=name, quantity=Metric.SHAPE) for name, pair in shapes.items()]


def _beside_padding(padding: Sequence[str], differing: Sequence[Finding], ours: Shapes, theirs: Shapes) -> bool:
    """Return whether anything differs in size beside the rows of a vocabulary."""
    padded = [name.removesuffix("#padding") for name in padding]
    rows = {shapes[name][0] for name in padded for shapes in (ours, theirs) if name in shapes}

    def is_of_vocabulary(name: str) -> bool:
        shapes = [shapes[name] for shapes in (ours, theirs) if name in shapes]
        return len({shape[1:] for shape in shapes}) == 1 and any(shape[0] in rows for shape in shapes)

    return not all(one.name.endswith("#padding") or is_of_vocabulary(one.name) for one in differing)


def _of_one_side(context: ComparisonContext, ours: Shapes, theirs: Shapes) -> list[Finding]:
    """Return the parameters that one side lacks and may not lack; of a dump another tool chose what it keeps."""
    lacked = zip(context.pair.sides, (theirs.keys() - ours.keys(), ours.keys() - theirs.keys()), strict=True)
    lacking = sorted(name for (side, _), names in lacked if side not in context.pair.dumped for name in names)
    alone = [name for name in lacking if not any(fnmatchcase(name, pattern) for pattern in context.allow_missing)]
    return [Finding(name, *presence(name in ours), name=name, quantity=Metric.SHAPE) for name in alone]
