"""Choose what to do after a verdict: the first row that fits of a table of advice, with its commands (:mod:`.commands`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.data.token_losses import AffectedRows, LossDivergence
from align_hooks.comparison.diagnosis.commands import COMMANDS, commands_of, feeds, first_apart, updates_to_inject
from align_hooks.comparison.diagnosis.signatures import OF_DATA
from align_hooks.comparison.finding import Finding, Metric, Term, Words
from align_hooks.comparison.settings.recorded import FAMILY, MICRO_BATCH, HyperParameter, can_be_given, several
from align_hooks.comparison.stage_result import FaultLocation, Reason, StageResult, Status, differing, evidence_of, first_different
from align_hooks.comparison.stages import registry
from align_hooks.comparison.verdict import Blame, Verdict
from align_hooks.data_file import columns, sections
from align_hooks.messages import Argument, Message, Side, message, with_commands
from align_hooks.quantities.weights import NO_FAMILY, UNKNOWN
from align_hooks.record.format.ending import End
from align_hooks.record.format.rows import ScalarRow
from align_hooks.record.format.state import BUFFER

OF_ONE_TENSOR = frozenset({"gradient_alone", "tied_weight", "norm_copies"})
"""Causes that no point between layers explains further."""
CLEAR = 100
"""Times its limit at which no measured limit makes an error rounding."""
JUMP, AGREES = 10.0, 0.2
"""Times its limit that an error jumps to, and of what it is made from, where that is no growing of rounding."""
SETTING_OF_ROWS = {"torch": "next.rows_of_megatron", "ms": "next.rows_of_mindformers"}
"""Each side's setting for the rows of its embedding, with padding."""


Fact = Enum(
    "Fact",
    "MEASURED SETTINGS SUSPECTED ITSELF RATES RESUMED PADDING LOGS ONE_RANK REPLAYED LOADED INJECTED HALF SHARDED STORED FED GRADIENTS "
    "ARBITRABLE PATTERN NOTHING OTHER_ROWS ANOTHER_MODEL BARE TIED CHOICES DUMPED LATE POINTS CLEAR GROUPED COUNTED EMPTIED REFUSED ALONE "
    "MADE DRAWS TERM WEIGHED UNSEEN UNRECOGNISED ARGUMENTS BLIND WHOLE_BATCH",
)
"""What is known of a comparison that advice depends on; :func:`facts` says when each holds."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A message for a verdict."""

    verdict: Verdict
    id: str
    places: tuple[FaultLocation, ...] = ()
    """Where the fault is; any where empty."""
    when: tuple[Fact, ...] = ()
    """Facts that all must hold."""
    unless: tuple[Fact, ...] = ()
    """Facts of which none may hold."""
    cause: str | None = None
    """The likeliest cause for which the advice is given; None for any."""


UPDATES = (FaultLocation.CLIPPING, FaultLocation.OPTIMIZER, FaultLocation.NEXT_LOSS, FaultLocation.CURVE)
"""Places of what an optimizer does."""


def _advice(row: str) -> Advice:
    """Return a row of the file."""
    verdict, _, rest = row.partition(": ")
    id, *words = rest.split()
    given = columns(words, ("at", "when", "unless", "of"))
    places = UPDATES if given["at"] == ["UPDATES"] else tuple(FaultLocation[name] for name in given["at"])
    when, unless = (tuple(Fact[name] for name in given[column]) for column in ("when", "unless"))
    return Advice(Verdict[verdict], f"next.{id}", places, when, unless, next(iter(given["of"]), None))


ADVICE = tuple(map(_advice, sections(Path(__file__).parent / "advice.txt")["advice"]))
"""What to do next; the first row that fits is given."""


def next_step(verdict: Verdict, blame: Blame | None, context: ComparisonContext, stages: Sequence[StageResult]) -> Words:
    """Return what to do after a comparison, with its commands."""
    place, causes = (blame.place, blame.causes) if blame is not None else (None, ())
    advice = first_advice(verdict, place, facts(context, stages, blame), next(iter(causes), None))
    words, lines = message(advice.id, **slots(context, stages, blame)), commands_of(advice.id, context, stages)
    return with_commands(words, *lines) if lines else words


def first_advice(verdict: Verdict, place: FaultLocation | None, known: frozenset[Fact], cause: str | None = None) -> Advice:
    """Return the first row of :data:`ADVICE` that fits what is known, and the likeliest cause."""
    for advice in ADVICE:
        holds = known.issuperset(advice.when) and known.isdisjoint(advice.unless)
        fits = (not advice.places or place in advice.places) and advice.cause in (None, cause)
        if holds and fits and advice.verdict is verdict:
            return advice
    raise LookupError(f"no advice for {verdict}")


def facts(context: ComparisonContext, stages: Sequence[StageResult], blame: Blame | None) -> frozenset[Fact]:
    """Return what is known of a comparison."""
    pair, (reference, candidate) = context.pair, context.pair.runs
    first, settings = pair.first or 0, candidate.facts.settings
    compared = {stage.stage for stage in stages if stage.status is not Status.NOT_COMPARED}
    updates = updates_to_inject(pair, stages)
    reasons, rows = {stage.reason for stage in stages}, [run.facts.padded_vocabulary for run in pair.runs]
    padding, divergence = Reason.OTHER_PADDING in reasons, evidence_of(stages, LossDivergence)
    known = {
        Fact.MEASURED: bool(context.noise.repeats),
        Fact.SETTINGS: bool(context.settings),
        Fact.SUSPECTED: blame is not None
        and any(suspect.name == finding.name for suspect in blame.suspects for finding in context.settings),
        Fact.ITSELF: pair.is_itself,
        Fact.RATES: bool(differing(stages, registry.hyper_parameters)),
        Fact.RESUMED: first > 0,
        Fact.PADDING: padding,
        Fact.LOGS: bool(pair.converted),
        Fact.DUMPED: bool(pair.dumped),
        Fact.ONE_RANK: divergence.rows.rows is AffectedRows.RANK,
        Fact.REPLAYED: bool(settings.get("replay_batches")),
        Fact.LOADED: bool(settings.get("load_weights")),
        Fact.INJECTED: set(updates) <= set(candidate.facts.injected.steps),
        Fact.HALF: "bfloat16" in pair.compute_types or "float16" in pair.compute_types,
        Fact.SHARDED: candidate.world_size > 1,
        Fact.STORED: first in pair.steps("weights") and first in pair.steps("gradients"),
        Fact.FED: feeds(reference, first),
        Fact.GRADIENTS: set(updates) <= set(reference.gradient_steps()),
        Fact.ARBITRABLE: bool(reference.facts.model and not pair.draws)
        and not any({NO_FAMILY, UNKNOWN} & run.facts.model.keys() for run in pair.runs)
        and all(feeds(run, first_apart(stages) or first) for run in pair.runs),
        Fact.PATTERN: any(stage.common and stage.status is Status.DIFFERENT for stage in stages),
        Fact.NOTHING: not (reference.steps and candidate.steps),
        Fact.OTHER_ROWS: padding and None not in rows and rows[0] != rows[1],
        Fact.ANOTHER_MODEL: Reason.OTHER_MODEL in reasons,
        Fact.TIED: any(stage.stage is registry.routing and stage.open for stage in stages),
        Fact.CHOICES: first in reference.steps_of("routing") and not settings.get("replay_routing"),
        Fact.LATE: any(stage.stage is registry.band and stage.status is Status.DIFFERENT for stage in stages),
        Fact.POINTS: first in pair.steps("activations"),
        Fact.CLEAR: furthest_out(stages) > CLEAR or jumps(stages),
        Fact.REFUSED: any(ending.end is End.REFUSED for ending in candidate.endings.values()),
        Fact.ALONE: blame is not None and not OF_ONE_TENSOR.isdisjoint(blame.causes),
        Fact.EMPTIED: blame is not None and "moments_emptied" in blame.causes,
        Fact.GROUPED: grouped(stages) is not None,
        Fact.COUNTED: counted(stages),
        Fact.MADE: blame is not None and not OF_DATA.isdisjoint(blame.causes),
        Fact.DRAWS: pair.draws,
        Fact.TERM: blame is not None and any(suspect.name in Term for suspect in blame.suspects[:1]),
        Fact.WEIGHED: Reason.LOSS_NORMALISATION in reasons,
        Fact.UNSEEN: Reason.MASK_UNSEEN in reasons,
        Fact.UNRECOGNISED: unrecognised(context) is not None,
        Fact.WHOLE_BATCH: blame is not None
        and any(suspect.name == MICRO_BATCH for suspect in blame.suspects[:1])
        and not can_be_given(MICRO_BATCH, str(candidate.facts.side)),
        Fact.BLIND: not_seen(context) is not None,
        Fact.ARGUMENTS: all(run.facts.arguments for run in pair.runs),
        Fact.BARE: not compared & {registry.local_norms, registry.gradients},
    }
    return frozenset(fact for fact, holds in known.items() if holds)


def furthest_out(stages: Sequence[StageResult]) -> float:
    """Return how many times its limit the worst finding of the first stage that differs is; 0 without one."""
    first = first_different(stages)
    return max((finding.limit_ratio for finding in first.findings), default=0.0) if first is not None else 0.0


def jumps(stages: Sequence[StageResult]) -> bool:
    """Return whether an error arises at one point, far beyond its limit, while all its sources agree."""
    return any(origin.finding.limit_ratio > JUMP and origin.inputs < AGREES for stage in stages for origin in stage.origins)


def counted(stages: Sequence[StageResult]) -> bool:
    """Return whether the first difference is a count of the training state, which no forward pass shows: buffers have digests."""
    first = first_different(stages)
    return first is not None and first.stage is registry.state and not any(finding.name.startswith(BUFFER) for finding in first.findings)


def grouped(stages: Sequence[StageResult]) -> Finding | None:
    """Return the finding that some parameters decay on one side only, where the optimizers differ in nothing else."""
    found = differing(stages, registry.hyper_parameters)
    if len(found) != 1 or found[0].name != HyperParameter.WEIGHT_DECAY or 0 not in (found[0].reference, found[0].candidate):
        return None
    return found[0] if isinstance(found[0].what, Message) and "names" in found[0].what.arguments else None


def slots(context: ComparisonContext, stages: Sequence[StageResult], blame: Blame | None) -> dict[str, Argument]:
    """Return what fills the messages of :data:`ADVICE`."""
    settings = [*dict.fromkeys(map(setting, (*context.settings, *differing(stages, registry.hyper_parameters))))]
    rows, side = context.pair.reference.facts.padded_vocabulary, str(context.pair.candidate.facts.side)
    apart = grouped(stages)
    first = blame.suspects[0].name if blame and blame.suspects else ""  # what several suspects have in common has no name
    mended = "" if first in ScalarRow.__struct_fields__ else first  # a number of a step is no thing to mend
    stranger, causes = unrecognised(context), blame.causes if blame is not None else ()
    return {
        "repeat": COMMANDS["repeat"],
        "suspect": mended or message("next.what_differs"),
        "look": message(f"look.{causes[0]}") if causes else message("next.what_differs"),
        "term": Term(first) if first in Term else message("next.what_differs"),
        "setting": several(settings),
        "count": len(updates_to_inject(context.pair, stages)),
        "stranger": stranger,
        "way_out": not_seen(context),
        "at_once": context.pair.candidate.facts.training.micro_batch_size,
        "decayed": Side.CANDIDATE if apart is not None and apart.reference == 0 else Side.REFERENCE,
        "names": apart.what.arguments["names"] if apart is not None and isinstance(apart.what, Message) else "",
        "rows": rows,
        "setting_of_rows": message(SETTING_OF_ROWS[side], rows=rows) if side in SETTING_OF_ROWS else "",
    }


def unrecognised(context: ComparisonContext) -> Side | None:
    """Return the only side whose model is of no family; None where both are, or neither is."""
    strange = [side for side, run in context.pair.sides if NO_FAMILY in run.facts.model]
    return strange[0] if len(strange) == 1 and any(finding.name == FAMILY for finding in context.settings) else None


def not_seen(context: ComparisonContext) -> Message | None:
    """Return what no recorder could see of a side's batches, with the way out: the first reason, the reference's first."""
    return next((message("next.unseen_of", side=side, why=reason.words) for side, run in context.pair.sides for reason in run.unseen), None)


def setting(finding: Finding) -> Argument:
    """Return the subject of a finding of two settings, without its parameters or its step."""
    if finding.quantity is Metric.MODEL_SETTING:
        return finding.what
    if finding.quantity is Metric.LEARNING_RATE:
        return finding.quantity
    return HyperParameter(finding.name) if finding.name else finding.what
