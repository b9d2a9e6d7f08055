"""The proof: the ways trained in turn, each beside the job without hooks, and the verdict."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from align_hooks.comparison.health import Condition, Health, health
from align_hooks.comparison.verdict import Judgement
from align_hooks.errors import RecordError
from align_hooks.job.entry import hooks_of
from align_hooks.job.witness import COUNTED
from align_hooks.proof.cost import Cost, cost
from align_hooks.proof.difference import Difference, DifferenceKind, differences
from align_hooks.proof.training import Failure, Trained, train
from align_hooks.proof.ways import AGAIN, EVERYTHING, LARGE, NORMS, SEEDED, SEEDING, WAYS, Way, repeatable
from align_hooks.quantities.routing import ROUTING
from align_hooks.record.inventory import inventory, not_whole
from align_hooks.record.read.problems import distinct
from align_hooks.record.reader import Run, open_run
from align_hooks.record.verify import summary, verify
from align_hooks.settings import PREFIX

MOST_WAITS = 1
"""Waits that norms may add to a step, as promised."""
ELEMENT = 4
"""Bytes on record."""
SPARED = 0.8
"""Share of the free space that a record may take."""


class ProofVerdict(Judgement):
    """The end of a proof."""

    PROVEN = ("proven", 0)
    DISPROVEN = ("disproven", 1)
    NO_PROOF = ("no proof", 3)
    UNDECIDED = ("undecided", 4)


@dataclass(frozen=True, slots=True)
class WayResult:
    """A way beside the job without hooks."""

    trained: Trained
    differences: Sequence[Difference] = ()
    """Empty where it is equal to the bit, and of a training that is no part of the proof."""

    @property
    def verdict(self) -> ProofVerdict:
        """What this way shows by itself."""
        if (failure := self.trained.failure) is not None:
            ended = failure in (Failure.FAILED, Failure.KILLED, Failure.SHORT)  # the job itself had made its steps
            return ProofVerdict.DISPROVEN if ended and self.trained.way.recorded else ProofVerdict.NO_PROOF
        return ProofVerdict.DISPROVEN if self.differences else ProofVerdict.PROVEN


@dataclass(frozen=True, slots=True)
class HookFired:
    """A hook of the training with everything recorded."""

    name: str
    state: str
    calls: int
    """On all ranks."""
    why: str
    """What the hook is for."""


@dataclass(slots=True)
class Proof:
    """The result of a proof."""

    command: Sequence[str]
    asked: int
    """Steps of each training."""
    ways: list[WayResult] = field(default_factory=list)
    """The first is the job without hooks."""
    repeated: list[WayResult] = field(default_factory=list)
    """The ways under variables that make the job repeat itself; empty where it does without."""
    health: Health | None = None
    """Of the record of everything; None where there is none."""
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
        """Differences of the two trainings without hooks."""
        return next((each.differences for each in self.ways if each.trained.way.name == AGAIN.name), ())

    @property
    def switches(self) -> str:
        """Variables of the ways that are to repeat themselves; empty where none were tried."""
        return " ".join(f"{name}={value}" for each in self.repeated[:1] for name, value in each.trained.way.fixed.items())

    @property
    def costs(self) -> list[Cost]:
        """What each way costs; that of the second without hooks is the job's own spread."""
        sound = [each.trained for each in self.ways if each.trained.failure is None]
        plain = [each for each in sound if not each.way.recorded]
        return [cost(plain, each) for each in sound if each is not plain[0]] if plain else []

    @property
    def waiting(self) -> Mapping[str, int]:
        """Lines of code at which the host waits in a step with norms alone, where that is more often than promised."""
        lines = next((each.lines for each in self.costs if each.way == NORMS.name), {})
        return lines if sum(lines.values()) > MOST_WAITS else {}

    @property
    def certain(self) -> list[WayResult]:
        """Ways that differ in what the job itself repeats, which no noise explains."""
        noisy = {each.kind for each in self.noise}
        noisy |= {DifferenceKind.LOSS, DifferenceKind.FINAL} if noisy else set()
        return [
            each
            for each in self.ways[1:]
            if each.trained.way.recorded
            and (each.verdict is ProofVerdict.DISPROVEN)
            and (each.trained.failure is not None or any(difference.kind not in noisy for difference in each.differences))
        ]

    @property
    def verdict(self) -> ProofVerdict:
        """Judge the ways together."""
        if not self.ways or self.plain.failure is not None or len(self.ways) == 1:
            return ProofVerdict.NO_PROOF
        contradicts = self.health is not None and self.health.condition is Condition.UNWELL
        if self.certain or self.waiting or contradicts:
            return ProofVerdict.DISPROVEN
        if any(each.verdict is ProofVerdict.NO_PROOF for each in self.ways) or self.health is None or self.health.problems:
            return ProofVerdict.NO_PROOF
        if not self.noise:
            return ProofVerdict.PROVEN
        if not self.repeated or any(each.trained.failure is not None for each in self.repeated) or self.repeated[1].differences:
            return ProofVerdict.UNDECIDED
        return ProofVerdict.DISPROVEN if self.repeated[2].differences else ProofVerdict.PROVEN


def prove(command: Sequence[str], folder: Path, *, steps: int, seconds: float, say: Callable[[Way, int, int], object]) -> Proof:
    """Train the job in every way, below ``folder``, for ``steps`` and at most ``seconds`` each; ``say`` is told each before it starts."""
    proof, known = Proof(command, steps), len(WAYS)

    def trained(way: Way, into: list[WayResult], recorded_at: str = "all") -> WayResult:
        number = len(proof.ways) + len(proof.repeated) + 1
        say(way, number, known)
        ended = train(command, way, folder / str(number), limit=steps, steps=recorded_at, seconds=seconds)
        plain = into[0].trained.witnessed if into else ended.witnessed
        into.append(WayResult(ended, [] if ended.failure is not None else differences(plain, ended.witnessed)))
        return into[-1]

    def judged(way: Way, into: list[WayResult]) -> None:
        fitting, at = fitted(way, proof, folder)
        result = trained(fitting, into, at)
        while lesser := without_refused(result.trained):
            proof.refused |= dict.fromkeys(result.trained.refusals)
            into.pop()
            result = trained(lesser, into, at)
        if way.name == EVERYTHING.name and (result.trained.run / "run.json").is_file():
            with suppress(RecordError):
                run = open_run(result.trained.run)
                proof.health, proof.hooks = checked(run), [*fired(run, result.trained)]
        shutil.rmtree(result.trained.run, ignore_errors=True)  # the next needs its space

    trained(WAYS[0], proof.ways)
    if proof.plain.failure is not None:
        return proof
    for way in WAYS[1:]:
        judged(way, proof.ways)
    if proof.noise:
        ways = repeatable(SEEDED if all(each.kind is not DifferenceKind.INITIAL for each in proof.noise) else SEEDING)
        known += len(ways)
        for way in ways:
            judged(way, proof.repeated)
            if proof.repeated[-1].trained.failure is not None:
                break
    return proof


def fitted(way: Way, proof: Proof, folder: Path) -> tuple[Way, str]:
    """Return a way without what does not fit the disk, and the steps of what is as large as the model."""
    each = ELEMENT * way.copies * sum(seen.elements for seen in proof.plain.witnessed)
    free = SPARED * shutil.disk_usage(folder).free
    if not any("expert" in name or "router" in name for seen in proof.plain.witnessed for name in seen.initial):
        way = replace(way, recorded=tuple(name for name in way.recorded if name != ROUTING.name))
    if each * proof.asked <= free:
        return way, "all"
    proof.spared = proof.plain.witnessed[0].steps[0].step + min(COUNTED, proof.asked - 1)
    small = tuple(name for name in way.recorded if name not in LARGE) if each > free else way.recorded
    return replace(way, recorded=small), str(proof.spared)


def without_refused(trained: Trained) -> Way | None:
    """Return a way without the quantities whose variables a refusal names; None where it names none, or nothing would be left."""
    named = [name for name in trained.way.recorded if any(f"{PREFIX}{name.upper()}" in line for line in trained.refusals)]
    left = tuple(name for name in trained.way.recorded if name not in named)
    return replace(trained.way, recorded=left) if named and left else None


def checked(run: Run) -> Health:
    """Return the health of a record, every byte of it read."""
    verified = verify(run)
    return health(run, inventory(run), distinct([*not_whole(run), *verified.wrong]), summary(verified))


def fired(run: Run, trained: Trained) -> Iterator[HookFired]:
    """Yield every hook of a record with its calls on all ranks."""
    why = {hook.name: hook.why for side in {seen.side for seen in trained.witnessed} for hook in hooks_of(side)}
    names = dict.fromkeys(name for manifest in run.manifests.values() for name in manifest.hooks)
    for name in names:
        counts = [manifest.hooks[name] for manifest in run.manifests.values() if name in manifest.hooks]
        state = next((count.state for count in counts if count.state != "attached"), "attached")
        yield HookFired(name, state, sum(count.calls for count in counts), why.get(name, ""))
