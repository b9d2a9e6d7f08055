"""Why a run of a configuration would be refused: refusals of the side, and recorded data that does not fit its model and its steps,
by the run's own checks and in their words; and that a model is of no family."""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from align_hooks.checklist.belongs import elsewhere as place_of_more
from align_hooks.checklist.belongs import odd
from align_hooks.checklist.readings import training
from align_hooks.checklist.readings.lookup import are_numbers, known
from align_hooks.configuration.megatron import LATEST
from align_hooks.configuration.values import MINDFORMERS, Configuration
from align_hooks.doctor.shapes import Shapes, meaning, shapes, whole_number
from align_hooks.errors import AlignHooksError, RefusedRun
from align_hooks.families.registry import routers
from align_hooks.job.entry import room
from align_hooks.messages import rendered
from align_hooks.names.points import EMBEDDING
from align_hooks.record.reader import open_run
from align_hooks.replay.batches import Replay
from align_hooks.replay.gradients import Injection
from align_hooks.replay.handed import ReplaySource
from align_hooks.replay.routing import Router, RoutingReplay
from align_hooks.replay.teacher import Teacher
from align_hooks.replay.weights import Loader, vocabulary_fed
from align_hooks.settings import PREFIX, Settings, Source

GROWS = ("rampup_batch_size", "step_batch_size_schedule")
"""Arguments with which the size of Megatron's batch changes."""
ROUTER = tuple(f".{kind}.weight" for kind in routers())
"""How the canonical name of a router's weight ends."""
BLOCK = re.compile(r"model\.layers\.\d+(?=\.)")
LOADED = ("load", "pretrained_checkpoint")
"""Arguments that name a checkpoint from which Megatron goes on."""


def refused(side: str, configuration: Configuration, settings: Settings, versions: Mapping[str, str]) -> Iterator[str]:
    """Why a run of ``configuration`` would be refused under ``settings``, a line each; ``versions`` are those of the side's packages."""
    room(side)
    rules = importlib.import_module(f"align_hooks.{side}_side.refusals")
    get = functools.partial(known, configuration)
    trains = get("run_mode") in rules.TRAINS if side == "ms" else not get("skip_train")
    if not settings.any_set() or not trains:
        return
    yield from rules.refusals(settings, get, *([versions.get("mindspore", "")] if side == "ms" else []))
    if not odd(configuration):  # of another model the shapes are not known
        yield from unfit(configuration, settings, versions.get("megatron-core", ""), place_of_more(configuration))


def too_few(configuration: Configuration, processes: int | None) -> Iterator[str]:
    """Why a layout needs more than the ``processes`` that are started where no launcher says how many; None where that is not known."""
    of_mindformers = configuration.side == MINDFORMERS
    keys = ("model_parallel", "pipeline_stage") if of_mindformers else ("tensor_model_parallel_size", "pipeline_model_parallel_size")
    launched = known(configuration, "device_num") if of_mindformers else training.megatron_cards(configuration)
    started = launched if are_numbers(launched) else processes
    split = [known(configuration, key) or 1 for key in keys]
    needed = training.mindformers_cards(configuration) if of_mindformers else math.prod(split) if are_numbers(*split) else None
    if are_numbers(started, needed) and needed > started:  # type: ignore[operator]
        off = "use_parallel: False, " if of_mindformers else ""
        yield (
            f"{configuration.source} splits the model over {needed} devices, and so many processes are started: {started}; start more, or "
            f"for a rehearsal set {off}{' and '.join(keys)} to 1 in a copy, as docs/rehearsal.md does with all such keys"
        )


def own_names(configuration: Configuration, settings: Settings) -> str | None:
    """What a run of a model of no family should know; None of others."""
    if not settings.any_set() or not (wrong := odd(configuration)):
        return None
    why = "; ".join(map(rendered, wrong))
    return f"the model is of no family: {why}; what its nearest family does not know is recorded under the framework's own names"


def unfit(configuration: Configuration, settings: Settings, megatron: str, elsewhere: str) -> Iterator[str]:
    """Why a run of ``configuration`` would refuse the data that feeds it, a line a variable, as far as that is known.

    ``megatron`` is the version of megatron-core, empty where it is not known; ``elsewhere`` the place where the configuration may go on.
    """
    try:
        model = shapes(configuration, elsewhere, vocabulary=_fed(configuration, settings), megatron=megatron)
    except (AlignHooksError, OSError):  # a source cannot be opened, which is a problem of its variable
        return
    checks = {
        "load_weights": _check_weights,
        "replay_batches": _check_batches,
        "inject_gradients": _check_gradients,
        "replay_routing": _check_routing,
        "teacher": _check_teacher,
    }
    for name, check in checks.items():
        if (source := getattr(settings, name)) is None:
            continue
        try:
            check(source, configuration, settings, model, elsewhere)
        except (AlignHooksError, OSError) as error:
            yield f"{PREFIX}{name.upper()}: {error}"


def first_step(configuration: Configuration, elsewhere: str) -> int | None:
    """The step at which training starts; None where that is not known, as with a checkpoint."""
    values = configuration.values
    if configuration.side == MINDFORMERS:
        goes_on = [values.get(name) for name in ("resume_training", "runner_config.initial_step")]
        return None if any(value is not None and (value.unknown or value.value) for value in goes_on) else 0
    loaded = [values[name] for name in LOADED if name in values]
    if elsewhere or any(value.unknown for value in loaded):
        return None
    return None if any((Path(str(value.value)) / LATEST).exists() for value in loaded) else 0


def _fed(configuration: Configuration, settings: Settings) -> int | None:
    """The vocabulary without padding, which a run of MindFormers takes from the runs that feed it."""
    if configuration.side != MINDFORMERS:
        return None
    sources = (settings.replay_batches, settings.inject_gradients)
    return vocabulary_fed(settings.load_weights, *(None if source is None else open_run(source.path) for source in sources))


def _check_weights(source: Source, configuration: Configuration, settings: Settings, model: Shapes, elsewhere: str) -> None:
    """Raise what a run would raise for weights that do not fit."""
    Loader(source, model.whole, elsewhere=model.is_unknown)


def _check_batches(source: Source, configuration: Configuration, settings: Settings, model: Shapes, elsewhere: str) -> None:
    """Raise what a run would raise for batches that do not fit; Megatron needs its own number of rows, MindFormers a number to share."""
    feed = _replay(configuration, settings, elsewhere)
    sequence = whole_number(meaning("seq_length", configuration, elsewhere))
    if configuration.side != MINDFORMERS:
        grows = any(name in configuration.values for name in GROWS)
        rows = None if grows else whole_number(known(configuration, "global_batch_size"))
        feed.check(sequence=sequence, vocabulary=model.padded, rows=rows)
        return
    rows = feed.run.batch_facts(feed.steps[0]).rows
    feed.check(sequence=sequence, vocabulary=model.padded, rows=rows)
    room("ms")
    feeding, config = importlib.import_module("align_hooks.ms_side.feeding"), _sections(configuration)
    if feeding.is_semi_auto(config):
        feeding.sizes_of(config, whole=feeding.is_fed_whole(config.get("parallel", {}))).batch_size(rows, feed.source)


def _check_gradients(source: Source, configuration: Configuration, settings: Settings, model: Shapes, elsewhere: str) -> None:
    """Raise what a run would raise for gradients that do not fit, or of steps that it does not make."""
    injection = Injection(source)
    planned = _planned(injection, configuration, settings, elsewhere)
    injection.check(model.whole, planned, elsewhere=model.is_unknown)


def _check_routing(source: Source, configuration: Configuration, settings: Settings, model: Shapes, elsewhere: str) -> None:
    """Raise what a run would raise for experts that do not fit, or of steps that it does not make."""
    replay, chosen = RoutingReplay(source), whole_number(meaning("num_experts_chosen", configuration, elsewhere))
    planned = _planned(replay, configuration, settings, elsewhere)
    gates = {name: shape for name, shape in model.whole.items() if name.endswith(ROUTER)}
    if model.whole and not gates:
        raise RefusedRun("this model has no experts; unset it")
    wanted = {name.removesuffix(".weight"): Router(shape[0], chosen) for name, shape in gates.items()} if chosen else {}
    replay.check(wanted, planned, None)


def _check_teacher(source: Source, configuration: Configuration, settings: Settings, model: Shapes, elsewhere: str) -> None:
    """Raise what a run would raise for what is given to its blocks, or of steps that it does not make; other points have widths that a
    configuration alone does not tell."""
    teacher = Teacher(source, patterns=settings.teacher_points.parts)
    planned = _planned(teacher, configuration, settings, elsewhere)
    embedding = model.whole.get(f"{EMBEDDING}.weight")
    blocks = {EMBEDDING, *(found[0] for name in model.whole if (found := BLOCK.match(name)))}
    widths = {name: embedding[1] for name in blocks if embedding is not None and teacher.forces(name)}
    if widths:
        teacher.check(widths, planned, None, None, every=False)


def _replay(configuration: Configuration, settings: Settings, elsewhere: str) -> Replay:
    """The batches that feed a run, from the step at which it starts where that is known."""
    assert settings.replay_batches is not None
    feed, first = Replay(settings.replay_batches), first_step(configuration, elsewhere)
    return feed if first is not None else Replay(feed.source, feed.first_chosen)


def _planned(handed: ReplaySource, configuration: Configuration, settings: Settings, elsewhere: str) -> range:
    """The steps that a run makes; where they are not known, all up to the last of what is handed to it. MindFormers makes as many as it is
    fed."""
    first, stop = first_step(configuration, elsewhere), None
    if configuration.side != MINDFORMERS:
        if "exit_interval" not in configuration.values:
            stop = whole_number(known(configuration, "train_iters"))
    elif first is not None and settings.replay_batches:
        with contextlib.suppress(AlignHooksError, OSError):  # a problem of the batches
            stop = first + len(_replay(configuration, settings, elsewhere).steps)
    if first is None or stop is None or stop <= first:
        return range(max(handed.recorded[-1], handed.source.steps.last or 0) + 1)
    return range(first, stop)


def _sections(configuration: Configuration) -> dict[str, object]:
    """The values of a YAML in their sections, as MindFormers holds them."""
    whole: dict[str, object] = {}
    for name in configuration.values:
        *path, last = name.split(".")
        section = whole
        for part in path:
            inner = section.setdefault(part, {})
            if not isinstance(inner, dict):
                break
            section = inner
        else:
            section[last] = known(configuration, name)
    return whole
