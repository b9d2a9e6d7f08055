"""``align-hooks check``: two sides, each a record or a file, held against the guide's CheckList."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from align_hooks.checklist.batches import Look, look, special_ids
from align_hooks.checklist.result import NEWEST, Checklist
from align_hooks.checklist.result import check as check_configurations
from align_hooks.checklist.row import MODEL
from align_hooks.configuration.recorded import recorded
from align_hooks.configuration.source import read
from align_hooks.configuration.values import Configuration, ConfigurationError
from align_hooks.errors import shown
from align_hooks.messages import message
from align_hooks.messages.progress import Progress, silent
from align_hooks.record.reader import Run, open_run


def check(
    reference: str,
    candidate: str,
    environment: Mapping[str, str],
    *,
    decode: Callable[[Sequence[int]], str] | None = None,
    mindformers: str | None = None,
    progress: Progress = silent,
) -> Checklist:
    """Read both sides and check them; of records their batches too. ``mindformers`` is the version that is to read a YAML, the one
    that is installed where it is None, else the newest that the tables know.

    :raises AlignHooksError: a side cannot be read.
    """
    if mindformers is not None and not re.fullmatch(r"1\.[3-9](\.\d+\w*)?", mindformers):
        raise ConfigurationError(f"--mindformers {shown(mindformers)} is no version that the tables know; give one of 1.3 to {NEWEST}")
    opened = [open_side(given, environment, progress) for given in (reference, candidate)]
    one, other = (configuration for configuration, _ in opened)
    special = special_ids(named_ids(one) | named_ids(other))
    looks = [None if run is None else look_at(run, special, decode, progress) for _, run in opened]
    return check_configurations(one, other, (looks[0], looks[1]), mindformers or installed())


def installed() -> str:
    """The version of MindFormers on this machine."""
    try:
        return version("mindformers")
    except PackageNotFoundError:
        return NEWEST


def check_runs(reference: Run, candidate: Run) -> Checklist | None:
    """Two records without their batches, for the report of a comparison; None where one holds no configuration."""
    if not all(run.facts.arguments is not None for run in (reference, candidate)):
        return None
    one, other = (recorded(run.manifest, str(run.path)) for run in (reference, candidate))
    return check_configurations(one, other)


def open_side(given: str, environment: Mapping[str, str], progress: Progress) -> tuple[Configuration, Run | None]:
    """The configuration of one side, and its run where it is a record."""
    progress(message("progress.reading", path=given))
    if not is_directory(given):
        return read(given, environment), None
    run = open_run(given)
    return recorded(run.manifest, given), run


def is_directory(given: str) -> bool:
    """Whether a side may be a record."""
    try:
        return bool(given.strip()) and Path(given).is_dir()
    except (OSError, ValueError):
        return False


def named_ids(configuration: Configuration) -> dict[str, Any]:
    """Special ids that a configuration names."""
    return {name.removeprefix(MODEL): value.value for name, value in configuration.values.items() if name.endswith("_token_id")}


def look_at(run: Run, special: Mapping[str, int | None], decode: Callable[[Sequence[int]], str] | None, progress: Progress) -> Look | None:
    """A look at every batch that a run recorded; None where it recorded none."""
    steps = run.batch_steps()
    if not steps:
        return None
    vocabulary = run.facts.model.get("vocab_size") or run.facts.padded_vocabulary

    def batches() -> Iterator[tuple[int, Mapping[str, Any]]]:
        for index, step in enumerate(steps):
            progress(message("progress.batch", step=step), index, len(steps))
            yield step, run.batch(step).arrays()

    return look(batches(), vocabulary if isinstance(vocabulary, int) else None, special, decode)
