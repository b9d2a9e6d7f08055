"""What each ``ALIGN_HOOKS_*`` variable is set to, and whether what it names is there: opened as the run itself would open it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from align_hooks.errors import AlignHooksError, RefusedRun
from align_hooks.job.ranks import Launch
from align_hooks.messages import rendered
from align_hooks.record.start import earlier, holds_a_run
from align_hooks.replay.batches import Replay
from align_hooks.replay.gradients import Injection
from align_hooks.replay.weights import open_weights
from align_hooks.settings import PREFIX, Settings, Source


@dataclass(frozen=True, slots=True)
class Said:
    """One variable, its value, what came of looking, and why the run would be refused; empty where it would not."""

    name: str
    value: str
    found: str = ""
    problem: str = ""


def said(settings: Settings) -> Iterator[Said]:
    """Every variable that is set to more than nothing, in the order of the table."""
    for one in fields(Settings):
        value = getattr(settings, one.name)
        if value == one.default:
            continue
        name, text = PREFIX + one.name.upper(), str(settings.as_text()[one.name])
        look = LOOKS.get(one.name)
        if look is None:
            yield Said(name, text)
            continue
        try:
            yield Said(name, text, look(value, settings))
        except RefusedRun as error:  # the words of a start, which name the variable
            yield Said(name, text, problem=str(error))
        except (AlignHooksError, OSError) as error:
            yield Said(name, text, problem=f"{name}: {error}")


def directory(run: Path, settings: Settings) -> str:
    """What the directory of the run holds; raises AlignHooksError where the run could not claim it."""
    base = existing(run)
    if not base.is_dir() or not os.access(base, os.W_OK | os.X_OK):
        raise RefusedRun(f"{PREFIX}RUN={run} cannot be written: {base} is not yours to write; choose another directory")
    earlier(run, Launch(), settings.run_exists)  # raises what a start would
    if not holds_a_run(run):
        return "a new run"
    return "holds a run, which will be replaced" if settings.run_exists == "replace" else "holds a run, which will be continued"


def existing(path: Path) -> Path:
    """A directory itself, or the nearest above it that exists."""
    return next(one for one in (path, *path.parents) if one.exists())


def replay(source: Source, settings: Settings) -> str:
    """The steps of which batches can be replayed."""
    found = Replay(source)
    if found.run.missing is not None:
        raise AlignHooksError(f"{source}: {rendered(found.run.missing.message)}; copy or record every rank")
    first = min(found.run.batch_steps(), default=0)
    return f"batches of steps {max(first, 0)} to {found.last}"


def load(source: Source, settings: Settings) -> str:
    """How many tensors can be loaded."""
    return f"{len(open_weights(source))} tensors"


def inject(source: Source, settings: Settings) -> str:
    """The steps of which gradients can be injected."""
    steps = Injection(source).recorded
    return f"gradients of {len(steps)} steps, {steps[0]} to {steps[-1]}"


LOOKS: dict[str, Callable[[Any, Settings], str]] = {
    "run": directory,
    "replay_batches": replay,
    "load_weights": load,
    "inject_gradients": inject,
}
"""What is looked at of a variable that names something on a disk."""
