"""What advice depends on: how both runs were recorded and compared, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.diagnosis.commands import first_apart, is_replayable, updates_to_inject
from align_hooks.comparison.finding import Finding, Metric
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.settings.arguments import drops_tokens, unknown_term
from align_hooks.comparison.settings.recorded import FAMILY, HyperParameter, of_no_family, several
from align_hooks.comparison.stage_result import FaultLocation, Reason, StageResult, differing, first_different
from align_hooks.comparison.stages import registry
from align_hooks.comparison.verdict import Blame, Suspect
from align_hooks.messages import Argument, Message, Side, message
from align_hooks.quantities.weights import NO_FAMILY, UNKNOWN
from align_hooks.record.format.rows import ScalarRow
from align_hooks.record.format.terms import NAMED

CLEAR = 100
"""Times its limit at which no measured limit makes an error rounding."""
JUMP, AGREES = 10.0, 0.2
"""Times its limit that an error jumps to, and of what it is made from, where that is no growing of rounding."""


class Advice(Struct, frozen=True):
    """What to do, and the commands that do it."""

    words: Message
    commands: tuple[str, ...] = ()
    """Names of ``commands.txt``, in the order in which they are run."""
    without_draws: bool = False
    """Whether the runs are trained without what draws random numbers."""
    by_hand: bool = False
    """Whether something is to be mended or written before the commands are run."""
    decides: Message | None = None
    """What is at fault where the runs that the commands make agree; None where that does not tell."""


AGAIN = ("fed", "compare_fed")
"""Commands that record the candidate from the reference."""
BOTH = ("replayable", "fed_again", "compare_again")
"""Commands that record the reference with what a replay needs, then the candidate from it."""


class Situation(Struct, frozen=True):
    """A comparison whose verdict is known."""

    context: ComparisonContext
    stages: Sequence[StageResult]
    blame: Blame | None = None
    """None unless diverged."""

    @property
    def pair(self) -> Pair:
        """Return the two runs."""
        return self.context.pair

    @property
    def first(self) -> int:
        """Return the first common step; 0 without one."""
        return self.pair.first or 0

    @property
    def is_replayable(self) -> bool:
        """Return whether the candidate can start from the reference's record."""
        return is_replayable(self.pair.reference, self.first)

    def candidate_used(self, setting: str) -> bool:
        """Return whether the candidate ran with a setting of align_hooks."""
        return bool(self.pair.candidate.facts.settings.get(setting))

    def has_first(self, *quantities: str) -> bool:
        """Return whether both runs recorded all of some quantities at the first step."""
        return all(self.first in self.pair.steps(quantity) for quantity in quantities)

    @property
    def is_injected(self) -> bool:
        """Return whether the candidate used another run's gradients in all updates that matter."""
        return set(updates_to_inject(self.pair, self.stages)) <= set(self.pair.candidate.facts.injected.steps)

    @property
    def is_arbitrable(self) -> bool:
        """Return whether a third implementation can compute the step that differs."""
        if not self.pair.reference.facts.model or self.pair.draws or any(drops_tokens(run.facts) for run in self.pair.runs):
            return False
        known = not any({NO_FAMILY, UNKNOWN} & run.facts.model.keys() for run in self.pair.runs)
        if self.blame is not None and self.blame.place is FaultLocation.GRADIENTS:  # which depend on every term of the loss
            known = known and not any(unknown_term(run.facts) for run in self.pair.runs)
        return known and all(is_replayable(run, first_apart(self.stages) or self.first) for run in self.pair.runs)

    def without_arbitrate(self, advice: Advice) -> Advice | None:
        """Return advice with why it is not to arbitrate: a model of no family; None where that is not the reason."""
        for side, run in self.pair.sides:
            if NO_FAMILY in run.facts.model and self.is_replayable:
                what = of_no_family(run.facts.model)
                return replace(advice, words=message("next.not_arbitrated", advice=advice.words, side=side, what=what))
        return None

    @property
    def has_arguments(self) -> bool:
        """Return whether both runs recorded their arguments, of which ``check`` makes changes."""
        return all(run.facts.arguments for run in self.pair.runs)

    @property
    def is_half(self) -> bool:
        """Return whether a run computes in a type of 16 bits."""
        return "bfloat16" in self.pair.compute_types or "float16" in self.pair.compute_types

    @property
    def unrecognised(self) -> Side | None:
        """Return the only side whose model is of no family; None where both are, or neither is."""
        strange = [side for side, run in self.pair.sides if NO_FAMILY in run.facts.model]
        return strange[0] if len(strange) == 1 and any(finding.name == FAMILY for finding in self.context.settings) else None

    def stopped_for(self, reason: Reason) -> bool:
        """Return whether a stage could not compare for a reason."""
        return any(result.reason is reason for result in self.stages)

    @property
    def is_clear(self) -> bool:
        """Return whether no measured limit makes the first difference rounding: it is far out, or jumps while its sources agree."""
        first = first_different(self.stages)
        if first is not None and max((finding.limit_ratio for finding in first.findings), default=0.0) > CLEAR:
            return True
        origins = (origin for result in self.stages for origin in result.origins)
        return any(origin.finding.limit_ratio > JUMP and origin.inputs < AGREES for origin in origins)

    @property
    def settings(self) -> Argument:
        """Return the settings that differ, in words."""
        found = (*self.context.settings, *differing(self.stages, registry.hyper_parameters))
        return several([*dict.fromkeys(map(subject, found))])

    @property
    def suspects(self) -> Sequence[Suspect]:
        """Return what is suspected, the likeliest first."""
        return self.blame.suspects if self.blame is not None else ()

    @property
    def suspect(self) -> Argument:
        """Return what to mend; a number of a step is no such thing, and what several suspects have in common has no name."""
        name = self.suspects[0].name if self.suspects else ""
        if name in NAMED:
            return message(f"loss_terms.{name}")
        return name if name and name not in ScalarRow.__struct_fields__ else message("next.what_differs")

    @property
    def look(self) -> Message:
        """Return what to look at for the likeliest cause."""
        causes = self.blame.causes if self.blame is not None else ()
        return message(f"look.{causes[0]}") if causes else message("next.what_differs")


def subject(finding: Finding) -> Argument:
    """Return the subject of a finding of two settings, without its parameters or its step."""
    if finding.quantity is Metric.MODEL_SETTING:
        return finding.what
    if finding.quantity is Metric.LEARNING_RATE:
        return finding.quantity
    return HyperParameter(finding.name) if finding.name else finding.what


def mend_making(now: Situation) -> Advice:
    """Return that the way is to be mended in which a side makes its batches, which a replay would hide."""
    return Advice(message("next.mend_making"))


def refresh_main_parameters(now: Situation) -> Advice:
    """Return how an optimizer takes over the weights that were loaded into its model."""
    return Advice(message("next.refresh_main_parameters"))


def mend_cause(now: Situation) -> Advice:
    """Return what to open and mend."""
    return Advice(message("next.mend_cause", look=now.look))


def mend_if_built(now: Situation) -> Advice | None:
    """Return what to open and mend where both sides are given the same settings; None where the settings are to be set alike."""
    if now.blame is None or now.blame.place is FaultLocation.CONFIGURATION:
        return None
    first = first_different(now.stages)
    of_state = first is not None and first.stage is registry.state
    return Advice(message("next.read_count", suspect=now.suspect)) if of_state else mend_cause(now)


def mend_ranks(now: Situation) -> Advice:
    """Return what to open where ranks hold different copies, with the command that lists these."""
    return Advice(message("next.mend_ranks", look=now.look), ("show_contradictions",))


def mend_norm(now: Situation) -> Advice:
    """Return what to open where a norm does not count each element once, with the command that lists what it misses."""
    return Advice(message("next.mend_norm", look=now.look), ("show_contradictions",))


def read_or_mend(now: Situation) -> Advice:
    """Return what to read or mend where injected gradients say no more, as moments are empty."""
    return Advice(message("next.read_optimizer")) if now.is_replayable and now.is_injected else mend(now)


def mend(now: Situation) -> Advice:
    """Return that what is suspected is to be mended, where the candidate can be recorded from the reference; or read on both sides, where
    nothing says which is wrong."""
    if now.blame is not None and now.blame.side_is_open:
        return Advice(message("next.read_both", suspect=now.suspect))
    return Advice(message("next.mend", suspect=now.suspect), AGAIN, by_hand=True) if now.is_replayable else store()


def store() -> Advice:
    """Return the advice that asks for nothing."""
    return Advice(message("next.store"), BOTH, decides=message("decides.what_it_is_fed"))
