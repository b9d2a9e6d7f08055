"""Whether what feeds a run fits the model and the steps that a configuration describes: asked with the run's own checks, in its words."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from align_hooks.configuration.megatron import LATEST
from align_hooks.configuration.values import MINDFORMERS, Configuration
from align_hooks.doctor.shapes import Shapes, said, shapes, whole_number
from align_hooks.errors import AlignHooksError
from align_hooks.job.entry import room
from align_hooks.record.reader import open_run
from align_hooks.replay.batches import Replay
from align_hooks.replay.gradients import Injection
from align_hooks.replay.weights import Loader, vocabulary_fed
from align_hooks.settings import PREFIX, Settings

GROWS = ("rampup_batch_size", "step_batch_size_schedule")
"""Arguments with which Megatron's batch is not of one size."""
LOADED = ("load", "pretrained_checkpoint")
"""Arguments with which Megatron goes on from a checkpoint."""


def unfit(configuration: Configuration, settings: Settings, megatron: str, elsewhere: str) -> Iterator[str]:
    """Why a run of ``configuration`` would refuse what feeds it, one line a variable; nothing of what cannot be told.

    ``megatron`` is the version of megatron-core, empty where it is not known; ``elsewhere`` where more may be said.
    """
    try:
        model = shapes(configuration, elsewhere, vocabulary=_fed(configuration, settings), megatron=megatron)
    except (AlignHooksError, OSError):  # a source that cannot be opened, which is said of its variable
        return
    checks = {"load_weights": _check_weights, "replay_batches": _check_batches, "inject_gradients": _check_gradients}
    for name, check in checks.items():
        if getattr(settings, name) is None:
            continue
        try:
            check(configuration, settings, model, elsewhere)
        except (AlignHooksError, OSError) as error:
            yield f"{PREFIX}{name.upper()}: {error}"


def first_step(configuration: Configuration, elsewhere: str) -> int | None:
    """The step at which training starts; None where only a checkpoint tells it, or where nothing does."""
    values = configuration.values
    if configuration.side == MINDFORMERS:
        goes_on = [values.get(name) for name in ("resume_training", "runner_config.initial_step")]
        return None if any(one is not None and one.value for one in goes_on) else 0
    named = [values[name] for name in LOADED if name in values]
    if elsewhere or any(one.unknown for one in named):
        return None
    return None if any((Path(str(one.value)) / LATEST).exists() for one in named) else 0


def _fed(configuration: Configuration, settings: Settings) -> int | None:
    """The vocabulary without padding that a run of MindFormers is told by what feeds it."""
    if configuration.side != MINDFORMERS:
        return None
    sources = (settings.replay_batches, settings.inject_gradients)
    return vocabulary_fed(settings.load_weights, *(None if source is None else open_run(source.path) for source in sources))


def _check_weights(configuration: Configuration, settings: Settings, model: Shapes, elsewhere: str) -> None:
    """Raise as a run would at weights that do not fit."""
    assert settings.load_weights is not None
    Loader(settings.load_weights, model.whole, elsewhere=model.is_unknown)


def _check_batches(configuration: Configuration, settings: Settings, model: Shapes, elsewhere: str) -> None:
    """Raise as a run would at batches that do not fit: Megatron wants its own number of rows, MindFormers one that its ranks can share."""
    feed = _replay(configuration, settings, elsewhere)
    sequence = whole_number(said("seq_length", configuration, elsewhere))
    if configuration.side != MINDFORMERS:
        feed.check(sequence=sequence, vocabulary=model.padded, rows=_global_batch(configuration))
        return
    rows = feed.run.batch_facts(feed.steps[0]).rows
    feed.check(sequence=sequence, vocabulary=model.padded, rows=rows)
    room("ms")
    feeding, told = importlib.import_module("align_hooks.ms_side.feeding"), _sections(configuration)
    if feeding.is_semi_auto(told):
        feeding.sizes_of(told, whole=feeding.is_fed_whole(told.get("parallel", {}))).batch_size(rows, feed.source)


def _check_gradients(configuration: Configuration, settings: Settings, model: Shapes, elsewhere: str) -> None:
    """Raise as a run would at gradients that do not fit, or of steps that it does not make."""
    assert settings.inject_gradients is not None
    injection = Injection(settings.inject_gradients)
    planned = _planned(configuration, settings, elsewhere) or range(max(injection.recorded[-1], injection.source.steps.last or 0) + 1)
    injection.check(model.whole, planned, elsewhere=model.is_unknown)


def _replay(configuration: Configuration, settings: Settings, elsewhere: str) -> Replay:
    """The batches that feed a run, from the step at which it starts, as far as that is known."""
    assert settings.replay_batches is not None
    first, feed = first_step(configuration, elsewhere), Replay(settings.replay_batches)
    if first is None:
        return Replay(settings.replay_batches, next(step for step in range(feed.last + 1) if step in settings.replay_batches.steps))
    return feed


def _planned(configuration: Configuration, settings: Settings, elsewhere: str) -> range | None:
    """The steps that a run makes; None where they are not known. MindFormers makes as many as it is fed."""
    first = first_step(configuration, elsewhere)
    if first is None:
        return None
    if configuration.side == MINDFORMERS:
        with contextlib.suppress(AlignHooksError, OSError):  # said of the batches themselves
            return range(first, first + len(_replay(configuration, settings, elsewhere).steps)) if settings.replay_batches else None
        return None
    last = _number(configuration, "train_iters")
    return None if last is None or "exit_interval" in configuration.values else range(first, last)


def _global_batch(configuration: Configuration) -> int | None:
    """Rows of Megatron's step, None where that grows or is not said."""
    return None if any(name in configuration.values for name in GROWS) else _number(configuration, "global_batch_size")


def _number(configuration: Configuration, name: str) -> int | None:
    found = configuration.values.get(name)
    return None if found is None or found.unknown else whole_number(found.value)


def _sections(configuration: Configuration) -> dict[str, Any]:
    """The values of a YAML in their sections, as MindFormers holds them."""
    found: dict[str, Any] = {}
    for name, value in configuration.values.items():
        *path, last = name.split(".")
        section = found
        for part in path:
            section = section.setdefault(part, {})
            if not isinstance(section, dict):
                break
        else:
            section[last] = None if value.unknown else value.value
    return found
