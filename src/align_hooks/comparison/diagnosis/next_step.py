"""The command to run after a verdict: a table of advice, whose first row that fits is given.

Commands are written so that they can be pasted before the command that started the run, which is not on record.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from align_hooks.comparison.diagnosis.signatures import OF_DATA
from align_hooks.comparison.ladder import Ladder
from align_hooks.comparison.settings import HyperParameter, several
from align_hooks.comparison.stages.band import band
from align_hooks.comparison.stages.gradients import gradients
from align_hooks.comparison.stages.hyper_parameters import hyper_parameters
from align_hooks.comparison.stages.local_norms import local_norms
from align_hooks.comparison.stages.routing import routing
from align_hooks.comparison.token_losses import Rows
from align_hooks.comparison.verdict import Blame, Finding, Place, Quantity, Reason, StageResult, Status, Verdict, Words, differing
from align_hooks.messages import Argument, message, with_commands
from align_hooks.process.storage import is_remote
from align_hooks.record.reader import Run

FEED = "ALIGN_HOOKS_REPLAY_BATCHES={reference} ALIGN_HOOKS_LOAD_WEIGHTS={reference}@{first}"
COMMANDS = {
    "fed": "ALIGN_HOOKS_RUN={again} " + FEED,
    "noise": "ALIGN_HOOKS_RUN={noise} ALIGN_HOOKS_PERTURB=1 ALIGN_HOOKS_BATCHES=all ALIGN_HOOKS_LOCAL_NORMS=all ALIGN_HOOKS_SKETCHES=all "
    + "{routing}"
    + FEED,
    "compare_with_noise": "align-hooks compare {reference} {candidate} --noise {noise}",
    "replayable": "ALIGN_HOOKS_BATCHES=all ALIGN_HOOKS_WEIGHTS={first}",
    "resumed": "ALIGN_HOOKS_RUN={again} ALIGN_HOOKS_REPLAY_BATCHES={reference}",
    "first_step": "ALIGN_HOOKS_GRADIENTS={first} ALIGN_HOOKS_WEIGHTS={first}",
    "injected": "ALIGN_HOOKS_INJECT_GRADIENTS={reference}@{updates} ALIGN_HOOKS_GRADIENTS={updates} ALIGN_HOOKS_WEIGHTS={states} "
    "ALIGN_HOOKS_OPTIMIZER_STATE={states} ALIGN_HOOKS_RUN={again} " + FEED,
    "injectable": "ALIGN_HOOKS_BATCHES=all ALIGN_HOOKS_GRADIENTS={updates} ALIGN_HOOKS_WEIGHTS={states} "
    "ALIGN_HOOKS_OPTIMIZER_STATE={states}",
    "routed": "ALIGN_HOOKS_RUN={again} ALIGN_HOOKS_REPLAY_ROUTING={reference} " + FEED,
    "routable": "ALIGN_HOOKS_ROUTING=all",
    "show": "align-hooks show {broken}",
    "check": "align-hooks check {reference} {candidate}",
    "compare": "align-hooks compare {reference} CANDIDATE",
    "norms_and_sketches": "ALIGN_HOOKS_LOCAL_NORMS=all ALIGN_HOOKS_SKETCHES=all",
    "beside_dump": "ALIGN_HOOKS_BATCHES=all ALIGN_HOOKS_LOCAL_NORMS=all ALIGN_HOOKS_SKETCHES=all",
    "repeat": "ALIGN_HOOKS_PERTURB=2",
    "bisect": "align-hooks compare {reference} {candidate} --plan bisect.yaml",
    "ladder": "align-hooks ladder bisect.yaml",
    "arbitrate": "align-hooks arbitrate {reference} {candidate}",
}
"""Commands to paste."""
SIDES = {
    **dict.fromkeys(("fed", "resumed", "injected", "routed"), "command.candidate"),
    **dict.fromkeys(("noise", "replayable", "injectable"), "command.reference"),
}
"""Of commands that are variables to set, the message that says before whose command they stand."""
PASTED: dict[str, tuple[str, ...]] = {
    "next.feed_batches": ("fed",),
    "next.feed_weights": ("fed",),
    "next.mend_conversion": ("fed",),
    "next.without_overlap": ("fed",),
    "next.look_at_checkpoint": ("resumed",),
    "next.without_dropout": ("fed",),
    "next.narrow_down": ("noise", "compare_with_noise"),
    "next.third_opinion": ("arbitrate",),
    "next.store_first_step": ("first_step",),
    "next.one_rank": ("fed",),
    "next.bisect": ("bisect", "ladder"),
    "next.inject_gradients": ("injected",),
    "next.store_updates": ("injectable",),
    "next.mend": ("fed",),
    "next.store": ("replayable",),
    "next.replay_routing": ("routed",),
    "next.record_routing": ("routable",),
    "next.measure_noise": ("noise", "compare_with_noise"),
    "next.set_alike_and_record_both": ("replayable",),
    "next.record_both": ("replayable",),
    "next.record_dumped": ("replayable",),
    "next.see_why": ("show",),
    "next.same_sizes": ("check",),
    "next.record_from_reference": ("fed",),
    "next.two_runs": ("compare",),
    "next.record_beside_dump": ("beside_dump",),
    "next.record_more": ("norms_and_sketches",),
}
"""The commands of each advice, in the order in which they are run."""
SETTING_OF_ROWS = {"torch": "next.rows_of_megatron", "ms": "next.rows_of_mindformers"}
"""The setting of each side for how many rows its embedding has, with padding."""


Fact = Enum(
    "Fact",
    "MEASURED SETTINGS SUSPECTED ITSELF RATES RESUMED PADDING LOGS ONE_RANK REPLAYED LOADED INJECTED HALF SHARDED STORED FED GRADIENTS "
    "ARBITRABLE PATTERN NOTHING OTHER_ROWS ANOTHER_MODEL BARE TIED CHOICES DUMPED LATE MADE WEIGHED UNSEEN",
)
"""What is known of a comparison that advice depends on; :func:`facts` says when each holds."""


@dataclass(frozen=True, slots=True)
class Advice:
    """The message for a ``verdict`` at one of ``places`` (any where empty), where all facts of ``when`` hold and none of ``unless``."""

    verdict: Verdict
    id: str
    places: tuple[Place, ...] = ()
    when: tuple[Fact, ...] = ()
    unless: tuple[Fact, ...] = ()


DIVERGED, INCONCLUSIVE, NOT_COMPARABLE, ALIGNED = Verdict.DIVERGED, Verdict.INCONCLUSIVE, Verdict.NOT_COMPARABLE, Verdict.ALIGNED
OF_UPDATES = (Place.CLIPPING, Place.OPTIMIZER, Place.NEXT_LOSS, Place.CURVE)
ADVICE = (
    Advice(DIVERGED, "next.record_dumped", (), (Fact.DUMPED,)),
    Advice(DIVERGED, "next.set_alike", (Place.CONFIGURATION,)),
    Advice(DIVERGED, "next.mend_making", (Place.DATA,), (Fact.MADE,)),
    Advice(DIVERGED, "next.feed_batches", (Place.DATA,), (Fact.FED,), (Fact.REPLAYED,)),
    Advice(DIVERGED, "next.feed_weights", (Place.WEIGHTS,), (Fact.FED,), (Fact.LOADED,)),
    Advice(DIVERGED, "next.mend_conversion", (Place.WEIGHTS,), (Fact.FED,)),
    Advice(DIVERGED, "next.set_alike", (), (Fact.SUSPECTED,)),
    Advice(DIVERGED, "next.without_overlap", (Place.FORWARD,), (Fact.FED, Fact.ONE_RANK)),
    Advice(DIVERGED, "next.look_at_checkpoint", (Place.STATE,), (Fact.FED, Fact.RESUMED)),
    Advice(DIVERGED, "next.without_dropout", (Place.STATE,), (Fact.FED,)),
    Advice(DIVERGED, "next.narrow_down", (Place.FORWARD,), (Fact.FED,), (Fact.MEASURED,)),
    Advice(DIVERGED, "next.third_opinion", (Place.FORWARD,), (Fact.ARBITRABLE,)),
    Advice(DIVERGED, "next.store_first_step", (Place.FORWARD,), (), (Fact.STORED,)),
    Advice(DIVERGED, "next.look_at_divisors", (Place.NORMALISATION,), (Fact.PATTERN,)),
    Advice(DIVERGED, "next.one_micro_batch", (Place.NORMALISATION,)),
    Advice(DIVERGED, "next.one_rank", (Place.GRADIENTS,), (Fact.FED, Fact.SHARDED)),
    Advice(DIVERGED, "next.narrow_down", (Place.GRADIENTS,), (Fact.FED,), (Fact.MEASURED,)),
    Advice(DIVERGED, "next.bisect", (Place.CURVE,), (Fact.LATE,)),
    Advice(DIVERGED, "next.inject_gradients", OF_UPDATES, (Fact.FED, Fact.GRADIENTS), (Fact.INJECTED,)),
    Advice(DIVERGED, "next.store_updates", OF_UPDATES, (), (Fact.INJECTED,)),
    Advice(DIVERGED, "next.read_self_check", (Place.SELF_CHECK,)),
    Advice(DIVERGED, "next.mend", (), (Fact.FED,)),
    Advice(DIVERGED, "next.store"),
    Advice(INCONCLUSIVE, "next.replay_routing", (), (Fact.TIED, Fact.CHOICES, Fact.FED)),
    Advice(INCONCLUSIVE, "next.record_routing", (), (Fact.TIED,)),
    Advice(INCONCLUSIVE, "next.set_alike", (), (Fact.SETTINGS,)),
    Advice(INCONCLUSIVE, "next.rehearse", (), (Fact.MEASURED, Fact.HALF)),
    Advice(INCONCLUSIVE, "next.measure_noise", (), (Fact.FED,), (Fact.MEASURED,)),
    Advice(INCONCLUSIVE, "next.measure_more_noise", (), (Fact.MEASURED,)),
    Advice(INCONCLUSIVE, "next.set_alike_and_record_both", (), (Fact.LOGS, Fact.RATES)),
    Advice(INCONCLUSIVE, "next.record_both", (), (Fact.LOGS,)),
    Advice(INCONCLUSIVE, "next.store"),
    Advice(NOT_COMPARABLE, "next.set_alike", (), (Fact.PADDING, Fact.SETTINGS), (Fact.OTHER_ROWS,)),
    Advice(NOT_COMPARABLE, "next.see_why", (), (Fact.NOTHING,)),
    Advice(NOT_COMPARABLE, "next.give_rows", (), (Fact.OTHER_ROWS,)),
    Advice(NOT_COMPARABLE, "next.same_sizes", (), (Fact.ANOTHER_MODEL,)),
    Advice(NOT_COMPARABLE, "next.show_mask", (), (Fact.UNSEEN,)),
    Advice(NOT_COMPARABLE, "next.loss_per_token", (), (Fact.WEIGHED,)),
    Advice(NOT_COMPARABLE, "next.record_from_reference", (), (Fact.FED,)),
    Advice(NOT_COMPARABLE, "next.store"),
    Advice(ALIGNED, "next.two_runs", (), (Fact.ITSELF,)),
    Advice(ALIGNED, "next.record_beside_dump", (), (Fact.DUMPED,)),
    Advice(ALIGNED, "next.record_more", (), (Fact.BARE,)),
    Advice(ALIGNED, "next.your_precision", (), (), (Fact.HALF,)),
    Advice(ALIGNED, "next.your_layout"),
)


def next_step(verdict: Verdict, blame: Blame | None, ladder: Ladder, stages: Sequence[StageResult]) -> Words:
    """What to do after a comparison, and the commands for it."""
    advice = first_advice(verdict, blame.place if blame else None, facts(ladder, stages, blame))
    known, words = commands(ladder), message(advice.id, **slots(ladder, stages, blame))
    pasted = PASTED.get(advice.id, ())
    lines = [message(SIDES[name], variables=known[name]) if name in SIDES else known[name] for name in pasted]
    return with_commands(words, *lines) if lines else words


def first_advice(verdict: Verdict, place: Place | None, known: frozenset[Fact]) -> Advice:
    """The first row of :data:`ADVICE` that fits what is known."""
    for advice in ADVICE:
        holds = known.issuperset(advice.when) and known.isdisjoint(advice.unless)
        if holds and advice.verdict is verdict and (not advice.places or place in advice.places):
            return advice
    raise LookupError(f"no advice for {verdict}")


def facts(ladder: Ladder, stages: Sequence[StageResult], blame: Blame | None) -> frozenset[Fact]:
    """What is known of a comparison."""
    pair, (reference, candidate) = ladder.pair, ladder.pair.runs
    first, settings = pair.first or 0, candidate.facts.settings
    compared = {stage.stage for stage in stages if stage.status is not Status.NOT_COMPARED}
    reasons, rows = {stage.reason for stage in stages}, padded_rows(ladder)
    padding = Reason.OTHER_PADDING in reasons
    known = {
        Fact.MEASURED: bool(ladder.noise.repeats),
        Fact.SETTINGS: bool(ladder.settings),
        Fact.SUSPECTED: blame is not None
        and any(suspect.name == finding.name for suspect in blame.suspects for finding in ladder.settings),
        Fact.ITSELF: pair.is_itself,
        Fact.RATES: bool(differing(stages, hyper_parameters)),
        Fact.RESUMED: first > 0,
        Fact.PADDING: padding,
        Fact.LOGS: bool(pair.converted),
        Fact.DUMPED: bool(pair.dumped),
        Fact.ONE_RANK: ladder.parted.rows.rows is Rows.RANK,
        Fact.REPLAYED: bool(settings.get("replay_batches")),
        Fact.LOADED: bool(settings.get("load_weights")),
        Fact.INJECTED: bool(settings.get("inject_gradients")),
        Fact.HALF: "bfloat16" in pair.compute_types or "float16" in pair.compute_types,
        Fact.SHARDED: candidate.world_size > 1,
        Fact.STORED: first in pair.steps("weights") and first in pair.steps("gradients"),
        Fact.FED: first in reference.batch_steps() and first in reference.weight_steps(),
        Fact.GRADIENTS: first in reference.gradient_steps(),
        Fact.ARBITRABLE: bool(reference.facts.model)
        and all(first in run.batch_steps() and first in run.weight_steps() for run in pair.runs),
        Fact.PATTERN: any(stage.common and stage.status is Status.DIFFERENT for stage in stages),
        Fact.NOTHING: not (reference.steps and candidate.steps),
        Fact.OTHER_ROWS: padding and None not in rows and rows[0] != rows[1],
        Fact.ANOTHER_MODEL: Reason.OTHER_MODEL in reasons,
        Fact.TIED: any(stage.stage is routing and stage.open for stage in stages),
        Fact.CHOICES: first in reference.steps_of("routing") and not settings.get("replay_routing"),
        Fact.LATE: any(stage.stage is band and stage.status is Status.DIFFERENT for stage in stages),
        Fact.MADE: blame is not None and not {*OF_DATA}.isdisjoint(blame.causes),
        Fact.WEIGHED: Reason.LOSS_NORMALISATION in reasons,
        Fact.UNSEEN: Reason.MASK_UNSEEN in reasons,
        Fact.BARE: not compared & {local_norms, gradients},
    }
    return frozenset(fact for fact, holds in known.items() if holds)


def slots(ladder: Ladder, stages: Sequence[StageResult], blame: Blame | None) -> dict[str, Argument]:
    """What fills the messages of :data:`ADVICE`."""
    settings = [*dict.fromkeys(map(setting, (*ladder.settings, *differing(stages, hyper_parameters))))]
    rows, side = padded_rows(ladder)[0], str(ladder.pair.candidate.facts.side)
    first = blame.suspects[0].name if blame and blame.suspects else ""  # what several suspects have in common has no name
    return {
        "repeat": COMMANDS["repeat"],
        "suspect": first or message("next.what_differs"),
        "setting": several(settings),
        "rows": rows,
        "setting_of_rows": message(SETTING_OF_ROWS[side], rows=rows) if side in SETTING_OF_ROWS else "",
    }


def commands(ladder: Ladder) -> dict[str, str]:
    """The commands of :data:`COMMANDS` for a pair."""
    reference, candidate = ladder.pair.runs
    first = ladder.pair.first or 0
    paths = {
        "reference": reference.path,
        "candidate": candidate.path,
        "noise": f"{_to_record(reference)}_noise",
        "again": f"{_to_record(candidate)}_again",
        "broken": candidate.path if reference.steps else reference.path,
    }
    filled = {name: shlex.quote(str(path)) for name, path in paths.items()}
    filled["first"] = str(first)
    filled["routing"] = "ALIGN_HOOKS_ROUTING=all " if reference.steps_of("routing") else ""
    filled |= {"updates": f"{first}-{first + 2}", "states": f"{first}-{first + 3}"}
    return {name: command.format(**filled) for name, command in COMMANDS.items()}


def _to_record(run: Run) -> Path | str:
    """The path of a run, or the name alone of one in object storage, where nothing is recorded."""
    return run.path.name if is_remote(run.path) else run.path


def padded_rows(ladder: Ladder) -> list[int | None]:
    """Rows of both embeddings, with padding; None where a record does not say."""
    return [run.facts.padded_vocabulary for run in ladder.pair.runs]


def setting(finding: Finding) -> Argument:
    """The subject of a finding of two settings, without its parameters or its step."""
    if finding.quantity is Quantity.MODEL_SETTING:
        return finding.what
    if finding.quantity is Quantity.LEARNING_RATE:
        return finding.quantity
    return HyperParameter(finding.name) if finding.name else finding.what
