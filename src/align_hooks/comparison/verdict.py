"""The result of a comparison, as data that every report is made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum

from align_hooks.comparison.finding import Finding, Words
from align_hooks.comparison.stage_result import FaultLocation, StageResult, Status
from align_hooks.messages import Message, Side, message, sentences
from align_hooks.record.batch_statistics import BatchStatistics
from align_hooks.record.format.schema import Facts


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


@dataclass(frozen=True, slots=True)
class Suspect:
    """What to suspect: a tensor, a setting, or what several findings have in common."""

    what: Words | str
    name: str = ""
    """The canonical name of the tensor or the name of the setting; empty of what is neither."""
    pattern: Enum | None = None
    """The pattern that a stage recognised (``finding.Pattern``, ``Made``, ``SampleRelation``); None where it is no known one."""


@dataclass(frozen=True, slots=True)
class Blame:
    """Where a fault sits, and what it likely is."""

    place: FaultLocation
    suspects: tuple[Suspect, ...]
    """What to suspect, the likeliest first."""
    likely: tuple[Words, ...]
    """The causes in words, with what is not ruled out and what acts later."""
    causes: tuple[str, ...] = ()
    """The causes by their ids, the likeliest first."""
    side_is_open: bool = False
    """Whether nothing on record says which of the two sides is the wrong one."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """One line of the guide's acceptance standard."""

    name: str
    """For programs."""
    what: Words
    passed: bool | None
    """None where nothing could be judged."""
    value: Words
    own: Words | None = None
    """What repeats of the reference differ by; None without one."""

    @property
    def found(self) -> Words:
        """What was measured, and beside it the reference's own."""
        return sentences(self.value, message("acceptance.own", value=self.own) if self.own is not None else None)


@dataclass(frozen=True, slots=True)
class Curve:
    """One number of every step."""

    name: str
    steps: Sequence[int]
    reference: Sequence[float | None]
    """A value a step; None where it is not on record."""
    candidate: Sequence[float | None] = ()
    """Empty where there is one run only."""
    limits: Sequence[float] = ()
    """Those of the relative difference, a step each; empty where there is none."""
    noise: Sequence[float | None] = ()
    """The largest relative difference that repeats of the reference showed; empty without repeats."""

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
    """Everything that a report needs."""

    verdict: Verdict
    first: StageResult | None
    """The stage that decided the verdict; None when aligned."""
    stages: tuple[StageResult, ...]
    """In the order of a training step."""
    eps: float
    """The rounding step of the coarser compute type."""
    acceptance: tuple[Criterion, ...] = ()
    settings: tuple[Finding, ...] = ()
    """The model's settings that differ."""
    notes: tuple[Words, ...] = ()
    """What a reader should know beside the verdict."""
    blame: Blame | None = None
    """None unless diverged."""
    next: Words | None = None
    """What to run now."""
    calibration: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """What was measured on repeats of the reference: kind and step to name to relative error."""
    sides: tuple[RunSummary, ...] = ()
    """The reference and the candidate."""
    curves: tuple[Curve, ...] = ()
    itself: bool = False
    """Whether a run stands beside itself, or beside a copy of itself."""
    looks: Mapping[Side, BatchStatistics] = field(default_factory=dict)
    """Statistics of either side's recorded batches; empty where their stage was not reached."""

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


VERDICTS = {Status.DIFFERENT: Verdict.DIVERGED, Status.NOT_COMPARABLE: Verdict.NOT_COMPARABLE, Status.INCONCLUSIVE: Verdict.INCONCLUSIVE}
"""What a stage that shows the first symptom makes of the whole."""


def decide(stages: list[StageResult], symptom: StageResult | None, compared: int) -> tuple[Verdict, StageResult | None]:
    """The verdict of a ladder of stages, and the stage that made it.

    ``symptom`` is the stage that shows the first difference (:mod:`.diagnosis.symptom`), None where none does. ``compared`` is the number
    of numeric stages that really compared something: at 0 the runs are never aligned.
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
