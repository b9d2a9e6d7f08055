"""Refusals of a configuration by the run's own checks: by its side, and for recorded data that does not fit the model or the steps."""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from align_hooks.checklist.family_match import elsewhere as place_of_more
from align_hooks.checklist.family_match import odd
from align_hooks.checklist.lookup import are_numbers, known
from align_hooks.checklist.resolvers import layout
from align_hooks.configuration.megatron import LATEST
from align_hooks.configuration.pynative import graph_key
from align_hooks.configuration.values import MINDFORMERS, Configuration
from align_hooks.doctor.shapes import Shapes, canonical, shapes, whole_number
from align_hooks.errors import AlignHooksError, RefusedRun
from align_hooks.families.registry import routers
from align_hooks.job.entry import side_environment
from align_hooks.messages import rendered
from align_hooks.names.points import EMBEDDING
from align_hooks.record.reader import open_run
from align_hooks.replay.batches import Replay
from align_hooks.replay.gradients import Injection
from align_hooks.replay.routing import Router, RoutingReplay
from align_hooks.replay.source import ReplaySource
from align_hooks.replay.teacher import Teacher
from align_hooks.replay.weights import Loader, vocabulary_fed
from align_hooks.settings import PREFIX, Settings, Source

GROWS = ("rampup_batch_size", "step_batch_size_schedule")
"""Arguments with which the size of Megatron's batch changes."""
ROUTER = tuple(f".{kind}.weight" for kind in routers())
"""Ends of the canonical names of routers' weights."""
BLOCK = re.compile(r"model\.layers\.\d+(?=\.)")
LOADED = ("load", "pretrained_checkpoint")
"""Arguments that name a checkpoint from which Megatron goes on."""


def refused(side: str, configuration: Configuration, settings: Settings, versions: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each reason to refuse a run of ``configuration``; ``versions`` are the versions of the side's packages."""
    side_environment(side)
    rules = importlib.import_module(f"align_hooks.{side}_side.refusals")
    get = functools.partial(known, configuration)
    trains = get("run_mode") in rules.TRAINS if side == "ms" else not get("skip_train")
    if not settings.any_set() or not trains:
        return
    if configuration.trainer:
        yield from rules.pynative_refusals(settings, lambda key: get(graph_key(key)), None)
    else:
        yield from rules.refusals(settings, get, *([versions.get("mindspore", "")] if side == "ms" else []))
    if not odd(configuration):  # the shapes of a model of no family are not known
        yield from unfit(configuration, settings, versions.get("megatron-core", ""), place_of_more(configuration))


def too_few(configuration: Configuration, processes: int | None) -> Iterator[str]:
    """Yield a problem where a layout needs more processes than are started: ``processes``, if known, where no launcher states it."""
    of_mindformers = configuration.side == MINDFORMERS
    keys = ("model_parallel", "pipeline_stage") if of_mindformers else ("tensor_model_parallel_size", "pipeline_model_parallel_size")
    launched = known(configuration, "device_num") if of_mindformers else layout.megatron_cards(configuration)
    started = launched if are_numbers(launched) else processes
    split = [known(configuration, key) or 1 for key in keys]
    needed = layout.mindformers_cards(configuration) if of_mindformers else math.prod(split) if are_numbers(*split) else None
    if are_numbers(started, needed) and needed > started:  # type: ignore[operator]
        off = "use_parallel: False, " if of_mindformers else ""
        yield (
            f"{configuration.source} splits the model over {needed} devices, and so many processes are started: {started}; start more, or "
            f"for a rehearsal set {off}{' and '.join(keys)} to 1 in a copy, as docs/rehearsal.md does with all such keys"
        )


def own_names(configuration: Configuration, settings: Settings) -> str | None:
    """Return a note that a model is of no family; None where it is of one."""
    if not settings.any_set() or not (wrong := odd(configuration)):
        return None
    why = "; ".join(map(rendered, wrong))
    return f"the model is of no family: {why}; what its nearest family does not know is recorded under the framework's own names"


def unfit(configuration: Configuration, settings: Settings, megatron: str, elsewhere: str) -> Iterator[str]:
    """Yield a line for each variable whose recorded data a run would refuse; ``megatron`` and ``elsewhere`` as for :func:`shapes`."""
    vocabulary = None
    try:
        if configuration.side == MINDFORMERS:  # which takes the vocabulary without padding from its sources
            sources = (settings.replay_batches, settings.inject_gradients)
            runs = [None if source is None else open_run(source.path) for source in sources]
            vocabulary = vocabulary_fed(settings.load_weights, *runs)
        checks = _DataChecks(configuration, settings, shapes(configuration, elsewhere, vocabulary=vocabulary, megatron=megatron), elsewhere)
    except (AlignHooksError, OSError):  # a source cannot be opened, which is a problem of its variable
        return
    for check in (checks.load_weights, checks.replay_batches, checks.inject_gradients, checks.replay_routing, checks.teacher):
        if (source := getattr(settings, check.__name__)) is not None:
            try:
                check(source)
            except (AlignHooksError, OSError) as error:
                yield f"{PREFIX}{check.__name__.upper()}: {error}"


class _DataChecks(Struct, frozen=True):
    """The run's own checks of recorded data, each a method by the name of its setting, which raises the run's error."""

    configuration: Configuration
    settings: Settings
    model: Shapes
    elsewhere: str
    """Where the configuration may go on; empty where it cannot."""

    def load_weights(self, source: Source) -> None:
        Loader(source, self.model.whole, elsewhere=self.model.is_unknown)

    def replay_batches(self, source: Source) -> None:
        replay = self.replay(source)
        sequence = whole_number(canonical("seq_length", self.configuration, self.elsewhere))
        if self.configuration.side != MINDFORMERS:  # Megatron needs the rows that it asks for
            grows = any(name in self.configuration.values for name in GROWS)
            rows = None if grows else whole_number(known(self.configuration, "global_batch_size"))
            replay.check(sequence=sequence, vocabulary=self.model.padded, rows=rows)
            return
        rows = replay.run.batch_facts(replay.steps[0]).rows
        replay.check(sequence=sequence, vocabulary=self.model.padded, rows=rows)
        side_environment("ms")
        feeding, config = importlib.import_module("align_hooks.ms_side.feeding"), _sections(self.configuration)
        if feeding.is_semi_auto(config):  # data parallelism must divide the rows
            feeding.sizes_of(config, whole=feeding.is_fed_whole(config.get("parallel", {}))).batch_size(rows, replay.source)

    def inject_gradients(self, source: Source) -> None:
        injection = Injection(source)
        injection.check(self.model.trained, self.planned(injection), elsewhere=self.model.is_unknown)

    def replay_routing(self, source: Source) -> None:
        replay, chosen = RoutingReplay(source), whole_number(canonical("num_experts_chosen", self.configuration, self.elsewhere))
        planned = self.planned(replay)
        gates = {name: shape for name, shape in self.model.whole.items() if name.endswith(ROUTER)}
        if self.model.whole and not gates:
            raise RefusedRun("this model has no experts; unset it")
        wanted = {name.removesuffix(".weight"): Router(shape[0], chosen) for name, shape in gates.items()} if chosen else {}
        replay.check(wanted, planned, None)

    def teacher(self, source: Source) -> None:
        teacher = Teacher(source, patterns=self.settings.teacher_points.parts)
        planned, embedding = self.planned(teacher), self.model.whole.get(f"{EMBEDDING}.weight")
        # a configuration does not show the widths of other points than its blocks
        blocks = {EMBEDDING, *(found[0] for name in self.model.whole if (found := BLOCK.match(name)))}
        widths = {name: embedding[1] for name in blocks if embedding is not None and teacher.forces(name)}
        if widths:
            teacher.check(widths, planned, None, None, every=False)

    def first_step(self) -> int | None:
        """Return the step at which training starts; None where it is not known, as with a checkpoint."""
        values = self.configuration.values
        if self.configuration.side == MINDFORMERS:
            goes_on = [values.get(name) for name in ("resume_training", "runner_config.initial_step")]
            return None if any(value is not None and (value.unknown or value.value) for value in goes_on) else 0
        loaded = [values[name] for name in LOADED if name in values]
        if self.elsewhere or any(value.unknown or (Path(str(value.value)) / LATEST).exists() for value in loaded):
            return None
        return 0

    def replay(self, source: Source) -> Replay:
        """Return the batches of a run, from its first step where that is known."""
        replay = Replay(source)
        return Replay(source, replay.first_chosen) if self.first_step() is None else replay

    def planned(self, replayed: ReplaySource) -> range:
        """Return the steps that a run makes; where they are not known, all up to the last that ``replayed`` has."""
        first, stop = self.first_step(), None
        if self.configuration.side != MINDFORMERS:
            if "exit_interval" not in self.configuration.values:
                stop = whole_number(known(self.configuration, "train_iters"))
        elif first is not None and self.settings.replay_batches:  # MindFormers makes a step for each batch
            with contextlib.suppress(AlignHooksError, OSError):  # a problem of the batches
                stop = first + len(self.replay(self.settings.replay_batches).steps)
        if first is None or stop is None or stop <= first:
            return range(max(replayed.recorded[-1], replayed.source.steps.last or 0) + 1)
        return range(first, stop)


def _sections(configuration: Configuration) -> dict[str, object]:
    """Return the values of a YAML in their sections, as MindFormers holds them."""
    root: dict[str, object] = {}
    for name in configuration.values:
        *path, last = name.split(".")
        section = root
        for part in path:
            inner = section.setdefault(part, {})
            if not isinstance(inner, dict):
                break
            section = inner
        else:
            section[last] = known(configuration, name)
    return root
