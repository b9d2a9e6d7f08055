"""What advice depends on: how both runs were recorded and compared, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.diagnosis.commands import feeds, first_apart, updates_to_inject
from align_hooks.comparison.finding import Finding, Metric, Term
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.settings.recorded import FAMILY, HyperParameter, several
from align_hooks.comparison.stage_result import Reason, StageInfo, StageResult, Status, differing, first_different
from align_hooks.comparison.stages import registry
from align_hooks.comparison.verdict import Blame, Suspect
from align_hooks.messages import Argument, Message, Side, message
from align_hooks.quantities.weights import NO_FAMILY, UNKNOWN
from align_hooks.record.format.schema import ScalarRow
from align_hooks.record.format.state import BUFFER
from align_hooks.record.reader import Run

CLEAR = 100
"""Times its limit at which no measured limit makes an error rounding."""
JUMP, AGREES = 10.0, 0.2
"""Times its limit that an error jumps to, and of what it is made from, where that is no growing of rounding."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do, and the commands that do it."""

    words: Message
    commands: tuple[str, ...] = ()
    """Names of ``commands.txt``, in the order in which they are run."""


AGAIN = ("fed", "compare_fed")
"""Commands that record the candidate from the reference."""
BOTH = ("replayable", "fed_again", "compare_again")
"""Commands that record the reference with what a replay needs, then the candidate from it."""


@dataclass(frozen=True)
class Situation:
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
    def reference(self) -> Run:
        """Return the reference."""
        return self.pair.reference

    @property
    def candidate(self) -> Run:
        """Return the candidate."""
        return self.pair.candidate

    @property
    def first(self) -> int:
        """Return the first common step; 0 without one."""
        return self.pair.first or 0

    # ---- what is on record

    @property
    def feeds(self) -> bool:
        """Return whether the candidate can start from the reference's record."""
        return feeds(self.reference, self.first)

    def candidate_used(self, setting: str) -> bool:
        """Return whether the candidate ran with a setting of align_hooks."""
        return bool(self.candidate.facts.settings.get(setting))

    def has_first(self, *quantities: str) -> bool:
        """Return whether both runs recorded all of some quantities at the first step."""
        return all(self.first in self.pair.steps(quantity) for quantity in quantities)

    @property
    def is_injected(self) -> bool:
        """Return whether the candidate used another run's gradients in all updates that matter."""
        return set(updates_to_inject(self.pair, self.stages)) <= set(self.candidate.facts.injected.steps)

    @property
    def has_gradients_to_inject(self) -> bool:
        """Return whether the reference recorded the gradients of all updates that matter."""
        return set(updates_to_inject(self.pair, self.stages)) <= set(self.reference.gradient_steps())

    @property
    def is_arbitrable(self) -> bool:
        """Return whether a third implementation can compute the step that differs."""
        if not self.reference.facts.model or self.pair.draws:
            return False
        known = not any({NO_FAMILY, UNKNOWN} & run.facts.model.keys() for run in self.pair.runs)
        return known and all(feeds(run, first_apart(self.stages) or self.first) for run in self.pair.runs)

    @property
    def has_arguments(self) -> bool:
        """Return whether both runs recorded their arguments, of which ``check`` makes changes."""
        return all(run.facts.arguments for run in self.pair.runs)

    @property
    def is_measured(self) -> bool:
        """Return whether limits were measured on repeats of the reference."""
        return bool(self.context.noise.repeats)

    @property
    def is_half(self) -> bool:
        """Return whether a run computes in a type of 16 bits."""
        return "bfloat16" in self.pair.compute_types or "float16" in self.pair.compute_types

    @property
    def unrecognised(self) -> Side | None:
        """Return the only side whose model is of no family; None where both are, or neither is."""
        strange = [side for side, run in self.pair.sides if NO_FAMILY in run.facts.model]
        return strange[0] if len(strange) == 1 and any(finding.name == FAMILY for finding in self.context.settings) else None

    @property
    def unseen(self) -> Message | None:
        """Return what no recorder could see of a side's batches, with the way out: the first reason, the reference's first."""
        reasons = ((side, reason) for side, run in self.pair.sides for reason in run.unseen)
        return next((message("next.unseen_of", side=side, why=reason.words) for side, reason in reasons), None)

    # ---- what the stages found

    def differs(self, stage: StageInfo) -> bool:
        """Return whether a stage differs."""
        return any(result.stage is stage and result.status is Status.DIFFERENT for result in self.stages)

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
    def is_count(self) -> bool:
        """Return whether the first difference is a count of the training state, which no forward pass shows: buffers have digests."""
        first = first_different(self.stages)
        return (
            first is not None and first.stage is registry.state and not any(finding.name.startswith(BUFFER) for finding in first.findings)
        )

    @property
    def grouped(self) -> Finding | None:
        """Return the finding that some parameters decay on one side only, where the optimizers differ in nothing else."""
        found = differing(self.stages, registry.hyper_parameters)
        if len(found) != 1 or found[0].name != HyperParameter.WEIGHT_DECAY or 0 not in (found[0].reference, found[0].candidate):
            return None
        return found[0] if found[0].names else None

    @property
    def settings(self) -> Argument:
        """Return the settings that differ, in words."""
        found = (*self.context.settings, *differing(self.stages, registry.hyper_parameters))
        return several([*dict.fromkeys(map(subject, found))])

    # ---- what is suspected

    @property
    def suspects(self) -> Sequence[Suspect]:
        """Return what is suspected, the likeliest first."""
        return self.blame.suspects if self.blame is not None else ()

    @property
    def suspect(self) -> Argument:
        """Return what to mend; a number of a step is no such thing, and what several suspects have in common has no name."""
        name = self.suspects[0].name if self.suspects else ""
        return name if name and name not in ScalarRow.__struct_fields__ else message("next.what_differs")

    @property
    def term(self) -> Term | None:
        """Return the term of updates that is suspected first; None for anything else."""
        name = self.suspects[0].name if self.suspects else ""
        return Term(name) if name in Term else None

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


def mend(now: Situation) -> Advice:
    """Return that what is suspected is to be mended, where the candidate can be recorded from the reference."""
    return Advice(message("next.mend", suspect=now.suspect), AGAIN) if now.feeds else store()


def store() -> Advice:
    """Return the advice that asks for nothing."""
    return Advice(message("next.store"), BOTH)
