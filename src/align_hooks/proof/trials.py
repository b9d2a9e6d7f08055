"""The trainings of a proof, one after the other: what fits the disk, what is refused, and what is trained again before it is believed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from align_hooks.comparison.health import health
from align_hooks.errors import RecordError
from align_hooks.job.entry import hooks_of
from align_hooks.job.witness import COUNTED
from align_hooks.proof.difference import Difference, DifferenceKind, differences
from align_hooks.proof.proof import HookFired, Proof, ProofVerdict, WayResult
from align_hooks.proof.training import Trained, train
from align_hooks.proof.ways import EVERYTHING, LARGE, OFF, SEEDED, SEEDING, WAYS, Way, repeatable
from align_hooks.quantities.routing import ROUTING
from align_hooks.record.inventory import inventory, not_whole
from align_hooks.record.read.problems import distinct
from align_hooks.record.reader import Run, open_run
from align_hooks.record.verify import summary, verify
from align_hooks.settings import PREFIX

ELEMENT = 4
"""Bytes on record."""
SPARED = 0.8
"""Share of the free space that a record may take."""


class Trials(Struct):
    """Trains a job in one way after the other."""

    proof: Proof
    folder: Path
    seconds: float
    """The longest that a training may take."""
    say: Callable[[Way, int, int], object]
    """Is told each training before it starts: its way, its number, and how many are known of."""
    known: int = len(WAYS)
    made: int = 0

    def train(self, way: Way, beside: Sequence[WayResult]) -> WayResult:
        """Train in a way, without what the disk or a refusal forbids, and compare it with the first of ``beside``."""
        way, at = fitted(way, self.proof, self.folder)
        trained = self.start(way, at)
        while lesser := without_refused(trained):
            self.proof.refused |= dict.fromkeys(trained.refusals)
            trained = self.start(lesser, at)
        if way.name == EVERYTHING.name and (trained.run / "run.json").is_file():
            with suppress(RecordError):
                run = open_run(trained.run)
                verified = verify(run)  # every byte
                self.proof.health = health(run, inventory(run), distinct([*not_whole(run), *verified.wrong]), summary(verified))
                self.proof.hooks = [*fired(run, trained)]
                self.proof.contradicts = bool(run.self_check.of_layout)
        shutil.rmtree(trained.run, ignore_errors=True)  # the next needs its space
        if trained.failure is not None or not beside:
            return WayResult(trained)
        same = (each.trained for each in beside if each.trained.way == trained.way and trained.way.recorded)
        earlier = next((each for each in same if each.failure is None), None)
        return WayResult(trained, compared(beside[0].trained, trained), [] if earlier is None else compared(earlier, trained))

    def start(self, way: Way, at: str) -> Trained:
        """Start a training in a folder of its own; quantities as large as the model are recorded at the steps ``at``."""
        self.made += 1
        self.say(way, self.made, self.known)
        return train(self.proof.command, way, self.folder / str(self.made), limit=self.proof.asked, steps=at, seconds=self.seconds)

    def confirm(self) -> None:
        """Train again what failed, and what the first accusation rests on: a job may fail or differ once by itself."""
        ways = self.proof.ways
        for index, result in enumerate(ways):
            if result.trained.failure is not None and result.verdict is ProofVerdict.DISPROVEN:
                self.known += 1
                ways[index] = self.train(result.trained.way, ways)
        if accused := next((each for each in self.proof.accused if each.trained.failure is None), None):
            self.known += 2
            self.proof.again = [self.train(OFF, ways), self.train(accused.trained.way, ways)]

    def repeat(self) -> None:
        """Train the job under variables that may make it repeat itself."""
        ways = repeatable(SEEDED if all(each.kind is not DifferenceKind.INITIAL for each in self.proof.noise) else SEEDING)
        self.known += len(ways)
        for way in ways:
            self.proof.repeated.append(self.train(way, self.proof.repeated))
            if self.proof.repeated[-1].trained.failure is not None:
                break


def prove(command: Sequence[str], folder: Path, *, steps: int, seconds: float, say: Callable[[Way, int, int], object]) -> Proof:
    """Train the job in every way, below ``folder``, for ``steps`` and at most ``seconds`` each; ``say`` is told each before it starts."""
    proof = Proof(command, steps)
    trials = Trials(proof, folder, seconds, say)
    for way in WAYS:
        proof.ways.append(trials.train(way, proof.ways))
        if proof.plain.failure is not None:
            return proof
    trials.confirm()
    if proof.noise:
        trials.repeat()
    return proof


def compared(plain: Trained, other: Trained) -> list[Difference]:
    """Return the differences of two trainings; raises RecordError where they had other ranks."""
    ranks = [[seen.rank for seen in trained.witnessed] for trained in (plain, other)]
    if ranks[0] != ranks[1]:
        raise RecordError(f"the job started {len(ranks[0])} ranks, and later {len(ranks[1])}: start the same number each time")
    return differences(plain.witnessed, other.witnessed)


def fitted(way: Way, proof: Proof, folder: Path) -> tuple[Way, str]:
    """Return a way without what does not fit the disk or the model, and the steps of what is as large as the model."""
    if not way.recorded:
        return way, "all"
    each = ELEMENT * way.copies * sum(seen.elements for seen in proof.plain.witnessed)
    free = SPARED * shutil.disk_usage(folder).free
    if not any("expert" in name or "router" in name for seen in proof.plain.witnessed for name in seen.initial):
        way = replace(way, recorded=tuple(name for name in way.recorded if name != ROUTING.name))
    if each * proof.asked <= free:
        return way, "all"
    proof.spared = proof.plain.witnessed[0].steps[COUNTED + 1].step  # the counted step is not measured
    small = tuple(name for name in way.recorded if name not in LARGE) if each > free else way.recorded
    return replace(way, recorded=small), str(proof.spared)


def without_refused(trained: Trained) -> Way | None:
    """Return a way without the quantities whose variables a refusal names; None where it names none, or nothing would be left."""
    named = [name for name in trained.way.recorded if any(f"{PREFIX}{name.upper()}" in line for line in trained.refusals)]
    left = tuple(name for name in trained.way.recorded if name not in named)
    return replace(trained.way, recorded=left) if named and left else None


def fired(run: Run, trained: Trained) -> Iterator[HookFired]:
    """Yield every hook of a record with its calls on all ranks."""
    why = {hook.name: hook.why for side in {seen.side for seen in trained.witnessed} for hook in hooks_of(side)}
    names = dict.fromkeys(name for manifest in run.manifests.values() for name in manifest.hooks)
    for name in names:
        counts = [manifest.hooks[name] for manifest in run.manifests.values() if name in manifest.hooks]
        state = next((count.state for count in counts if count.state != "attached"), "attached")
        yield HookFired(name, state, sum(count.calls for count in counts), why.get(name, ""))
