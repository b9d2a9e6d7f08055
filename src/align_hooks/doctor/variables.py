"""Each ``ALIGN_HOOKS_*`` variable that is set, and the run or file that it names, opened by the run's own code."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from align_hooks.errors import AlignHooksError, RefusedRun
from align_hooks.messages import rendered
from align_hooks.process.ranks import Launch
from align_hooks.record.write.start import earlier, holds_a_run
from align_hooks.replay.batches import Replay
from align_hooks.replay.gradients import Injection
from align_hooks.replay.routing import RoutingReplay
from align_hooks.replay.teacher import Teacher
from align_hooks.replay.weights import open_weights
from align_hooks.settings import PREFIX, Settings, Source


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable that is set."""

    name: str
    value: str
    found: str = ""
    """What the run or file that the variable names holds."""
    problem: str = ""
    """Why a run would be refused; empty where it would not."""


def examined(settings: Settings) -> Iterator[Variable]:
    """Yield every variable that does not have its default, in the order of the settings."""
    for field in fields(Settings):
        value = getattr(settings, field.name)
        if value == field.default:
            continue
        name, text = PREFIX + field.name.upper(), str(settings.as_text()[field.name])
        try:
            yield Variable(name, text, EXAMINERS[field.name](value, settings) if field.name in EXAMINERS else "")
        except RefusedRun as error:  # a refusal at a run's start, which names the variable
            yield Variable(name, text, problem=str(error))
        except (AlignHooksError, OSError) as error:
            yield Variable(name, text, problem=f"{name}: {error}")


def directory(run: Path, settings: Settings) -> str:
    """Return a description of the run's directory; raises AlignHooksError where the run could not claim it."""
    base = existing(run)
    if not base.is_dir() or not os.access(base, os.W_OK | os.X_OK):
        raise RefusedRun(f"{PREFIX}RUN={run} cannot be written: {base} is not yours to write; choose another directory")
    earlier(run, Launch(), settings.run_exists)  # raises what a run's start would raise
    if not holds_a_run(run):
        return "a new run"
    return "holds a run, which will be replaced" if settings.run_exists == "replace" else "holds a run, which will be continued"


def existing(path: Path) -> Path:
    """Return a path if it exists, else its nearest parent that does."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def replay(source: Source, settings: Settings) -> str:
    """Return the steps whose batches can be replayed, in words."""
    batches = Replay(source)
    if batches.run.missing is not None:
        raise AlignHooksError(f"{source}: {rendered(batches.run.missing.message)}; copy or record every rank")
    first = min(batches.run.batch_steps(), default=0)
    return f"batches of steps {max(first, 0)} to {batches.last}"


def of_steps(what: str, steps: Sequence[int]) -> str:
    """Return the recorded steps of a quantity, in words."""
    return f"{what} of {len(steps)} steps, {steps[0]} to {steps[-1]}"


EXAMINERS: Mapping[str, Callable[[Any, Settings], str]] = {
    "run": directory,
    "replay_batches": replay,
    "load_weights": lambda source, settings: f"{len(open_weights(source))} tensors",
    "inject_gradients": lambda source, settings: of_steps("gradients", Injection(source).recorded),
    "replay_routing": lambda source, settings: of_steps("experts", RoutingReplay(source).recorded),
    "teacher": lambda source, settings: of_steps("points", Teacher(source, patterns=settings.teacher_points.parts).recorded),
}
"""Field of the settings that names a run or a file to the function that describes this; its first argument is the field's value."""
