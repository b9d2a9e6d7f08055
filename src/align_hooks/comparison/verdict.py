"""The result of a comparison, as data that every report is made from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from enum import Enum, IntEnum
from typing import TypeAlias, TypeVar

from align_hooks.messages import Argument, Joined, Message, Side, message, sentences
from align_hooks.names.points import GRADIENT
from align_hooks.record.format.schema import Facts
from align_hooks.record.read.batch_statistics import BatchStatistics

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


class Judgement(Enum):
    """How a command that judges ends: in words, and with an exit code of the contract."""

    @property
    def text(self) -> str:
        """As people read it."""
        return str(self.value[0])

    @property
    def exit_code(self) -> int:
        """As scripts read it."""
        return int(self.value[1])


class Verdict(Judgement):
    """The verdict states of the contract; the exit code beside each."""

    ALIGNED = ("aligned", 0)
    DIVERGED = ("diverged", 1)
    NOT_COMPARABLE = ("not comparable", 3)
    INCONCLUSIVE = ("inconclusive", 4)


class Named(str, Enum):
    """A member whose value is its name in data."""

    __str__ = str.__str__


class Metric(Named):
    """What a finding is of. The value is the name of the recorded quantity (:mod:`align_hooks.quantities`), where it is one."""

    LOSS = "losses"
    TOKEN_LOSSES = "token_losses"
    ROUTING = "routing"
    BATCHES = "batches"
    VALID_TOKENS = "valid_tokens"
    CONSUMED_SAMPLES = "consumed_samples"
    LOCAL_NORMS = "local_norms"
    GRADIENTS = "gradients"
    GRAD_NORM = "grad_norm"
    CLIP_COEFFICIENT = "clip_coefficient"
    SKIPPED = "skipped"
    LEARNING_RATE = "learning_rate"
    UPDATES = "updates"
    WEIGHTS = "weights"
    OPTIMIZER_STATE = "optimizer_state"
    ACTIVATIONS = "activations"
    HYPER_PARAMETER = "optimizer"
    MODEL_SETTING = "model"
    SHAPE = "shape"
    WHOLENESS = "wholeness"
    SELF_CHECK = "self_check"
    STATE = "state"


class Term(Named):
    """What AdamW makes an update with."""

    LEARNING_RATE = "learning_rate"
    BETA1 = "beta1"
    BETA2 = "beta2"
    BETAS = "betas"
    EPS = "eps"
    WEIGHT_DECAY = "weight_decay"
    DECAY_GROUPING = "decay_grouping"
    BIAS_CORRECTION = "bias_correction"
    DECOUPLED_WEIGHT_DECAY = "decoupled_weight_decay"
    CLIP_COEFFICIENT = "clip_coefficient"
    GRADIENT_SCALE = "gradient_scale"
    COUNT = "count"
    FORMULA = "formula"


class Unit(Enum):
    """What an error and its limit are counted in."""

    RELATIVE = "relative"
    ROUNDINGS = "roundings"


Value: TypeAlias = "str | bool | int | float | Message | Joined | None"
"""A side's value in a comparison: a number as it is, a setting as it was written, a message where there is no number."""
Words: TypeAlias = "Message | Joined"


def when(step: int) -> Message:
    """A step as people meet it: our number, and the iteration that both frameworks print."""
    return message("step.iteration", step=step, iteration=step + 1)


def at_step(subject: Words | str, step: int) -> Message:
    """What was compared, at a step."""
    return message("step.of", what=subject, step=step, iteration=step + 1)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing compared that is worth showing: what, both values, and the error against its own limit.

    ``what`` names it to a reader; ``name`` is the canonical name of the tensor, or the setting, alone. ``step`` and ``rank`` are those that
    it is of, if any. ``error`` and ``limit`` are in ``unit``. Of two tensors ``scale`` is the number that brings the reference closest to
    the candidate, and ``direction`` the relative error that is left then; of two norms there is only a scale. ``since`` is the first step
    at which it may have come about, where that is earlier than it was seen. ``term`` is a term that a run's updates were made with against
    its settings. ``by_digest``: the two are equal by the digests that both records keep.
    """

    what: Words | str
    reference: Value = ""
    candidate: Value = ""
    error: float | None = None
    limit: float | None = None
    scale: float | None = None
    direction: float | None = None
    name: str = ""
    step: int | None = None
    quantity: Metric | None = None
    since: int | None = None
    rank: int | None = None
    unit: Unit = Unit.RELATIVE
    term: Term | None = None
    by_digest: bool = False

    @property
    def limit_ratio(self) -> float:
        """Error over limit: above 1 it is out. NaN and infinity count as infinitely far out."""
        return limit_ratio(self.error, self.limit)


def limit_ratio(error: float | None, limit: float | None) -> float:
    """Error over limit; see :attr:`Finding.limit_ratio`."""
    if error is None or not math.isfinite(error):
        return float("inf")
    if not limit:
        return float("inf") if error else 0.0
    return error / limit


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


@dataclass(frozen=True)
class StageInfo:
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


@dataclass(frozen=True, slots=True)
class ErrorOrigin:
    """A point at which an error comes about: its ``finding``, the points that it is made from, and the largest limit_ratio among these."""

    finding: Finding
    made_from: tuple[str, ...]
    inputs: float

    @property
    def name(self) -> str:
        """The point's, without the suffix of a gradient."""
        return self.finding.name.removesuffix(GRADIENT)


@dataclass(frozen=True, slots=True)
class StageResult:
    """How one stage of the ladder came out.

    ``findings`` are the worst first. ``summary`` says what was compared or why not, ``common`` what the findings have in common, where that
    is known. ``short`` is the summary in a few words, where a line must fit. ``differs`` is what differs and from where on, where the first
    finding alone does not say it. ``open`` is a stage that settles nothing, and after which no difference does either. ``reason`` is why
    there is nothing to compare, where the next step depends on it. ``other_title`` is the stage's title in this comparison, where that is
    not its own. ``ties`` is the first step at which tokens were given to other experts, ``origins`` are the points at which an error comes
    about, and ``jumps`` says how.
    """

    stage: StageInfo
    status: Status
    summary: Words
    findings: tuple[Finding, ...] = ()
    common: Words | None = None
    open: bool = False
    reason: Reason | None = None
    other_title: Message | None = None
    ties: int | None = None
    origins: tuple[ErrorOrigin, ...] = ()
    short: Words | None = None
    differs: Words | None = None
    jumps: tuple[Words, ...] = ()
    place: FaultLocation | None = None
    """Where the fault sits by what was found, None where the stage and the diagnosis say it."""
    evidence: object = None
    """What the stage knows beside its findings, for the diagnosis and notes (:func:`evidence_of`); None where that is nothing."""

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

    def with_common(self, common: Words | None) -> StageResult:
        """The same stage with what its findings have in common, in its summary too, and the first of it as what differs where nothing else
        says that; nothing changes where nothing is known."""
        if common is None:
            return self
        first = common.parts[0] if isinstance(common, Joined) else common
        differs = self.differs or (first if isinstance(first, Message) else None)
        return replace(self, summary=sentences(self.summary, common), common=common, differs=differs)


@dataclass(frozen=True, slots=True)
class Suspect:
    """What to suspect: a tensor, a setting, or what several findings have in common. ``name`` is the canonical name of the tensor or the
    name of the setting, empty of what is neither."""

    what: Words | str
    name: str = ""

    @property
    def id(self) -> str:
        """The id of its message, or of the first of several; empty where it is a name alone."""
        first = self.what.parts[0] if isinstance(self.what, Joined) else self.what
        return first.id if isinstance(first, Message) else ""


@dataclass(frozen=True, slots=True)
class Blame:
    """Where a fault sits, what to suspect first, and what it likely is, the likelier first. ``causes`` are those of the table. ``likely``
    has them in words, with what is not ruled out and what acts later."""

    place: FaultLocation
    suspects: tuple[Suspect, ...]
    likely: tuple[Words, ...]
    causes: tuple[str, ...] = ()
    side_is_open: bool = False
    """Whether nothing on record says which of the two sides is the wrong one."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """One line of the guide's acceptance standard, None where nothing could be judged. ``name`` is for programs. ``own`` is what repeats of
    the reference differ by; None without one."""

    name: str
    what: Words
    passed: bool | None
    value: Words
    own: Words | None = None

    @property
    def found(self) -> Words:
        """What was measured, and beside it the reference's own."""
        return sentences(self.value, message("acceptance.own", value=self.own) if self.own is not None else None)


@dataclass(frozen=True, slots=True)
class Curve:
    """One number of every step, a value or None a step. ``limits`` are those of the relative difference of the two, and ``noise`` is the
    largest that repeats of the reference showed; empty where there is none. ``candidate`` is empty where there is one run only."""

    name: str
    steps: Sequence[int]
    reference: Sequence[float | None]
    candidate: Sequence[float | None] = ()
    limits: Sequence[float] = ()
    noise: Sequence[float | None] = ()

    @property
    def differences(self) -> list[float | None]:
        """The candidate's values less the reference's, relative to the reference's, a step; None where either is."""
        pairs = zip(self.reference, self.candidate, strict=False)
        return [None if ours is None or theirs is None else relative(ours, theirs) for ours, theirs in pairs]


def relative(reference: float, candidate: float) -> float:
    """The candidate's number less the reference's, relative to the reference's size; not relative where that is 0."""
    difference = candidate - reference
    return difference / abs(reference) if reference else difference


RELEASES = (("megatron-core", "mindformers"), ("torch", "mindspore"))
"""Under which names ``run.json`` has the versions of a framework, and of what it stands on."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One of the runs: where it lies, what its ``run.json`` says, its number of ranks and how they are laid out, and its steps."""

    path: str
    facts: Facts
    ranks: int
    layout: Mapping[str, int]
    steps: int

    @property
    def framework(self) -> str:
        """The framework and its version, ``MindFormers 1.9.0``; what of both is on record."""
        names, versions = RELEASES[0], self.facts.versions
        return " ".join([*filter(None, [self.facts.framework]), *(str(versions[name]) for name in names if name in versions)])

    @property
    def stands_on(self) -> str:
        """What the framework stands on and its version, ``mindspore 2.9.0``; empty where that is not on record."""
        return ", ".join(f"{name} {self.facts.versions[name]}" for name in RELEASES[1] if name in self.facts.versions)

    @property
    def precision(self) -> str:
        """The compute type, ``bfloat16``; empty where that is not on record."""
        return self.facts.training.compute_type or ""

    @property
    def recorded(self) -> datetime | None:
        """When the run was started, in UTC where its zone is known; None where that is not on record, or is no time."""
        try:
            time = datetime.fromisoformat(self.facts.created or "")
            return time if time.tzinfo is None else time.astimezone(timezone.utc)
        except (ValueError, OverflowError):
            return None

    @property
    def laid_out(self) -> str:
        """The layout in words, ``TP2 DP4``; empty on one rank."""
        return " ".join(f"{name.upper()}{size}" for name, size in self.layout.items())


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """Everything a report needs. ``first`` is the stage that decided the verdict, None when aligned.

    ``settings`` are the model settings that differ; ``eps`` is that of the coarser compute type; ``blame`` is None unless diverged;
    ``next`` is what to run now; ``sides`` are reference and candidate, and ``curves`` what both did at every common step.
    ``calibration`` is what was measured on repeats of the reference: kind and step to name to relative error. ``itself`` is a run beside
    itself, or beside a copy of itself. ``looks`` are those at either side's recorded batches, where their stage was reached.
    """

    verdict: Verdict
    first: StageResult | None
    stages: tuple[StageResult, ...]
    eps: float
    acceptance: tuple[Criterion, ...] = ()
    settings: tuple[Finding, ...] = ()
    notes: tuple[Words, ...] = ()
    blame: Blame | None = None
    next: Words | None = None
    calibration: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    sides: tuple[RunSummary, ...] = ()
    curves: tuple[Curve, ...] = ()
    itself: bool = False
    looks: Mapping[Side, BatchStatistics] = field(default_factory=dict)

    @property
    def headline(self) -> Words:
        """What differs and from where on, in a line; that everything agrees where nothing does."""
        return self.agreement if self.first is None else self.first.headline

    @property
    def agreement(self) -> Message:
        """What there is to say where no stage differs."""
        if self.itself:
            return message("comparison.itself")
        return message("comparison.agrees_fed" if replayed_sides(*(side.facts for side in self.sides)) else "comparison.agrees")


def replayed_sides(*facts: Facts) -> list[Side]:
    """The sides that trained on recorded batches, so that their own data set made none."""
    return [side for side, run in zip(Side, facts, strict=False) if run.settings.get("replay_batches")]


def first_different(results: Sequence[StageResult]) -> StageResult | None:
    """The first stage that differs; None where none does."""
    return next((result for result in results if result.status is Status.DIFFERENT), None)


def evidence_of(results: Iterable[StageResult], kind: type[Evidence]) -> Evidence | None:
    """Return what a stage knows of a kind; None where no stage of this comparison knows such a thing."""
    return next((result.evidence for result in results if isinstance(result.evidence, kind)), None)


def differing(results: Sequence[StageResult], stage: StageInfo) -> tuple[Finding, ...]:
    """What a stage found to differ; nothing where it does not."""
    return next((result.findings for result in results if result.stage is stage and result.status is Status.DIFFERENT), ())


VERDICTS = {Status.DIFFERENT: Verdict.DIVERGED, Status.NOT_COMPARABLE: Verdict.NOT_COMPARABLE, Status.INCONCLUSIVE: Verdict.INCONCLUSIVE}
"""What a stage that shows the first symptom makes of the whole."""


def decide(stages: list[StageResult], symptom: StageResult | None, compared: int) -> tuple[Verdict, StageResult | None]:
    """The verdict of a ladder of stages, and the stage that made it.

    ``symptom`` is the stage that shows the first difference (:mod:`.symptom`), None where none does. ``compared`` is the number of numeric
    stages that really compared something: at 0 the runs are never aligned.
    """
    if symptom is not None:
        return VERDICTS[symptom.status], symptom
    for status, verdict in ((Status.INCOMPLETE, Verdict.NOT_COMPARABLE), (Status.INCONCLUSIVE, Verdict.INCONCLUSIVE)):
        for stage in stages:
            if stage.status is status:
                return verdict, stage
    if compared == 0:
        nothing = message("match.nothing_compared")
        return Verdict.NOT_COMPARABLE, StageResult(stages[0].stage, Status.INCOMPLETE, nothing, differs=nothing)
    return Verdict.ALIGNED, None
