"""Run the stages of a comparison, and decide.

The order is that of a training step, so the first stage that differs is the earliest place where the runs differ."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor

from align_hooks.comparison.acceptance import acceptance
from align_hooks.comparison.context import ComparisonContext, Decode
from align_hooks.comparison.curves import curves, side
from align_hooks.comparison.data.batches import BatchEvidence
from align_hooks.comparison.diagnosis.blame import blame
from align_hooks.comparison.diagnosis.near_ties import opened, without_refuted
from align_hooks.comparison.diagnosis.next_step import next_step
from align_hooks.comparison.diagnosis.symptom import first_symptom
from align_hooks.comparison.noise import Noise
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.stage_result import StageResult, Status, evidence_of
from align_hooks.comparison.stages.registry import LADDER
from align_hooks.comparison.stages.stage import Stage
from align_hooks.comparison.verdict import ComparisonResult, Verdict, decide
from align_hooks.messages.progress import Progress, silent
from align_hooks.process.work import WorkPool
from align_hooks.record.reader import Run


def compare(
    reference: Run,
    candidate: Run,
    *,
    noise: Sequence[Run] = (),
    allow_missing: Sequence[str] = (),
    progress: Progress = silent,
    executor: Executor | None = None,
    least: int = 0,
    decode: Decode | None = None,
) -> ComparisonResult:
    """Compare two runs made by ``open_run``; limits are measured on ``noise``, repeats of the reference.

    One side may lack names that match a pattern of ``allow_missing``. ``executor`` reads and measures tensors, unless None or for fewer
    than ``least`` bytes of a kind. ``decode`` makes text of the token ids around a late departure."""
    pair, work = Pair(reference, candidate), WorkPool(progress, executor, least)
    for run in (*pair.runs, *noise):
        run.read_ahead(work)
    context = ComparisonContext(pair, Noise(pair, noise, work), tuple(allow_missing), work, decode=decode)
    stages = run_stages(context, [stage for stage in LADDER if stage.is_before_numbers])
    comparable = stages[0].status is not Status.NOT_COMPARABLE
    if comparable:  # tensors of two different models cannot be compared
        stages += run_stages(context, [stage for stage in LADDER if not stage.is_before_numbers])
    deciding = [result for result in stages if result.stage.decides and not result.stage.is_before_numbers]
    compared = sum(result.status is not Status.NOT_COMPARED for result in deciding)
    stages = without_refuted(stages)
    stages, symptom = opened(stages, first_symptom(stages, pair.first), context)
    verdict, first = decide(stages, symptom, compared)
    blamed, batches = blame(first, stages, context), evidence_of(stages, BatchEvidence)
    words, trial = next_step(verdict, blamed, context, stages)
    return ComparisonResult(
        verdict=verdict,
        first=first,
        stages=tuple(stages),
        eps=pair.limits.eps,
        acceptance=acceptance(pair.rows, context.noise.rows()),
        settings=tuple(context.settings),
        notes=(*(context.untried() if verdict is Verdict.ALIGNED else ()), *context.notes(batches)),
        blame=blamed,
        next=words,
        trial=trial,
        calibration=context.noise.measured(),
        sides=tuple(map(side, pair.runs)),
        curves=curves(context, judged=comparable),
        itself=pair.is_itself,
        statistics=batches.statistics,
    )


def run_stages(context: ComparisonContext, stages: Sequence[Stage]) -> list[StageResult]:
    """Run stages one after the other, without those that neither model is concerned by."""
    results = []
    for index, stage in enumerate(stages):
        context.work.progress(stage.title, index, len(stages))
        results.append(stage.compare(context))
    return [result for result in results if result is not None]
