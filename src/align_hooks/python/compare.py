"""``align_hooks.compare``: two runs by their paths."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import fields
from typing import TypeAlias

from align_hooks.comparison import verdict
from align_hooks.comparison.pipeline import compare as compare_runs
from align_hooks.process.executors import executor_of
from align_hooks.python.comparison import Comparison
from align_hooks.record.reader import Run, open_run

Source: TypeAlias = "str | os.PathLike[str] | Run"
"""A run: a directory, a file that ``align-hooks distill`` wrote, an address of object storage, or what ``open_run`` returned."""


def compare(
    reference: Source,
    candidate: Source,
    *,
    noise: Source | Sequence[Source] = (),
    allow_missing: str | Sequence[str] = (),
    executor: Executor | str | None = None,
) -> Comparison:
    """Compare two recorded runs stage by stage, as ``align-hooks compare`` does; ``reference`` is the trusted run.

    ``noise`` are repeats of the reference, on which limits are measured. ``allow_missing`` are patterns of canonical names, with
    ``*`` and ``?``, that one side may lack. ``executor`` reads large records: any ``concurrent.futures.Executor``, or a text as
    ``--executor`` takes it (``"processes:8"``); None reads in this process.

    Raises RecordError where a run cannot be read. Two runs that cannot be compared have a verdict, and raise no error.
    """
    runs = opened(reference), opened(candidate)
    repeats = [opened(run) for run in ((noise,) if isinstance(noise, str | os.PathLike | Run) else noise)]
    patterns = (allow_missing,) if isinstance(allow_missing, str) else tuple(allow_missing)
    with executor_of(executor) if isinstance(executor, str) else nullcontext(executor) as workers:
        result = compare_runs(*runs, noise=repeats, allow_missing=patterns, executor=workers)
    known = {field.name: getattr(result, field.name) for field in fields(verdict.ComparisonResult)}
    return Comparison(**known, reference=runs[0], candidate=runs[1])


def opened(run: Source) -> Run:
    """Return the run that a path names, or the run itself."""
    return run if isinstance(run, Run) else open_run(os.fspath(run))
