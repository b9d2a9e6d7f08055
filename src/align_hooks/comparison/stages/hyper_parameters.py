"""The stage of both optimizers' settings, and of the learning rate of every step."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.finding import Finding, Metric, Pattern, Words, at_step, when
from align_hooks.comparison.findings import from_step, rates_equal
from align_hooks.comparison.metrics.limits import SETTING
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.settings import recorded
from align_hooks.comparison.settings.recorded import as_written, several
from align_hooks.comparison.stage_result import FaultLocation, Phase, StageResult, Status
from align_hooks.comparison.stages.stage import stage
from align_hooks.messages import Message, message, sentences
from align_hooks.record.format.schema import Rate


@stage(
    "hyper-parameters", Phase.UPDATE, place=FaultLocation.CONFIGURATION, is_before_numbers=True, source=message("method.guide_checklist")
)
def hyper_parameters(context: ComparisonContext) -> StageResult:
    """Compare the optimizers' settings, and the learning rate of every step."""
    ours, theirs = (run.facts.optimizer for run in context.pair.runs)
    rates, rate_differs, steps = learning_rates(context.pair)
    if not ours or not theirs:  # a log has the rates alone
        if not steps:
            return StageResult(hyper_parameters, Status.NOT_COMPARED, message("settings.not_on_record"))
        status = Status.DIFFERENT if rates else Status.SAME
        alone, short = message("hyper_parameters.rates_alone", count=steps), message("steps.count", count=steps)
        return StageResult(hyper_parameters, status, alone, tuple(rates), short=short, differs=difference_words([], rate_differs))
    shared = ours.by_parameter().keys() & theirs.by_parameter().keys()
    together = context.pair.reference.steps[:1] == context.pair.candidate.steps[:1]  # a resumed run begins in the middle of its schedule
    own = context.pair.incomparable
    built = recorded.hyper_parameters(ours, theirs, rates=together, left_out=own)
    status = Status.DIFFERENT if built or rates else Status.SAME if shared or own else Status.INCOMPLETE
    so_many = message("steps.so_many", count=steps)
    compared, short = (message(id, count=len(shared), steps=so_many) for id in ("hyper_parameters.compared", "short.hyper_parameters"))
    result = StageResult(hyper_parameters, status, compared, (*built, *rates), short=short, differs=difference_words(built, rate_differs))
    if not built and rates and (standing := stands_still(context.pair, rates[0].step)) is not None:
        return replace(result, place=FaultLocation.STATE, differs=None).with_common(standing, Pattern.RATE_STANDS)
    is_schedule = bool(rates) and is_the_schedules(context.pair, rates[0].step or 0)
    if not (built or is_schedule) or any(finding.name in OF_A_STEP for finding in built) or not given_alike(context.pair):
        return result
    return replace(result, place=FaultLocation.OPTIMIZER, summary=sentences(compared, message("hyper_parameters.built_otherwise")))


OF_A_STEP = (recorded.HyperParameter.CLIP_GRAD, recorded.HyperParameter.LOSS_SCALE)
"""Settings that other arguments than :data:`OF_OPTIMIZER` give."""
OF_OPTIMIZER = re.compile(
    r"^optimizer(\.|_|$)|lr_schedule|weight_decay|layer_decay|untie_embeddings|freeze_all|precision_aware|optimizer_for_cpu"
    r"|(^|_)(adam|lion|lr|muon|mup|sgd|wd)(_|$)"
)
"""Arguments of either framework by which some parameters get other settings than others."""


def given_alike(pair: Pair) -> bool:
    """Return whether both runs, of one framework, are given the same settings of the optimizer, as far as their arguments are on record."""
    given = [{name: value for name, value in (run.facts.arguments or {}).items() if OF_OPTIMIZER.search(name)} for run in pair.runs]
    return bool(given[0]) and given[0] == given[1] and len({(run.facts.framework, run.facts.trainer) for run in pair.runs}) == 1


def scheduled_alike(pair: Pair) -> bool:
    """Return whether both runs are given the same schedule, as far as their arguments are on record."""
    schedules = [{name: value for name, value in (run.facts.arguments or {}).items() if SCHEDULE.match(name)} for run in pair.runs]
    return bool(schedules[0]) and schedules[0] == schedules[1]


def is_the_schedules(pair: Pair, step: int) -> bool:
    """Return whether rates that differ from a step on can only be made otherwise by Megatron-LM's scheduler, of the same settings.

    Of a resumed run it may be what was not restored; behind a skipped update a scheduler stands; MindFormers' follows the data's length.
    """
    starts_anew = pair.first == 0 and all(run.facts.framework == "Megatron-LM" for run in pair.runs)
    return starts_anew and scheduled_alike(pair) and not any(row.skipped for rows in pair.rows for row in rows if row.step < step)


def stands_still(pair: Pair, step: int | None) -> Message | None:
    """Return which resumed run keeps its learning rate from before a step, where the other's schedule moves on; None where the settings of
    the two schedules differ or are not on record."""
    rates = {at: rates for at, *rates in pair.numbers("learning_rate")}
    before, at = (rates.get(each) for each in ((step or 0) - 1, step or 0))
    still = [before is not None and at is not None and before[index] == at[index] for index in range(2)]
    if still.count(True) != 1 or not scheduled_alike(pair):
        return None
    side, run = pair.sides[still.index(True)]
    if not run.steps[0]:
        return None
    return message("hyper_parameters.stands_still", side=side, step=when(step or 0), first=when(run.steps[0]))


SCHEDULE = re.compile(r"(min_|decoupled_)*lr(_|$)|train_(iters|samples)$|(global|micro|rampup)_batch_size$|\w+_opt_param_scheduler$")
"""Arguments of Megatron-LM that a rate follows from, with the step."""


def difference_words(built: Sequence[Finding], rate: Message | None) -> Words | None:
    """Return which settings differ, and from which step on the learning rate; None where nothing does."""
    names = list(dict.fromkeys(finding.what for finding in built))
    differing = message("differs.settings", names=several(names)) if names else None
    return sentences(differing, rate) if differing or rate else None


def learning_rates(pair: Pair) -> tuple[list[Finding], Message | None, int]:
    """Return where learning rates first differ, that as a sentence, and at how many steps both are known."""
    known = pair.numbers("learning_rate")
    within = SETTING + pair.resolution_of("learning_rate")  # a log's rates are known to its digits
    apart = [(step, ours, theirs) for step, ours, theirs in known if not _equal(pair, ours, theirs, within)]
    if not apart:
        return [], None, len(known)
    (step, *values), later = apart[0], len(apart) - 1
    subject = at_step(Metric.LEARNING_RATE, step)
    if later:
        subject = message("hyper_parameters.rate_and_later", step=step, iteration=step + 1, count=later)
    ours, theirs = map(as_written, values)
    differs = from_step(Metric.LEARNING_RATE, step, on=0 < later == sum(other > step for other, *_ in known))
    return [Finding(subject, ours, theirs, name="learning rate", step=step, quantity=Metric.LEARNING_RATE)], differs, len(known)


def _equal(pair: Pair, ours: Rate, theirs: Rate, within: float) -> bool:
    """Return whether two rates are equal, by parameter where their groups are on record, else as :func:`rates_equal` says."""
    if not isinstance(ours, list) and not isinstance(theirs, list):
        return rates_equal(ours, theirs, within)
    known = [run.facts.optimizer.rates(rate) for run, rate in zip(pair.runs, (ours, theirs), strict=True) if run.facts.optimizer]
    if len(known) < 2 or known[0] is None or known[1] is None:
        return rates_equal(ours, theirs, within)
    pairs = {(known[0][name], known[1][name]) for name in known[0].keys() & known[1].keys()}
    return all(recorded.equal(*each, within) for each in pairs)
