"""The data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from align_hooks.comparison.batches import differences, differing_digests, weights_of_tokens
from align_hooks.comparison.findings import WORST
from align_hooks.comparison.ladder import Ladder
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.stages.stage import Phase, stage
from align_hooks.comparison.verdict import Finding, Place, Quantity, Reason, StageResult, Status, at_step, when
from align_hooks.messages import Message, message, sentences


@stage("batches", Phase.START, place=Place.DATA, is_before_numbers=True, source=message("method.guide_data_set"))
def batches(ladder: Ladder) -> StageResult:
    """What the models consumed, element by element, the number of tokens that count, and of logs and curves the number of samples."""
    steps, gaps = ladder.pair.steps("batches"), ladder.pair.gaps("batches")
    findings: list[Finding] = []
    agreed = (ladder.pair.first or 0) - 1
    for index, step in enumerate(steps):
        ladder.work.progress(message("progress.batch", step=step, iteration=step + 1), index, len(steps))
        ours, theirs = ladder.batches(step)
        unlike, alone = differences(ours, theirs, step)
        findings += [replace(finding, since=agreed + 1) for finding in unlike]  # batches between recorded ones are not known
        agreed = agreed if unlike else step
        gaps += [message("batches.in_one_run_only", name=name, step=step, iteration=step + 1) for name in alone]
    by_digest, unlike = differing_digests(ladder.pair)
    counted, counts = _valid_tokens(ladder.pair)
    findings += [*unlike, *counts, *_consumed(ladder.pair)]
    if not findings and ladder.pair.first in steps and _weighs_otherwise(ladder):
        why = message("batches.normalisation")
        return StageResult(batches, Status.NOT_COMPARABLE, why, reason=Reason.LOSS_NORMALISATION, differs=why)
    numbers_alone = message("batches.valid_tokens_alone") if counted else None
    known = [
        message("batches.compared", count=len(steps)) if steps else None,
        message("batches.compared_by_digest", count=len(by_digest)) if by_digest else None,
    ]
    compared = sentences(*known) if any(known) else sentences(ladder.pair.why_not("batches"), numbers_alone)
    status = Status.DIFFERENT if findings else Status.INCOMPLETE if gaps else Status.SAME if any(known) else Status.NOT_COMPARED
    short = message("steps.count", count=len({*steps, *by_digest})) if any(known) else None
    return StageResult(batches, status, sentences(compared, *gaps[:1]), tuple(findings[:WORST]), short=short, differs=_first(findings))


def _first(findings: Sequence[Finding]) -> Message | None:
    """What differs first, and at which step; None where nothing does."""
    first = min(findings, key=lambda finding: finding.step or 0, default=None)
    if first is None:
        return None
    return message("batches.differ_first_at", what=first.name or first.quantity, step=when(first.step or 0))


def _valid_tokens(pair: Pair) -> tuple[int, list[Finding]]:
    """Of how many steps both sides counted the tokens that count, and where their numbers differ."""
    counts = [(ours.step, ours.valid_tokens, theirs.valid_tokens) for ours, theirs in pair.rows]
    known = [row for row in counts if None not in row]
    unlike, kind = [row for row in known if row[1] != row[2]], Quantity.VALID_TOKENS
    return len(known), [Finding(at_step(kind, step), ours, theirs, step=step, quantity=kind) for step, ours, theirs in unlike]


def _consumed(pair: Pair) -> list[Finding]:
    """Where the two had consumed other numbers of samples after a step, of runs that others recorded: their steps go by number alone."""
    if not pair.converted:
        return []
    kind, found = Quantity.CONSUMED_SAMPLES, []
    for ours, theirs in pair.rows:
        reference, candidate = ours.consumed_samples, theirs.consumed_samples
        if isinstance(reference, int | float) and isinstance(candidate, int | float) and reference != candidate:
            found.append(Finding(at_step(kind, ours.step), reference, candidate, step=ours.step, quantity=kind))
    return found


def _weighs_otherwise(ladder: Ladder) -> bool:
    """Whether the two sides weigh the same tokens differently in what they differentiate."""
    per_token = (bool(run.facts.training.per_token_loss) for run in ladder.pair.runs)
    ours, theirs = map(weights_of_tokens, ladder.first_batches, per_token)
    return ours is not None and theirs is not None and ours.shape == theirs.shape and not np.allclose(ours, theirs, rtol=1e-9, atol=0)
