"""A proof as data: each training beside the job without hooks, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum

from msgspec import Struct, field

from align_hooks.comparison.health import Health
from align_hooks.comparison.verdict import Judgement
from align_hooks.proof.cost import Cost, cost
from align_hooks.proof.difference import Difference, DifferenceKind
from align_hooks.proof.training import ENDED, Trained
from align_hooks.proof.ways import EVERYTHING, NORMS

MOST_WAITS = 1
"""Waits that norms may add to a step, as promised."""
BEYOND = 10.0
"""Times the job's own noise above which a difference of losses is not taken for it."""


class ProofVerdict(Judgement):
    """The end of a proof."""

    PROVEN = ("proven", 0)
    DISPROVEN = ("disproven", 1)
    NO_PROOF = ("no proof", 3)
    UNDECIDED = ("undecided", 4)


class Shortfall(Enum):
    """What a job lacks that equal trainings would prove something."""

    NO_LOSS = "no loss"
    NO_UPDATE = "no update"
    NOT_RECORDED = "not recorded"
    NOT_WHOLE = "not whole"


class WayResult(Struct, frozen=True):
    """A training beside the job without hooks."""

    trained: Trained
    differences: Sequence[Difference] = ()
    """Empty where it is equal to the bit, and of a training that is no part of the proof."""
    to_itself: Sequence[Difference] = ()
    """Differences from an earlier training of the same way."""

    @property
    def verdict(self) -> ProofVerdict:
        """What this training shows by itself."""
        if (failure := self.trained.failure) is not None:
            began = failure in ENDED and self.trained.way.recorded and self.trained.witnessed
            return ProofVerdict.DISPROVEN if began else ProofVerdict.NO_PROOF
        return ProofVerdict.DISPROVEN if self.differences else ProofVerdict.PROVEN


class HookFired(Struct, frozen=True):
    """A hook of the training with everything recorded."""

    name: str
    state: str
    calls: int
    """On all ranks."""
    why: str
    """What the hook is for."""


class Proof(Struct):
    """The result of a proof."""

    command: Sequence[str]
    asked: int
    """Steps of each training."""
    ways: list[WayResult] = field(default_factory=list)
    """The first is the job without hooks."""
    again: list[WayResult] = field(default_factory=list)
    """Trainings by which an accusation was confirmed or not."""
    repeated: list[WayResult] = field(default_factory=list)
    """The ways under variables that make the job repeat itself; empty where it does without."""
    health: Health | None = None
    """Of the record of everything; None where there is none."""
    contradicts: bool = False
    """Whether that record contradicts itself."""
    hooks: Sequence[HookFired] = ()
    refused: dict[str, None] = field(default_factory=dict)
    """Lines of what this job cannot have recorded, in order; the proof is without it."""
    spared: int | None = None
    """Step at which alone what is as large as the model was recorded; None where it was at all."""

    @property
    def plain(self) -> Trained:
        """The job without hooks."""
        return self.ways[0].trained

    @property
    def noise(self) -> Sequence[Difference]:
        """Differences of trainings that should be the same; empty where the job repeats itself to the bit."""
        every = (*self.ways, *self.again)
        of_plain = (each.differences for each in every if not each.trained.way.recorded)
        return next((each for each in (*of_plain, *(each.to_itself for each in every)) if each), ())

    @property
    def switches(self) -> str:
        """Variables of the ways that are to repeat themselves; empty where none were tried."""
        return self.repeated[0].trained.way.switches if self.repeated else ""

    @property
    def costs(self) -> list[Cost]:
        """What each way costs; that of the second without hooks is the job's own spread."""
        sound = [each.trained for each in self.ways if each.trained.failure is None]
        plain = [each for each in sound if not each.way.recorded]
        return [cost(plain, each) for each in sound if each is not plain[0]] if plain else []

    @property
    def waiting(self) -> Mapping[str, int]:
        """Lines of code at which the host waits in a step with norms alone, where it does more often than promised."""
        return next((each.lines for each in self.costs if each.way == NORMS.name and (each.waits or 0) > MOST_WAITS), {})

    @property
    def accused(self) -> list[WayResult]:
        """Ways that change what the job itself repeats, or that end it."""
        noisy = {each.kind for each in self.noise}
        noisy |= {DifferenceKind.LOSS, DifferenceKind.FINAL} if noisy else set()
        disproven = [each for each in self.ways if each.trained.way.recorded and each.verdict is ProofVerdict.DISPROVEN]
        return [each for each in disproven if each.trained.failure is not None or {one.kind for one in each.differences} - noisy]

    @property
    def shortfalls(self) -> Iterator[Shortfall]:
        """Yield what keeps equal trainings from being a proof."""
        seen = self.plain.witnessed
        if not all(any(ranks) for ranks in zip(*([step.losses for step in each.steps] for each in seen), strict=True)):
            yield Shortfall.NO_LOSS
        if all(each.initial == each.final for each in seen):
            yield Shortfall.NO_UPDATE
        if any(each.trained.problems for each in self.ways if each.trained.way.name == EVERYTHING.name):
            yield Shortfall.NOT_RECORDED
        if self.health is None or self.health.problems:
            yield Shortfall.NOT_WHOLE

    @property
    def exceeds_noise(self) -> bool:
        """Whether losses with something recorded are further from those without than the job's own noise explains."""
        recorded = (each.differences for each in self.ways if each.trained.way.recorded)
        return bool(self.noise) and max(map(largest, recorded), default=0.0) > BEYOND * largest(self.noise)

    @property
    def verdict(self) -> ProofVerdict:
        """Judge the trainings together."""
        if not self.ways or self.plain.failure is not None or len(self.ways) == 1:
            return ProofVerdict.NO_PROOF
        if self.accused or self.waiting or self.contradicts:
            return ProofVerdict.DISPROVEN
        if any(each.verdict is ProofVerdict.NO_PROOF for each in self.ways) or any(self.shortfalls):
            return ProofVerdict.NO_PROOF
        if not self.noise:
            return ProofVerdict.PROVEN
        failed = any(each.trained.failure is not None for each in self.repeated)
        if not self.repeated or failed or self.repeated[1].differences:
            return ProofVerdict.UNDECIDED
        if self.repeated[2].differences:
            return ProofVerdict.DISPROVEN
        return ProofVerdict.UNDECIDED if self.exceeds_noise else ProofVerdict.PROVEN


def largest(differences: Sequence[Difference]) -> float:
    """Return the largest relative difference of losses; 0 where none differ."""
    return max((each.relative for each in differences if each.relative is not None), default=0.0)
