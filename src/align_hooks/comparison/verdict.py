"""The result of a comparison, as data that every report is made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from enum import Enum

from msgspec import Struct, field

from align_hooks.comparison.finding import Finding, Words
from align_hooks.comparison.stage_result import FaultLocation, StageResult, Status
from align_hooks.messages import Argument, Message, Side, message, sentences
from align_hooks.record.batch_statistics import BatchStatistics
from align_hooks.record.format.schema import Facts


class Judgement(Enum):
    """The end of a command that judges: its text for people, and its exit code for scripts."""

    def __init__(self, text: str, exit_code: int) -> None:
        self.text, self.exit_code = text, exit_code


class Verdict(Judgement):
    """The verdict states of the contract; the exit code beside each."""

    ALIGNED = ("aligned", 0)
    DIVERGED = ("diverged", 1)
    NOT_COMPARABLE = ("not comparable", 3)
    INCONCLUSIVE = ("inconclusive", 4)


class Suspect(Struct, frozen=True):
    """A tensor, a setting, or a pattern of several findings."""

    what: Words | str
    name: str = ""
    """The canonical name of the tensor or the name of the setting; empty for a pattern."""
    pattern: Enum | None = None
    """The pattern that a stage recognised (``finding.Pattern``, ``Made``, ``SampleRelation``); None where it is no known one."""


class Blame(Struct, frozen=True):
    """The place of a fault, and its likely causes."""

    place: FaultLocation
    suspects: tuple[Suspect, ...]
    """The likeliest first."""
    likely: tuple[Words, ...]
    """The causes in words, with those not ruled out and those that act later."""
    causes: tuple[str, ...] = ()
    """Ids of the causes, the likeliest first."""
    side_is_open: bool = False
    """Whether the records do not show which side is wrong."""


class Criterion(Struct, frozen=True):
    """One line of the guide's acceptance standard."""

    name: str
    what: Words
    passed: bool | None
    """None without a value to judge."""
    value: Words
    own: Words | None = None
    """Difference of the reference's repeats; None without any."""

    @property
    def found(self) -> Words:
        """Return the measured value, and the repeats' own beside it."""
        return sentences(self.value, message("acceptance.own", value=self.own) if self.own is not None else None)


class Curve(Struct, frozen=True):
    """One number of every step."""

    name: str
    steps: Sequence[int]
    reference: Sequence[float | None]
    """A value a step; None where not on record."""
    candidate: Sequence[float | None] = ()
    """As the reference's; empty for a single run."""
    limits: Sequence[float] = ()
    """Of the relative difference, one a step; empty without limits."""
    noise: Sequence[float | None] = ()
    """Largest relative difference of the reference's repeats, one a step; empty without repeats."""

    @property
    def differences(self) -> list[float | None]:
        """Return the signed relative difference of each step; None without both values."""
        pairs = zip(self.reference, self.candidate, strict=False)
        return [None if ours is None or theirs is None else relative(ours, theirs) for ours, theirs in pairs]


def relative(reference: float, candidate: float) -> float:
    """Return the signed difference relative to the reference's size; absolute where the reference is 0."""
    return (candidate - reference) / (abs(reference) or 1.0)


class RunSummary(Struct, frozen=True):
    """One of the runs."""

    path: str
    facts: Facts
    ranks: int
    layout: Mapping[str, int]
    """Axis to size, of the axes with more than one rank."""
    steps: int

    @property
    def framework(self) -> str:
        """Return the framework and its version as far as on record, ``MindFormers 1.9.0``."""
        versions = [self.facts.versions.get(name) for name in ("megatron-core", "mindformers")]
        return " ".join(str(part) for part in (self.facts.framework or None, *versions) if part is not None)

    @property
    def stands_on(self) -> str:
        """Return the framework's library and its version, ``mindspore 2.9.0``; empty where not on record."""
        return ", ".join(f"{name} {self.facts.versions[name]}" for name in ("torch", "mindspore") if name in self.facts.versions)

    @property
    def precision(self) -> str:
        """Return the compute type, ``bfloat16``, with the format of products; empty where not on record."""
        return self.facts.training.precision

    @property
    def recorded(self) -> datetime | None:
        """Return the start of the run, in UTC where its zone is known; None where not on record, or no time."""
        try:
            time = datetime.fromisoformat(self.facts.created or "")
            return time if time.tzinfo is None else time.astimezone(timezone.utc)
        except (ValueError, OverflowError):
            return None

    @property
    def laid_out(self) -> str:
        """Return the layout in words, ``TP2 DP4``; empty on one rank."""
        return " ".join(f"{name.upper()}{size}" for name, size in self.layout.items())


class Trial(Struct, frozen=True):
    """Trainings and a comparison that tell more, with nothing mended before them."""

    words: Message
    """Why they are made."""
    commands: tuple[Argument, ...]
    """Lines for a shell, in this order; the last one compares."""
    decides: Message | None = None
    """What is at fault where the runs then agree, and not alone at fault where they differ; None where that does not tell."""


class ComparisonResult(Struct, frozen=True):
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
    notes: tuple[Words, ...] = ()
    blame: Blame | None = None
    """None unless diverged."""
    next: Words | None = None
    trial: Trial | None = None
    """``next`` where it needs nobody's hand; None where something is to be mended, read or written first, or nothing is left to do."""
    calibration: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Kind and step to name to relative error, as measured on repeats of the reference."""
    sides: tuple[RunSummary, ...] = ()
    curves: tuple[Curve, ...] = ()
    itself: bool = False
    """Whether both runs are one, or copies of one."""
    statistics: Mapping[Side, BatchStatistics] = field(default_factory=dict)
    """Statistics of either side's recorded batches; empty where their stage was not reached."""

    @property
    def headline(self) -> Words:
        """Return the first difference and its step in a line, or that everything agrees."""
        if self.first is not None:
            return self.first.headline
        replayed = replayed_sides(*(side.facts for side in self.sides))
        return message("comparison.itself" if self.itself else "comparison.agrees_fed" if replayed else "comparison.agrees")


def replayed_sides(*facts: Facts) -> list[Side]:
    """Return the sides that trained on recorded batches, so that their own data set made none."""
    return [side for side, run in zip(Side, facts, strict=False) if run.settings.get("replay_batches")]


VERDICTS = {
    Status.DIFFERENT: Verdict.DIVERGED,
    Status.NOT_COMPARABLE: Verdict.NOT_COMPARABLE,
    Status.INCOMPLETE: Verdict.NOT_COMPARABLE,
    Status.INCONCLUSIVE: Verdict.INCONCLUSIVE,
}
"""Status of the stage that decides to the verdict."""


def decide(stages: list[StageResult], symptom: StageResult | None, compared: int) -> tuple[Verdict, StageResult | None]:
    """Return the verdict and the stage that made it: ``symptom``, which shows the first difference (:mod:`.diagnosis.symptom`), or one
    that came to no verdict. Runs of which no numeric stage ``compared`` anything are never aligned."""
    undecided = (stage for status in (Status.INCOMPLETE, Status.INCONCLUSIVE) for stage in stages if stage.status is status)
    if (deciding := symptom or next(undecided, None)) is not None:
        return VERDICTS[deciding.status], deciding
    if compared == 0:
        nothing = message("match.nothing_compared")
        return Verdict.NOT_COMPARABLE, StageResult(stages[0].stage, Status.INCOMPLETE, nothing, differs=nothing)
    return Verdict.ALIGNED, None
