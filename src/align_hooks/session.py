"""What one training process knows while it runs with hooks: what was asked, what was changed, what is recorded.

Hook bodies are handed a session and nothing else. It is framework-free; each side adds its own facts through it.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from align_hooks.errors import AlignHooksError, NothingRecorded, RefusedRun, in_a_line
from align_hooks.hooking.ledger import Ledger
from align_hooks.hooking.script import report
from align_hooks.launch import Launch
from align_hooks.norms import print_norms
from align_hooks.processes import WORKER, tell
from align_hooks.record.last_words import LastWords
from align_hooks.record.writer import Writer
from align_hooks.replay.batches import Replay
from align_hooks.replay.gradients import Injection
from align_hooks.replay.weights import open_weights
from align_hooks.settings import PREFIX, Settings
from align_hooks.streams import say

Found = TypeVar("Found")
KINDS = ("batches", "local_norms", "gradients", "weights", "sketches", "optimizer_state")
"""The recording switches, by the name of their field in Settings and of what the writer counts."""

STATES = ("weights", "sketches", "optimizer_state")
"""Those numbered by updates made, or that have such a half: a run of K steps has K+1 of them."""


@dataclass
class Session:
    """One process of one run.

    ``step`` is the training step under way, None between steps and during evaluation. ``planned`` are the steps that the run intends, None
    until it is built; ``made`` counts those that ended. ``stopped`` is why recording stopped, ``unrecorded`` the model's inputs that no
    record has, ``given_up`` what is no longer tried beside it, ``refused`` what we ended the run for, ``failure`` how the script
    failed. Until it has ``begun`` a session claims, changes and prints nothing.
    """

    side: str
    settings: Settings
    launch: Launch
    ledger: Ledger = field(default_factory=Ledger)
    record: Writer | None = None
    words: LastWords | None = None
    replay: Replay | None = None
    injection: Injection | None = None
    overrides: list[dict[str, str]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    step: int | None = None
    stopped: str | None = None
    refused: str | None = None
    failure: str | None = None
    planned: range | None = None
    made: int = 0
    done: set[str] = field(default_factory=set)
    given_up: set[str] = field(default_factory=set)
    unrecorded: set[str] = field(default_factory=set)
    begun: bool = False
    process: int = field(default_factory=os.getpid)

    def begin(self) -> None:
        """Open the runs that feed this one, then claim the run directory, where they were named. A second call does nothing.

        A source that is not there should cost a second, not a job, and no directory.
        """
        if os.getpid() != self.process:  # a worker process of ours is left alone, and told of
            tell(self.side, self.launch.rank, ended="left alone, as a worker process", problems=[WORKER])
            return
        if self.begun:
            return
        if self.settings.replay_batches is not None:
            self.replay = Replay(self.settings.replay_batches)
            with _named("REPLAY_BATCHES"):
                _ = self.replay.run
        if self.settings.load_weights is not None:
            with _named("LOAD_WEIGHTS"):
                open_weights(self.settings.load_weights)
        if self.settings.inject_gradients is not None:
            self.injection = Injection(self.settings.inject_gradients)
            with _named("INJECT_GRADIENTS"):
                _ = self.injection.recorded
        if self.settings.run is not None:
            self.record = Writer(self.settings.run, self.launch, self.side, self.settings)
            self.record.begin()
            for one in self.record.weaker:
                self.say(f"the file system of {self.settings.run} is weaker than a record counts on: {one}")
            self.words = LastWords(self.settings.run, self.launch.rank)
            self.attempt("last words", self.words.prepare, None)
        self.begun = True
        for said in self.overrides:
            self.say_override(said)
        tell(self.side, self.launch.rank, began=True)

    def override(self, what: str, before: object, after: object, why: str) -> None:
        """Account for something that a switch changed in the run, and say it once per job."""
        said = {"what": what, "before": str(before), "after": str(after), "why": why}
        if said in self.overrides:  # a script may read its arguments several times
            return
        self.overrides.append(said)
        if self.begun:
            self.say_override(said)

    def say_override(self, said: Mapping[str, str]) -> None:
        """Print what was changed."""
        self.say(f"{said['what']}: {said['before']} -> {said['after']} ({said['why']})")

    def say(self, message: str) -> None:
        """Print one line, from rank 0 only."""
        if self.launch.rank == 0:
            say(f"align_hooks: {message}", sys.stdout)

    def wants(self, kind: str, step: int | None = None) -> bool:
        """Whether ``kind`` was asked for at ``step`` (the one under way unless given) and can still be recorded."""
        step = self.step if step is None else step
        if self.stopped is not None or step is None or step not in getattr(self.settings, kind):
            return False
        return self.record is not None or kind == "local_norms"

    @property
    def recording(self) -> bool:
        """Whether rows are being written."""
        return self.record is not None and self.stopped is None

    @contextmanager
    def surviving(self, what: str) -> Iterator[None]:
        """Run a capture so that training survives its failure, unless ``ON_ERROR=raise``.

        Any exception of the body, a full disk or a bug of ours alike, ends recording and is reported at once, in the
        manifest, and by the exit code. Exceptions of the framework's own code must not be raised inside.
        """
        try:
            yield
        except Exception as error:
            if self.settings.on_error == "raise":
                raise
            self.stopped = f"stopped recording at step {self.step} while writing {what}: {type(error).__name__}: {error}"
            say(f"align_hooks: rank {self.launch.rank} {self.stopped}; training goes on", sys.stderr)

    def attempt(self, what: str, look: Callable[[], Found], otherwise: Found) -> Found:
        """What ``look`` finds, or ``otherwise`` where it fails: of what is only beside the record, and ends neither it nor the training.

        A first failure is said and is the last: nothing tries it again. With ``ON_ERROR=raise`` it is raised.
        """
        if what in self.given_up:
            return otherwise
        try:
            return look()
        except Exception as error:
            if self.settings.on_error == "raise":
                raise
            self.given_up.add(what)
            said = f"goes on without {what}: {type(error).__name__}: {error}"
            say(f"align_hooks: rank {self.launch.rank} {said}", sys.stderr)
            return otherwise

    def see_unrecorded(self, names: Iterable[str]) -> None:
        """Keep the names of inputs of the model that no record has, for the step's row, and say those that are new."""
        if new := sorted(set(names) - self.unrecorded):
            self.unrecorded.update(new)
            self.say(f"the model is given {', '.join(new)} beside the batch: neither recorded nor replayed")

    def recorded(self, kind: str) -> None:
        """Note that something of ``kind`` was really captured."""
        self.done.add(kind)

    def print_norms(self, step: int, squared: Mapping[str, float], parts: Container[str] = ()) -> None:
        """Print a step's local norms, one line a piece, named and not squared; every rank prints what it holds.

        Of the pieces in ``parts`` this rank holds a part only, and says so: its norm is not that of a run on one rank.
        """
        named = {f"part of {name}" if name in parts else name: math.sqrt(value) for name, value in squared.items()}
        print_norms(self.launch.rank, step, named)

    def finish(self, *, failed: bool) -> list[str]:
        """Close the record and return what was asked for and did not happen, one sentence each."""
        problems = [] if failed else [*self.ledger.unfired(), *self._unreached()]
        if self.stopped is not None:
            problems.append(f"rank {self.launch.rank} {self.stopped}")
        if self.record is not None:
            try:
                self.record.finish(hooks=self.ledger.facts(), ended=self.ended(failed))
                if self.made:
                    self.say(f"recorded {self.record.written['scalars']} steps in {self.record.run}: {self.ended(failed)}")
                if self.words is not None:
                    self.words.withdraw()
            except (OSError, AlignHooksError) as error:
                problems.append(f"rank {self.launch.rank} could not close the record in {self.record.run}: {error}")
        return problems

    def ended(self, failed: bool) -> str:
        """How the run ended, for the manifest; only a run that made all the steps it intended is finished."""
        if self.stopped is not None or failed:
            return self.refused or self.stopped or self.failure or "failed: the script ended with an error"
        if self.planned is None or self.made < len(self.planned):
            return f"ended early: {self.made} of {len(self.planned) if self.planned else 'its'} planned steps were made"
        return "finished"

    def fail(self, code: int, error: BaseException | None) -> None:
        """Keep for the manifest how the script failed: by the exception that nobody caught, or by its exit code."""
        if isinstance(error, KeyboardInterrupt):
            first = self.planned.start if self.planned else 0
            self.failure = f"interrupted at step {first + self.made if self.step is None else self.step} (SIGINT)"
        else:
            self.failure = f"failed: the script ended with {in_a_line(error) if error is not None else f'exit code {code}'}"

    def _unreached(self) -> list[str]:
        """Recording and replay that was asked for and that the run did not come to."""
        asked = [kind for kind in KINDS if getattr(self.settings, kind) and (self.settings.run is not None or kind == "local_norms")]
        never = [
            f"{PREFIX}{kind.upper()}={getattr(self.settings, kind).text}: no such step was reached, nothing was recorded"
            for kind in asked
            if kind not in self.done and self.stopped is None
        ]
        if self.settings.replay_batches is not None and self.planned is not None and self.made < len(self.planned):
            never.append(f"{PREFIX}REPLAY_BATCHES: {self.made} of {len(self.planned)} steps were trained on recorded batches")
        if self.injection is not None and (left := sorted(set(self.injection.steps) - self.injection.made)):
            never.append(f"{PREFIX}INJECT_GRADIENTS: {len(left)} of {len(self.injection.steps)} steps were not reached, first {left[0]}")
        return never

    def describe(
        self,
        *,
        place: Mapping[str, int],
        shards: Any,
        facts: Mapping[str, Any],
        steps: range,
        wanted: Mapping[str, tuple[int, ...]] | None = None,
        elsewhere: Callable[[str], bool] = lambda name: False,
    ) -> None:
        """Hand the built run's facts to the record, with the overrides so far; ``steps`` are those that it intends.

        ``wanted`` is canonical name to whole shape of the trainable tensors that this rank computes with, where that is more than its
        ``shards``; ``elsewhere`` says of another name whether another rank computes with it.

        Raises RefusedRun for a step that was named and that the run will never make.
        """
        self.planned = steps
        for kind in KINDS:
            last = steps.stop if kind in STATES else steps.stop - 1
            beyond = [part[0] for part in getattr(self.settings, kind).ranges or () if part[0] > last]
            if beyond:
                raise RefusedRun(
                    f"{PREFIX}{kind.upper()}={getattr(self.settings, kind).text}: step {beyond[0]} is never made, the last is {last}; "
                    f"train longer, or name steps up to {last}"
                )
        if self.injection is not None:
            needed = {shard.name: shard.shape for shard in shards if shard.trainable} if wanted is None else wanted
            self.injection.check(needed, steps, elsewhere=elsewhere, every=self.launch.rank == 0)
            self.facts["injected"] = self.injection.facts()
            self.override(
                f"gradients of {len(self.injection.steps)} steps, {self.injection.steps[0]} to {self.injection.steps[-1]}",
                "the run's own",
                self.injection.source,
                f"{PREFIX}INJECT_GRADIENTS",
            )
        if self.record is not None:
            whole = dict(facts) | self.facts | {"overrides": self.overrides}
            self.record.describe(place=place, shards=shards, facts=whole, steps=steps)


@contextmanager
def _named(variable: str) -> Iterator[None]:
    """Say which variable names what cannot be opened."""
    try:
        yield
    except AlignHooksError as error:
        raise type(error)(f"{PREFIX}{variable}: {error}") from None


def exit_code(code: int, problems: list[str]) -> int:
    """The launcher's exit code: the script's own, and 3 when that is 0 and something asked for never happened."""
    for problem in problems:
        report(NothingRecorded(problem))
    return NothingRecorded.exit_code if problems and code == 0 else code
