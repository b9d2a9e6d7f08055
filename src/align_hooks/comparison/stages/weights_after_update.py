"""The stage of weights after an update, which asks two questions.

After updates from the same gradients, do weights and moments agree within rounding? And does each run's update follow AdamW with the
hyper-parameters on record? The second answer names the wrong term (:mod:`align_hooks.comparison.optimizer.updates`), also without
injected gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.finding import Finding, Metric, Pattern, Term, Unit, when
from align_hooks.comparison.findings import furthest, judged, moment_errors, tensor_errors
from align_hooks.comparison.metrics.limits import UPDATE, weights_eps
from align_hooks.comparison.metrics.measures import relative_difference
from align_hooks.comparison.optimizer.clipped_apart import ClippedGroup, by_own_norms, clipped_apart
from align_hooks.comparison.optimizer.formula import FITS, Array, HyperParameters, UpdateFormula
from align_hooks.comparison.optimizer.muon_updates import MuonCheck, check_muon
from align_hooks.comparison.optimizer.recorded_updates import OnRecord, gather
from align_hooks.comparison.optimizer.updates import MOVED, Explanation, FittedTerm, blind, emptied, explain, of_numbers
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.settings.recorded import listed
from align_hooks.comparison.stage_result import FaultLocation, Phase, StageResult, Status
from align_hooks.comparison.stages.stage import stage
from align_hooks.messages import Argument, Message, Side, message, sentences, terms
from align_hooks.process.work import WorkPool
from align_hooks.record.format.schema import CLIPPED_APART
from align_hooks.record.reader import Run

FAR = 1e6
"""Roundings."""
QUANTITIES = {
    Term.LEARNING_RATE: Metric.LEARNING_RATE,
    Term.CLIP_COEFFICIENT: Metric.CLIP_COEFFICIENT,
    Term.GRADIENT_SCALE: Metric.GRADIENTS,
    Term.COUNT: Metric.OPTIMIZER_STATE,
}
"""Term to its quantity; the others are hyper-parameters."""


class UpdateCheck(Struct, frozen=True):
    """One side's updates compared with the formula."""

    note: Message
    known: bool | None = None
    """Whether they follow the formula with any settings; None where unchecked."""
    findings: tuple[Finding, ...] = ()
    why: Message | None = None
    """Why they were not checked."""
    formula: UpdateFormula | None = None
    """The formula that they follow in the place of the recorded one; None where they follow no other."""
    groups: Sequence[ClippedGroup] = ()
    """Groups of tensors that were clipped by norms of their own; none where by one norm, or where that is not on record."""


@stage("weights after an update", Phase.UPDATE, place=FaultLocation.OPTIMIZER, is_of_tensors=True, source=message("method.guide_optimizer"))
def weights_after_update(context: ComparisonContext) -> StageResult:
    """Answer both questions; a wrong term comes first among the findings."""
    pair, work = context.pair, context.work
    equal = after_equal_gradients(pair, work)
    sides = [check(side, pair, work) for side in Side]
    gaps = pair.gaps("optimizer_state")
    injected = message("after_update.injected", count=len(pair.after_injected)) if pair.after_injected else None
    notes, whys = [checked.note for checked in sides], {checked.why for checked in sides}
    if len(whys) == 1 and (why := whys.pop()) is not None:
        notes = [message("after_update.neither_checked", why=why)]
    summary = sentences(injected, *notes, *gaps[:1])
    short = message("short.after_update", injected=len(pair.after_injected)) if pair.after_injected else message("short.follow")
    result = judged(weights_after_update, summary, equal, short, incomplete=bool(gaps))
    differs, known = result.status is Status.DIFFERENT, [checked.known for checked in sides]
    apart = clipped_otherwise(sides)
    wrong = [*apart, *(finding for checked in sides for finding in checked.findings)]
    if result.status is Status.NOT_COMPARABLE:
        return result
    if any(known) and wrong:
        shown = (*wrong, *(furthest(equal) if differs else ()))
        return StageResult(weights_after_update, Status.DIFFERENT, summary, shown, short=short, differs=differs_of(sides, apart))
    if differs:
        result = replace(result, differs=message("after_update.weights_differ", step=when(result.findings[0].step or 0)))
    if differs and all(known):
        return replace(result, summary=sentences(summary, message("after_update.settings_differ")))
    if differs or equal or all(known):
        return result
    if wrong and None in known:  # nobody says whether the formula or the optimizer is the odd one
        return StageResult(weights_after_update, Status.INCONCLUSIVE, summary, tuple(wrong))
    judges = message("after_update.neither_follows") if wrong else None
    return StageResult(weights_after_update, Status.INCOMPLETE if gaps else Status.NOT_COMPARED, sentences(summary, judges))


def differs_of(sides: Sequence[UpdateCheck], apart: Sequence[Finding]) -> Message:
    """Say which side's updates contradict its own settings, and in what; or which side clips by norms of groups."""
    if apart and isinstance(apart[0].what, Message):
        return apart[0].what
    side, checked = next((side, checked) for side, checked in zip(Side, sides, strict=True) if checked.findings)
    first = checked.findings[0]
    if first.term is Term.FORMULA and checked.formula is not None:
        return message("after_update.by_another_formula", side=side, used=message(f"after_update.by_{checked.formula.value}"))
    if first.term is not None:
        return message("after_update.contradicts", side=side, term=first.term)
    if first.quantity is Metric.OPTIMIZER_STATE and isinstance(first.what, Message):
        return first.what
    return message("after_update.no_adamw" if first.unit is Unit.ROUNDINGS else "after_update.not_updated", side=side)


def after_equal_gradients(pair: Pair, work: WorkPool) -> list[Finding]:
    """Return errors of weights and moments after updates that both made from the same gradients."""
    limit = max(UPDATE, *map(weights_eps, pair.runs))
    errors = [error for step in pair.after_injected for error in tensor_errors(pair, "weights", step, lambda name: limit, work)]
    clipped = max((relative_difference(ours, theirs) for _, ours, theirs in pair.numbers("clip_coefficient")), default=0.0)
    for step in set(pair.after_injected) & set(pair.steps("optimizer_state")):
        errors += moment_errors(pair, step, UPDATE + 2 * clipped, work)
    return errors


def check(side: Side, pair: Pair, work: WorkPool) -> UpdateCheck:
    """Compare one side's recorded updates with the formulas of its groups."""
    run, partner = pair.runs if side is Side.REFERENCE else pair.runs[::-1]
    candidate = side is Side.CANDIDATE
    work.progress(message("after_update.progress", side=side))
    optimizer = run.facts.optimizer or (partner.facts.optimizer if candidate else None)
    muon = check_muon(run, partner, optimizer, candidate=candidate, work=work) if optimizer is not None else None
    if optimizer is None or muon is None:
        return check_adam(side, run, partner, work)
    # a decay that follows the rate tells it from the scale
    undecayed = not any(group.weight_decay for group in optimizer.groups if group.momentum is not None)
    of_muon = as_check(side, muon, undecayed=undecayed, known=run.facts.optimizer is not None)
    only = all(group.momentum is not None for group in optimizer.groups)
    return of_muon if only else of_both(of_muon, check_adam(side, run, partner, work))


def of_both(muon: UpdateCheck, adam: UpdateCheck) -> UpdateCheck:
    """Return the check of updates by two formulas, each of its own tensors."""
    known = [muon.known, adam.known]
    all_known = False if False in known else None if None in known else True
    why = muon.why if muon.why == adam.why else None
    note = muon.note if why is not None else message("after_update.both", muon=muon.note, adam=adam.note)
    return UpdateCheck(note, all_known, (*muon.findings, *adam.findings), why, None if muon.findings else adam.formula)


def as_check(side: Side, muon: MuonCheck | Message, *, undecayed: bool, known: bool) -> UpdateCheck:
    """Return the check of Muon's updates in words; ``undecayed`` says whether none of its matrices decays."""
    if isinstance(muon, Message):
        return UpdateCheck(message("after_update.not_checked", side=side, why=muon), why=muon)
    of = message("after_update.of_matrices", count=muon.updates, side=side, matrices=muon.checked, all=muon.matrices)
    if muon.follows and muon.unseen:
        return UpdateCheck(message("after_update.follow_muon_but", of=of, rest=muon.misfit, terms=terms(muon.unseen)), known=True)
    if muon.follows:
        return UpdateCheck(message("after_update.follow_muon", of=of, rest=muon.misfit), known=True)
    note = message("after_update.do_not_follow_muon", of=of, rest=roundings(muon.misfit), limit=FITS)
    wrong = []
    for term in muon.terms:
        either = [Term.SCALE] if term.term is Term.LEARNING_RATE and undecayed else []
        wrong.append(_of_term(term, side, either, muon.left, known=known))
    if muon.left and not wrong:
        of_some = len(muon.left) <= muon.checked / 2
        subject, best = message("after_update.no_muon_of", side=side, names=listed(muon.left)), message("after_update.no_term")
        wrong.append(_unexplained(subject, muon.misfit, best, muon.left, of_some=of_some))
    return UpdateCheck(note, known=not muon.left, findings=tuple(wrong))


def _of_term(change: FittedTerm, side: Side, alone: Sequence[Argument], left: Sequence[str], *, known: bool) -> Finding:
    """Return a changed term as a finding, with the tensors ``left`` unexplained, or other terms ``alone`` that explain as much."""
    recorded = message("after_update.on_record" if known else "after_update.expected", value=change.recorded)
    used = message("after_update.used", value=change.used)
    quantity = QUANTITIES.get(change.term, Metric.HYPER_PARAMETER)
    subject = message("after_update.term", term=change.subject, side=side)
    if left:
        subject = message("after_update.term_in_part", term=change.subject, side=side, names=listed(left))
    elif alone:
        subject = message("after_update.term_or_alone", term=change.subject, side=side, others=terms(alone))
    return Finding(subject, recorded, used, quantity=quantity, term=change.term)


def check_adam(side: Side, run: Run, partner: Run, work: WorkPool) -> UpdateCheck:
    """Compare one side's recorded updates with AdamW."""
    record = gather(run, partner, candidate=side is Side.CANDIDATE, work=work)
    if isinstance(record, Message):
        return UpdateCheck(message("after_update.not_checked", side=side, why=record), why=record)
    explanation = explain(record.evidence, record.settings)
    count, misfit = len(record.evidence.updates), explanation.recorded
    if not explanation.follows:
        note = message("after_update.do_not_follow", count=count, side=side, rest=roundings(misfit), limit=FITS)
        groups = clipped_apart(run, record)
        if groups and (own := explain(by_own_norms(run, record, groups), record.settings)).follows:
            apart = message("after_update.follow_apart", count=count, side=side, rest=own.recorded, groups=len(groups))
            return UpdateCheck(apart, known=True, groups=groups)
        if (run.facts.arguments or {}).get(CLIPPED_APART) == "True":
            why = message(f"formula.{CLIPPED_APART}")
            return UpdateCheck(message("after_update.not_checked", side=side, why=why), why=why)
        wrong = findings(side, explanation, record, known=run.facts.optimizer is not None)
        formula = explanation.fitted.formula if explanation.fitted is not None else None
        return UpdateCheck(note, known=not explanation.left, findings=tuple(wrong), formula=formula)
    if unseen := blind(record.evidence, record.settings):
        return UpdateCheck(message("after_update.follow_but", count=count, side=side, rest=misfit, terms=terms(unseen)), known=True)
    return UpdateCheck(message("after_update.follow", count=count, side=side, rest=misfit), known=True)


def clipped_otherwise(sides: Sequence[UpdateCheck]) -> list[Finding]:
    """Return by which norms one side clipped groups of tensors, where the other clipped by one norm or other groups."""
    cuts = [{frozenset(group.names) for group in checked.groups} for checked in sides]
    if cuts[0] == cuts[1] or not all(checked.known for checked in sides):
        return []
    side, groups = max(zip(Side, (checked.groups for checked in sides), strict=True), key=lambda each: len(each[1]))
    names, norm = listed(groups[0].names), groups[0].norm
    subject = message("after_update.clipped_apart", side=side, names=names, reference=norm, other=groups[-1].norm, count=len(groups))
    return [Finding(subject, quantity=Metric.CLIP_COEFFICIENT, pattern=Pattern.CLIPPED_APART)]


def findings(side: Side, explanation: Explanation, record: OnRecord, *, known: bool) -> list[Finding]:
    """Return an explanation as findings, one a term: the value on record and the value used.

    ``known`` is False where the reference's settings were expected because the run's own are not on record."""
    if (step := emptied(record.evidence)) is not None:
        subject = message("after_update.moments_emptied", side=side, step=when(step))
        return [Finding(subject, step=step, quantity=Metric.OPTIMIZER_STATE, pattern=Pattern.MOMENTS_EMPTIED)]
    changes = list(_changes(explanation.fitted, record)) if explanation.fitted is not None else []
    others = {change.key: change.subject for settings in explanation.instead for change in _changes(settings, record)}
    alone = [others[key] for key in sorted(others.keys() - {change.key for change in changes})]
    wrong, still = [], explanation.still
    if still:
        subject = message("after_update.tensors", names=listed(still), side=side)
        values = message("after_update.updated"), message("after_update.never_updated")
        wrong.append(Finding(subject, *values, name=_alone(still), quantity=Metric.UPDATES))
    wrong += [_of_term(change, side, alone, explanation.left, known=known) for change in changes]
    if not changes and (explanation.left or not still):
        of_some = 0 < len(explanation.left) <= len(record.evidence.names) / 2
        subject = message("after_update.no_adamw", side=side)
        if of_some:
            subject = message("after_update.no_adamw_of", side=side, names=listed(explanation.left))
        best = message("after_update.off_at_best", rest=roundings(explanation.explained))
        wrong.append(_unexplained(subject, explanation.recorded, best, explanation.left, of_some=of_some))
    return wrong


def _unexplained(subject: Message, misfit: float, best: Message, names: Sequence[str], *, of_some: bool) -> Finding:
    """Return a finding for updates that no terms explain, ``of_some`` tensors where most others follow the formula."""
    off, pattern = message("after_update.off_as_recorded", rest=roundings(misfit)), Pattern.SOME_UPDATES if of_some else None
    known = {"name": _alone(names), "quantity": Metric.UPDATES, "unit": Unit.ROUNDINGS, "pattern": pattern}
    return Finding(subject, off, best, misfit, FITS, **known)  # type: ignore[arg-type]


def _alone(names: Sequence[str]) -> str:
    """Return the only tensor of a finding; empty for several."""
    return names[0] if len(names) == 1 else ""


def _changes(used: HyperParameters, record: OnRecord) -> Iterator[FittedTerm]:
    """Yield each changed term, as recorded and as used."""
    recorded = record.settings
    if abs(used.rate - recorded.rate) > MOVED:
        yield of_numbers(Term.LEARNING_RATE, record.learning_rate, record.learning_rate * used.rate)
    betas = (recorded.beta1, used.beta1), (recorded.beta2, used.beta2)
    if any(abs(before - after) > MOVED * (1 - before) for before, after in betas):
        was = message("after_update.betas", beta1=recorded.beta1, beta2=recorded.beta2)
        yield FittedTerm(Term.BETAS, was, message("after_update.fitted_betas", beta1=used.beta1, beta2=used.beta2))
    if abs(used.eps - recorded.eps) > MOVED * recorded.eps:
        yield of_numbers(Term.EPS, recorded.eps, used.eps)
    yield from _decay(used.decay, recorded.decay, record.evidence.names)
    if used.bias_correction != recorded.bias_correction:
        made, not_made = message("after_update.correction_made"), message("after_update.correction_not_made")
        yield FittedTerm(Term.BIAS_CORRECTION, *((made, not_made) if recorded.bias_correction else (not_made, made)))
    if used.decoupled != recorded.decoupled:
        apart, added = message("after_update.decoupled"), message("after_update.not_decoupled")
        yield FittedTerm(Term.DECOUPLED_WEIGHT_DECAY, *((apart, added) if recorded.decoupled else (added, apart)))
    if used.formula is not recorded.formula:
        other = used.formula.value
        yield FittedTerm(Term.FORMULA, message(f"after_update.not_{other}"), message(f"after_update.by_{other}"))
    if used.clip is not None:
        norm = record.clip_grad
        was = message("after_update.clipped_to", norm=norm) if norm is not None else message("after_update.not_clipped")
        yield FittedTerm(Term.CLIP_COEFFICIENT, was, message("after_update.clipped_to_fitted", norm=used.clip))
    if abs(used.scale - recorded.scale) > MOVED:
        yield of_numbers(Term.GRADIENT_SCALE, recorded.scale, used.scale)
    if used.count != recorded.count:
        first = record.evidence.updates[0].count
        yield FittedTerm(Term.COUNT, first, max(1, first + used.count))


def _decay(used: Array, recorded: Array, names: Sequence[str]) -> Iterator[FittedTerm]:
    """Yield the tensors whose decay is switched on or off, and another decay of the others."""
    decayed, not_decayed = message("after_update.decayed"), message("after_update.not_decayed")
    for switched, was, used_as in (
        ((used > 0) & (recorded == 0), not_decayed, decayed),
        ((used == 0) & (recorded > 0), decayed, not_decayed),
    ):
        if switched.any() and recorded.any():
            yield FittedTerm(Term.DECAY_GROUPING, was, used_as, tuple(names[index] for index in np.flatnonzero(switched)))
    decaying = (used > 0) & ((recorded > 0) | ~recorded.any())
    highest = float(recorded.max(initial=0.0))
    if decaying.any() and np.abs(used - recorded)[decaying].max() > MOVED * highest:
        yield of_numbers(Term.WEIGHT_DECAY, highest, float(used[decaying].max()))


def roundings(misfit: float) -> Message:
    """Return the misfit in roundings of the weights; beyond a million the number says nothing."""
    return message("after_update.roundings", rest=misfit) if misfit < FAR else message("after_update.over_a_million_roundings")
