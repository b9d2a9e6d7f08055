"""The state of one training process with hooks: settings, sources of a replay, overrides. Handlers take it; it imports no framework."""

import math
import os
import shutil
import sys
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from align_hooks.errors import AlignHooksError, RefusedRun
from align_hooks.hooking.patch_log import PatchLog
from align_hooks.messages import rendered
from align_hooks.names.blocks import Array
from align_hooks.names.fused import Fused
from align_hooks.names.nearest import nearest
from align_hooks.names.points import chosen
from align_hooks.process.limit import limited
from align_hooks.process.ranks import Launch
from align_hooks.process.status import WORKER, tell
from align_hooks.process.streams import say
from align_hooks.quantities.activations import ACTIVATIONS, FILTER, WHOLE
from align_hooks.quantities.local_norms import PRINTED
from align_hooks.quantities.registry import SWITCHES, asked_by
from align_hooks.record.format.crash_stack import CrashStack
from align_hooks.record.format.norms import print_norms
from align_hooks.record.format.shard import Shard
from align_hooks.record.format.storage_limitations import weakness
from align_hooks.record.write.writer import Writer
from align_hooks.replay.batches import Replay
from align_hooks.replay.gradients import Injection
from align_hooks.replay.routing import Router, RoutingReplay
from align_hooks.replay.source import ReplaySource
from align_hooks.replay.teacher import Teacher
from align_hooks.replay.weights import open_weights
from align_hooks.session.recording import Recording
from align_hooks.settings import PREFIX, Settings, Source

Opened = TypeVar("Opened")


class RecordedParameters(Protocol):
    """The parameters of the model that a side built, under canonical names."""

    def shards(self) -> Sequence[Shard]:
        """Return this rank's parameter table."""

    def weights(self) -> Mapping[str, Array]:
        """Return canonical name to fp32 array, without copies."""

    def weight_squares(self) -> Mapping[str, float]:
        """Return canonical name to squared sum, with copies; empty where there can be no copies."""

    def weight_sketches(self) -> Callable[[], Mapping[str, Sequence[float]]]:
        """Return what maps canonical names to sketches, without copies, on the writing thread."""

    def wanted(self, *, trainable: bool = False) -> Mapping[str, tuple[int, ...]]:
        """Return canonical name to global shape of each tensor, or ``trainable`` tensor, with which this rank computes."""

    def elsewhere(self) -> Callable[[str], bool]:
        """Return a predicate: whether another rank holds the tensor of a canonical name."""

    def load(self, read: Callable[[Fused], Array]) -> None:
        """Set every parameter to what ``read`` returns for it (fp32, native layout)."""


@dataclass
class Session:
    """A process of a run, which claims, changes and prints nothing until it has ``begun``."""

    side: str
    settings: Settings
    launch: Launch
    patch_log: PatchLog = field(default_factory=PatchLog)
    recording: Recording = field(init=False)
    replay: Replay | None = None
    injection: Injection | None = None
    routing: RoutingReplay | None = None
    teacher: Teacher | None = None
    overrides: list[dict[str, str]] = field(default_factory=list)
    """The changes that variables made in the run: ``what``, ``before``, ``after``, ``why``."""
    facts: dict[str, object] = field(default_factory=dict)
    """Members of ``run.json`` beside the facts of the built run."""
    planned: range | None = None
    """The steps that the run will make; None until it is built."""
    is_endless: bool = False
    """Whether the run does not say how many steps it will make; ``planned`` ends with the last that is asked for."""
    made: int = 0
    """The number of steps that ended."""
    unrecorded: set[str] = field(default_factory=set)
    """Names of the model's inputs that no record holds."""
    printed: set[str] = field(default_factory=set)
    """Lines that are printed once."""
    begun: bool = False
    parameters: RecordedParameters | None = None
    """None until the model is built."""
    model_config: dict[str, object] = field(default_factory=dict)
    """Hugging Face's ``config.json`` of the model; empty until it is built."""
    process: int = field(default_factory=os.getpid)

    def __post_init__(self) -> None:
        self.recording = Recording(self.settings, self.launch)

    @property
    def step(self) -> int | None:
        """The training step under way, None between steps and during evaluation."""
        return self.recording.step

    @step.setter
    def step(self, step: int | None) -> None:
        self.recording.step = step

    def survive(self, what: str, error: Exception) -> None:
        """See :meth:`Recording.survive`."""
        self.recording.survive(what, error)

    @property
    def replayed(self) -> list[ReplaySource]:
        """The quantities, other than its batch, that a step takes from another run."""
        return [source for source in (self.injection, self.routing, self.teacher) if source is not None]

    def beginning(self) -> AbstractContextManager[None]:
        """Return a context in which a refusal ends training, and in a run that replays anything any other error too."""
        replays = self.replayed or self.replay is not None or self.settings.load_weights is not None
        return self.recording.must_succeed(Exception if replays else AlignHooksError)

    def begin(self) -> None:
        """Open the sources that the settings name, then claim the run directory. A second call does nothing."""
        if os.getpid() != self.process:
            tell(self.side, self.launch.rank, ended="left alone, as a worker process", problems=[WORKER])
            return
        if self.begun:
            return
        # first, so that a source that is missing leaves no run directory
        self.replay = self._opened("replay_batches", Replay, "run")
        self._opened("load_weights", open_weights)
        self.injection = self._opened("inject_gradients", Injection, "recorded")
        self.routing = self._opened("replay_routing", RoutingReplay, "recorded")
        self.teacher = self._opened("teacher", partial(Teacher, patterns=self.settings.teacher_points.parts), "recorded")
        self._refuse_shifted()
        if self.settings.run is not None:
            self.recording.writer = Writer(self.settings.run, self.launch, self.side, self.settings)
            self.recording.writer.begin()
            for lack in self.recording.writer.storage_limitations:
                self.say(f"the file system of {self.settings.run} is weaker than a record counts on: {rendered(weakness(lack))}")
            self.recording.crash_stack = CrashStack(self.settings.run, self.launch.rank)
            self.recording.best_effort("last words", self.recording.crash_stack.prepare, None)
        self.begun = True
        for change in self.overrides:
            self.say_override(change)
        tell(self.side, self.launch.rank, began=True)

    def _opened(self, name: str, make: Callable[[Source], Opened], *members: str) -> Opened | None:
        """Open the source of setting ``name`` with ``make``, and read ``members``; None where it is unset. Errors name the variable."""
        source: Source | None = getattr(self.settings, name)
        if source is None:
            return None
        try:
            opened = make(source)
            for member in members:
                getattr(opened, member)
        except AlignHooksError as error:
            raise type(error)(f"{PREFIX}{name.upper()}: {error}") from None
        return opened

    def _refuse_shifted(self) -> None:
        """Refuse to replay batches with gaps, and gradients, experts or activations of the same run, whose steps no longer match."""
        if self.replay is None or not (self.replay.source.steps.ranges and self.replay.left_out):
            return
        for name in ("inject_gradients", "replay_routing", "teacher"):
            source = getattr(self.settings, name)
            if source is not None and source.path == self.replay.source.path:
                raise RefusedRun(
                    f"{PREFIX}{name.upper()} and {PREFIX}REPLAY_BATCHES name one run, and the second leaves batches out: what was recorded "
                    f"at a step is of another batch; unset the first, or record a run that leaves out the same batches and name that"
                )

    def override(self, what: str, before: object, after: object, why: str) -> None:
        """Note what a variable changed in the run, and print it on rank 0."""
        change = {"what": what, "before": str(before), "after": str(after), "why": why}
        if change in self.overrides:  # a script may read its arguments several times
            return
        self.overrides.append(change)
        if self.begun:
            self.say_override(change)

    def say_override(self, change: Mapping[str, str]) -> None:
        """Print an override on rank 0."""
        self.say(f"{change['what']}: {change['before']} -> {change['after']} ({change['why']})")

    def say(self, message: str) -> None:
        """Print one line, from rank 0 only."""
        if self.launch.rank == 0:
            say(f"align_hooks: {message}", sys.stdout)

    def see_unrecorded(self, names: Iterable[str]) -> None:
        """Note the names of model inputs that no record holds, for the step's row, and print new ones."""
        if new := sorted(set(names) - self.unrecorded):
            self.unrecorded.update(new)
            self.say(f"the model is given {', '.join(new)} beside the batch: neither recorded nor replayed")

    def check_routing(self, routers: Mapping[str, Router], planned: range, tokens: int | None) -> None:
        """Check the experts to replay with :meth:`RoutingReplay.check`, before training."""
        assert self.routing is not None
        self.routing.check(routers, planned, tokens, every=self.launch.rank == 0)
        self.facts["routed"] = self.routing.facts()
        self.override("experts of each token", "the router's own choice", self.routing.source, f"{PREFIX}REPLAY_ROUTING")

    def check_teacher(self, widths: Mapping[str, int], planned: range, rows: int | None, length: int | None) -> None:
        """Check the activations to force with :meth:`Teacher.check`, before training."""
        assert self.teacher is not None
        self.teacher.check(widths, planned, rows, length, every=self.launch.rank == 0)
        self.facts["forced"] = self.teacher.facts()
        self.override("what blocks are given", "the run's own", self.teacher.source, f"{PREFIX}TEACHER")

    def refuse_unmatched(self, known: Collection[str], is_elsewhere: Callable[[str], bool] = lambda pattern: False) -> None:
        """Refuse a pattern that matches no ``known`` probe point, unless ``is_elsewhere`` says that points on other ranks may match."""
        for option in (FILTER, WHOLE):
            for pattern in self.settings.patterns(option).parts:
                if not any(map(chosen([pattern]), known)) and not is_elsewhere(pattern):
                    near = ", ".join(nearest(pattern, known, 3)) or "none"
                    raise RefusedRun(f"{PREFIX}{option.name.upper()}: no point is called {pattern}; near it are {near}")

    def announce_activations(self, size: int, steps: range) -> None:
        """Print how much disk whole activations take, ``size`` bytes a step on this rank; raises RefusedRun where they do not fit."""
        run, asked = self.settings.run, self.settings.steps(ACTIVATIONS)
        if not size or run is None:
            return
        needed, free = size * asked.count(steps), shutil.disk_usage(run).free
        self.say(f"whole tensors of points take {size / 1e6:.1f} MB on disk in each of {asked.count(steps)} steps")
        if needed > free:
            raise RefusedRun(
                f"whole tensors of points need {needed / 1e9:.1f} GB on rank {self.launch.rank} and {run} has {free / 1e9:.1f} GB free; "
                f"choose fewer in {PREFIX}ACTIVATIONS_TENSORS, fewer steps in {PREFIX}ACTIVATIONS, or another disk"
            )

    def say_once(self, message: str) -> None:
        """Print one line, from rank 0 only, unless it was printed before."""
        if message not in self.printed:
            self.printed.add(message)
            self.say(message)

    def print_norms(self, step: int, squared: Mapping[str, float], parts: Container[str] = ()) -> None:
        """Print a step's local norms, from squared sums: a summary on rank 0 where they are recorded, unless every norm is asked for.

        ``parts`` names tensors of which this rank holds a part only: that norm is printed as a part's.
        """
        named = {f"part of {name}" if name in parts else name: math.sqrt(value) for name, value in squared.items()}
        if self.settings.run is None or self.settings.choice(PRINTED) == "all":
            print_norms(self.launch.rank, step, named)
            return
        largest = max(named, key=lambda name: (not math.isfinite(named[name]), named[name]))
        recorded = f"{len(named)} recorded on this rank, the largest {named[largest]:.6g} of {largest}"
        self.say(f"local norms at step {step} (iteration {step + 1}): {recorded}")

    def last_asked(self) -> int:
        """Return the last step that a variable names or that a source has; -1 where there is none."""
        named = [part[-1] for switch in SWITCHES for part in self.settings.steps(switch).ranges or () if part]
        recorded = [step for source in self.replayed for step in source.recorded]
        return max([*named, *recorded, -1 if self.replay is None else self.replay.last])

    def describe(self, *, place: Mapping[str, int], facts: Mapping[str, object], steps: range, is_whole: bool = True) -> None:
        """Write the built run's facts into the record, with the overrides so far.

        ``steps`` are those that the run will make, or without ``is_whole``, where it does not say when it ends, those that are asked for.
        Raises RefusedRun for a requested step that the run will not make.
        """
        self.planned = steps = limited(steps)
        for switch in SWITCHES:
            asked = self.settings.steps(switch)
            last = max(kind.numbers(steps).stop for kind in asked_by(switch)) - 1
            never = next((part[0] for part in asked.ranges or () if part[0] > last), None)
            if never is not None:
                raise RefusedRun(
                    f"{PREFIX}{switch.name.upper()}={asked.text}: step {never} is never made, the last is {last}; "
                    f"train longer, or name steps up to {last}"
                )
        parameters = self.parameters
        if self.injection is not None and parameters is not None:
            wanted = parameters.wanted(trainable=True)
            self.injection.check(wanted, steps, elsewhere=parameters.elsewhere(), every=self.launch.rank == 0)
            self.facts["injected"] = self.injection.facts()
            what = f"gradients of {len(self.injection.steps)} steps, {self.injection.steps[0]} to {self.injection.steps[-1]}"
            self.override(what, "the run's own", self.injection.source, f"{PREFIX}INJECT_GRADIENTS")
        self.is_endless = not is_whole
        facts = {**facts, **({} if is_whole else {"planned_steps": None})}
        if (writer := self.recording.writer) is not None:
            facts, shards = {**facts, **self.facts, "overrides": self.overrides}, parameters.shards() if parameters is not None else ()
            continued = writer.describe(place=place, shards=shards, facts=facts, steps=steps)
            if writer.restarts:
                how = f"goes on with step {steps.start}" if continued else f"is replaced from step {steps.start} on"
                self.say(f"restart {writer.restarts} of this job: its record in {writer.run} {how}")
