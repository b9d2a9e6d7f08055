"""The stage of batches."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.data.batch_differences import ARRAYS, Common
from align_hooks.comparison.data.batches import OTHER, BatchEvidence, differences, differing_digests, differing_tokens, unseen_mask
from align_hooks.comparison.finding import Finding, Metric, Words, at_step, when
from align_hooks.comparison.findings import WORST
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.stage_result import FaultLocation, Phase, Reason, StageResult, Status
from align_hooks.comparison.stages.stage import stage
from align_hooks.messages import Message, Side, message, sentences
from align_hooks.record.batch_statistics import BatchStatistics, arrays_of, conclude, relation_of, side_by_side, vocabulary_of
from align_hooks.record.check.gaps import unseen_at
from align_hooks.record.format.missing_batch import MissingBatchReason
from align_hooks.record.read.batch import Batch
from align_hooks.record.read.loss_weights import weights_of_tokens


@stage("batches", Phase.START, place=FaultLocation.DATA, is_before_numbers=True, source=message("method.guide_data_set"))
def batches(context: ComparisonContext) -> StageResult:
    """Compare the inputs of the models: element by element where both recorded a batch; by the digest of its tokens where one did not, for
    one framework and layout; by counts of samples for logs and curves; by counts of tokens where no mask is on record."""
    steps, gaps = context.pair.steps("batches"), context.pair.gaps("batches")
    seen = BatchComparison(context)
    for index, step in enumerate(steps):
        context.work.progress(message("progress.batch", step=step, iteration=step + 1), index, len(steps))
        gaps += seen.add(step, *context.batches(step))
    for side, run in context.pair.sides if steps else ():
        conclude(seen.evidence.statistics[side], vocabulary_of(run), run.facts.padded_vocabulary)
    by_digest, differing = differing_digests(context.pair)
    by_tokens, others = differing_tokens(context.pair, {*steps, *by_digest})
    differing += others
    counted, counts = _valid_tokens(context.pair, seen.masked)
    findings = [*seen.findings, *differing, *counts, *_consumed(context.pair)]
    if not findings and not gaps and context.pair.first in steps and _weighs_otherwise(context):
        why = message("batches.normalisation")
        return StageResult(batches, Status.NOT_COMPARABLE, why, reason=Reason.LOSS_NORMALISATION, differs=why, evidence=seen.evidence)
    numbers_alone = message("batches.valid_tokens_alone") if counted else None
    known = [
        message("batches.compared", count=len(steps)) if steps else None,
        message("batches.compared_by_digest", count=len(by_digest)) if by_digest else None,
        message("batches.compared_by_tokens", count=len(by_tokens)) if by_tokens else None,
    ]
    compared = sentences(*known) if any(known) else sentences(context.pair.why_not("batches"), numbers_alone)
    status = Status.DIFFERENT if findings else Status.INCOMPLETE if gaps else Status.SAME if any(known) else Status.NOT_COMPARED
    short = message("steps.count", count=len({*steps, *by_digest, *by_tokens})) if any(known) else None
    summary, shown = sentences(compared, *gaps[:1]), tuple(findings[:WORST])
    relation, common, pattern = seen.relation if not differing else (None, None, None)
    differs = sentences(relation, common if common is not relation else None) if relation is not None else _first(findings)
    reason = Reason.MASK_UNSEEN if seen.unseen else None
    result = StageResult(batches, status, summary, shown, reason=reason, short=short, differs=differs, evidence=seen.evidence)
    return result.with_common(common, pattern)


class BatchComparison(Struct):
    """Differences of the batches that both sides recorded."""

    context: ComparisonContext
    evidence: BatchEvidence = field(default_factory=BatchEvidence)
    findings: list[Finding] = field(default_factory=list)
    masked: set[int] = field(default_factory=set)
    """Steps whose masks were compared."""
    agreed: int = -1
    """The last step that agrees; -1 before any."""
    unseen: bool = False
    """Whether a side's mask is unknown."""
    common: Common = field(default_factory=Common)

    def add(self, step: int, ours: Batch, theirs: Batch) -> list[Message]:
        """Compare a step, and return what of it cannot be compared."""
        pair = self.context.pair
        for (side, run), batch in zip(pair.sides, (ours, theirs), strict=True):
            self.evidence.statistics.setdefault(side, BatchStatistics()).add(step, arrays_of(run, batch), {})
            for change in self.context.changes[side]:
                self.evidence.affected_tokens[side, change.row.what] += change.concerned(batch)
        own, other = (row.valid_tokens if (row := run.row(step)) else None for run in pair.runs)
        unseen = [unseen_mask(Side.REFERENCE, ours, theirs, own), unseen_mask(Side.CANDIDATE, theirs, ours, other)]
        gaps = [why for why in unseen if why is not None]
        self.unseen = self.unseen or bool(gaps)
        unknown = [side for side, run in pair.sides if MissingBatchReason.DOCUMENTS in unseen_at(run, step)]
        if ours.tokens is not None and theirs.tokens is not None:
            self.masked.add(step)
        differing, alone = differences(ours, theirs, step, mask_is_known=not gaps, documents_are_known=not unknown)
        first = max(self.agreed, (pair.first or 0) - 1) + 1
        self.findings += [replace(finding, since=first) for finding in differing]  # batches between recorded ones are not known
        self.agreed = self.agreed if differing else step
        if differing:
            name = min((finding.name for finding in differing), key=ARRAYS.index)
            self.common.add(name, ours, theirs)
        gaps += [message("batches.documents_unseen", side=side, step=step, iteration=step + 1) for side in unknown]
        return [*gaps, *(message("batches.in_one_run_only", name=name, step=step, iteration=step + 1) for name in alone)]

    @property
    def relation(self) -> tuple[Message | None, Message | None, Enum | None]:
        """Return how the samples of both sides relate, as ``check`` says it, and what differing steps have in common, with the pattern
        that this is; None where nothing differs."""
        names = {finding.name for finding in self.findings}
        if not names:
            return None, None, None
        statistics, facts = self.evidence.statistics, {side: run.facts for side, run in self.context.pair.sides}
        name = min(names, key=ARRAYS.index)
        way = self.common.difference(name, facts)
        common, pattern = (way.words, way.made) if way is not None else (None, None)
        if name == "tokens":
            ours, theirs = (statistics[side] for side in Side)
            relation, _ = side_by_side(ours, theirs)
            return relation, common or relation, pattern or relation_of(ours, theirs)
        steps = sorted({finding.step for finding in self.findings if finding.name == name and finding.step is not None})
        of_all = len(statistics[Side.REFERENCE].steps)
        relation = message("two_runs.other_arrays", name=name, differing=len(steps), steps=of_all, step=steps[0], iteration=steps[0] + 1)
        return relation, common, pattern


def _first(findings: Sequence[Finding]) -> Words | None:
    """Return what differs first, and at which step; None where nothing does."""
    first = min(findings, key=lambda finding: finding.step or 0, default=None)
    if first is None:
        return None
    return message("batches.differ_first_at", what=first.name or first.quantity, step=when(first.step or 0))


def _valid_tokens(pair: Pair, masked: Collection[int]) -> tuple[int, list[Finding]]:
    """Return at how many steps both sides counted valid tokens, and where the counts differ, without ``masked`` steps."""
    known = [row for row in pair.numbers("valid_tokens") if row[0] not in masked]  # where masks agree the loss function counts otherwise
    return len(known), [_number(Metric.VALID_TOKENS, *row) for row in known if row[1] != row[2]]


def _consumed(pair: Pair) -> list[Finding]:
    """Return where runs that others recorded consumed other numbers of samples: their steps are matched by number only."""
    if not pair.converted:
        return []
    counts = [row for row in pair.numbers("consumed_samples") if all(isinstance(count, int | float) for count in row[1:])]
    return [_number(Metric.CONSUMED_SAMPLES, *row) for row in counts if row[1] != row[2]]


def _number(kind: Metric, step: int, ours: float, theirs: float) -> Finding:
    return Finding(at_step(kind, step), ours, theirs, step=step, quantity=kind, pattern=OTHER)


def _weighs_otherwise(context: ComparisonContext) -> bool:
    """Return whether the sides weigh the same tokens differently in what they differentiate."""
    ours, theirs = map(weights_of_tokens, context.first_batches, (run.facts.training for run in context.pair.runs))
    return ours is not None and theirs is not None and ours.shape == theirs.shape and not np.allclose(ours, theirs, rtol=1e-9, atol=0)
