"""What a stage compares, and how it came out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, IntEnum
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from align_hooks.comparison.finding import Finding, Named, Words
from align_hooks.messages import Argument, Joined, Message, message, sentences
from align_hooks.names.points import GRADIENT

Evidence = TypeVar("Evidence")


class Status(Enum):
    """How one stage ended; the value is what people read."""

    SAME = "same"
    DIFFERENT = "different"
    INCONCLUSIVE = "inconclusive"
    NOT_COMPARABLE = "not comparable"
    INCOMPLETE = "incomplete"
    NOT_COMPARED = "not compared"


class Reason(Enum):
    """Why two runs, or what they recorded, cannot be laid side by side."""

    NO_WHOLE_STEP = "a run recorded no whole step"
    NO_REPEAT = "what limits should be measured on is no repeat of the reference"
    MOVED_WEIGHTS = "the weights of a run were moved to measure noise"
    RANKS_MISSING = "ranks of a run left no manifest"
    OTHER_PADDING = "the vocabularies are padded otherwise"
    OTHER_MODEL = "the models have other parameters"
    NO_COMMON_STEP = "no step was completed by both"
    LOSS_NORMALISATION = "the sides weigh tokens otherwise in their loss"
    MASK_UNSEEN = "the loss mask of a side is not on record"


class Phase(IntEnum):
    """When in its step a stage's difference comes about. The first member is of the whole record, the last of all steps together."""

    BEFORE_ALL = -1
    START = 0
    FORWARD = 1
    BACKWARD = 2
    UPDATE = 3
    AFTER_ALL = 4


class FaultLocation(Named):
    """Where a fault sits."""

    MATCH = "match"
    SELF_CHECK = "self-check"
    CONFIGURATION = "configuration"
    DATA = "data"
    WEIGHTS = "weights"
    STATE = "state"
    FORWARD = "forward"
    NORMALISATION = "loss normalisation"
    GRADIENTS = "reduced gradients"
    CLIPPING = "clipping"
    OPTIMIZER = "optimizer"
    NEXT_LOSS = "next loss"
    CURVE = "curve"


class StageInfo(Struct, frozen=True):
    """What a stage of the ladder compares, and what a difference means that shows there first.

    ``place`` is where a fault sits that shows in this stage first, None where that takes a second look. ``draws``: the numbers depend on
    random ones. ``is_of_tensors``: there is one finding a tensor. ``is_pictured``: these make a picture of the model.
    ``is_before_numbers``: no number of either model is needed. ``decides`` is False of a stage that alone makes no pair aligned: its
    numbers follow from the others, or drift, or there was nothing yet. ``source`` is where its method is from.
    """

    name: str
    phase: Phase = Phase.BEFORE_ALL
    place: FaultLocation | None = None
    draws: bool = False
    is_of_tensors: bool = False
    is_pictured: bool = False
    is_before_numbers: bool = False
    decides: bool = True
    source: Argument = ""

    @property
    def id(self) -> str:
        """The end of the ids of its words."""
        return "".join(letter if letter.isalnum() else "_" for letter in self.name)

    @property
    def title(self) -> Message:
        """Its name in words."""
        return message(f"stage.{self.id}")

    @property
    def method(self) -> Message:
        """How its numbers are made."""
        return message(f"method.{self.id}")


class ErrorOrigin(Struct, frozen=True):
    """A point at which an error comes about: its ``finding``, the points that it is made from, and the largest limit_ratio among these."""

    finding: Finding
    made_from: tuple[str, ...]
    inputs: float

    @property
    def name(self) -> str:
        """The point's, without the suffix of a gradient."""
        return self.finding.name.removesuffix(GRADIENT)


class StageResult(Struct, frozen=True):
    """How one stage came out."""

    stage: StageInfo
    status: Status
    summary: Words
    """What was compared, or why not."""
    findings: tuple[Finding, ...] = ()
    """The worst first."""
    common: Words | None = None
    """What the findings have in common; None where that is not known."""
    pattern: Enum | None = None
    """The pattern that ``common`` describes; None where it is no known one."""
    open: bool = False
    """Whether neither this stage nor a difference in a later one can decide."""
    reason: Reason | None = None
    """Why there is nothing to compare, where the next step depends on it."""
    other_title: Message | None = None
    """The title in this comparison; None where it is the stage's own."""
    ties: int | None = None
    """The first step at which tokens were given to other experts; None where none were."""
    origins: tuple[ErrorOrigin, ...] = ()
    """The points at which an error comes about."""
    short: Words | None = None
    """The summary in a few words, where a line must fit."""
    differs: Words | None = None
    """What differs and from where on; None where the first finding says it."""
    jumps: tuple[Words, ...] = ()
    """How the error comes about at ``origins``."""
    place: FaultLocation | None = None
    """Where the fault sits by what was found; None where the stage and the diagnosis say it."""
    evidence: object = None
    """What the stage knows beside its findings (:func:`evidence_of`); None where that is nothing."""

    @property
    def name(self) -> str:
        """The stage's, as programs read it."""
        return self.stage.name

    @property
    def title(self) -> Message:
        """What the stage is called."""
        return self.other_title or self.stage.title

    @property
    def beyond(self) -> list[Finding]:
        """The findings beyond their limits, in their order."""
        return [finding for finding in self.findings if finding.limit_ratio > 1]

    @property
    def headline(self) -> Words:
        """What differs and from where on, in a line; of a stage that came to no verdict, why."""
        worst = next(iter(self.beyond), None)
        if self.differs is not None or worst is None or self.status not in (Status.DIFFERENT, Status.INCONCLUSIVE):
            return self.differs or message("differs.why", stage=self.title, summary=self.summary)
        return message("differs.one" if self.status is Status.DIFFERENT else "differs.unclear", what=worst.what)

    def with_common(self, common: Words | None, pattern: Enum | None = None) -> StageResult:
        """The same stage with what its findings have in common, in its summary too, and the first of it as what differs where nothing else
        says that; nothing changes where nothing is known. ``pattern`` is the known pattern that this is."""
        if common is None:
            return self
        first = common.parts[0] if isinstance(common, Joined) else common
        differs = self.differs or (first if isinstance(first, Message) else None)
        return replace(self, summary=sentences(self.summary, common), common=common, pattern=pattern, differs=differs)


def first_different(results: Sequence[StageResult]) -> StageResult | None:
    """The first stage that differs; None where none does."""
    return next((result for result in results if result.status is Status.DIFFERENT), None)


def evidence_of(results: Iterable[StageResult], kind: type[Evidence]) -> Evidence:
    """Return what a stage knows of a kind; an empty one where no stage of this comparison knows such a thing."""
    return next((result.evidence for result in results if isinstance(result.evidence, kind)), kind())


def differing(results: Sequence[StageResult], stage: StageInfo) -> tuple[Finding, ...]:
    """What a stage found to differ; nothing where it does not."""
    return next((result.findings for result in results if result.stage is stage and result.status is Status.DIFFERENT), ())
