"""``align_hooks.compare``, and its result: printed as on a console, drawn in a notebook, as a DataFrame, as a page."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from align_hooks._version import __version__
from align_hooks.checklist.sides import check_runs
from align_hooks.comparison import verdict
from align_hooks.comparison.finding import Finding, Value
from align_hooks.comparison.pipeline import compare as compare_runs
from align_hooks.comparison.stage_result import StageResult
from align_hooks.comparison.stages.registry import LADDER
from align_hooks.errors import AlignHooksError
from align_hooks.evidence.opened import open_evidence
from align_hooks.extras import needing
from align_hooks.messages import rendered
from align_hooks.process.executors import executor_of
from align_hooks.record.format.layout import JsonObject
from align_hooks.record.read.dataframes import imported
from align_hooks.record.reader import Run
from align_hooks.record.write import output

if TYPE_CHECKING:
    import pandas as pd

Source: TypeAlias = "str | os.PathLike[str] | Run"
"""A run: a directory, a file that ``align-hooks distill`` wrote, an address of object storage, what ``open_run`` returned, or a log, curves
or a table that another tool kept of a run."""


class Comparison(verdict.ComparisonResult, frozen=True, kw_only=True):
    """What :func:`align_hooks.compare` returns.

    ``verdict`` is an :class:`align_hooks.Verdict`, and ``first`` the stage that decided it, None when aligned. ``stages`` are all
    stages in the order of a training step, each with its ``status``, ``summary`` and ``findings``, the worst first. ``blame`` has
    the place and the likely causes of the fault, None unless diverged; ``next`` is the next thing to do; ``settings`` are the
    model's settings that differ; ``acceptance`` has the lines of the guide's standard; ``curves`` has both sides' numbers of every
    step. Texts are messages: ``str(comparison)`` and :meth:`to_dict` have them in English.
    """

    reference: Run
    candidate: Run

    @property
    def exit_code(self) -> int:
        """The exit code of ``align-hooks compare``: 0 aligned, 1 diverged, 3 not comparable, 4 inconclusive."""
        return self.verdict.exit_code

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of every stage, in the order of the stages, the worst of each first; agreeing ones too."""
        return tuple(finding for result in self.stages for finding in result.findings)

    def stage(self, name: str) -> StageResult:
        """Return the result of a stage by name or id, ``token losses`` or ``token_losses``; raises AlignHooksError without such a stage."""
        found = next((result for result in self.stages if name in (result.stage.name, result.stage.id)), None)
        if found is None:
            known = any(name in (stage.name, stage.id) for stage in LADDER)
            why = "was not come to" if known else "is no stage"
            raise AlignHooksError(f"{name!r} {why}; there are {', '.join(result.stage.name for result in self.stages)}")
        return found

    def __repr__(self) -> str:
        first = f" at {self.first.stage.name!r}" if self.first is not None else ""
        return f"Comparison({self.verdict.text}{first}, {str(self.reference.path)!r}, {str(self.candidate.path)!r})"

    def __str__(self) -> str:
        """Return the report as the console prints it, without colour."""
        from align_hooks.report.printed import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        """Return the report with colour, for a notebook."""
        from align_hooks.report.printed import as_html

        return as_html(self)

    def to_dict(self) -> JsonObject:
        """Return what ``align-hooks compare --json`` writes (docs/json.md), as dicts, lists, strings and numbers."""
        from align_hooks.report.json import as_json

        runs = {"reference": str(self.reference.path), "candidate": str(self.candidate.path)}
        return dict(as_json(self, align_hooks=__version__, **runs))

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas DataFrame with a row for each finding, in the order of the stages.

        Columns: ``stage``, ``status``, ``quantity``, ``name``, ``step``, ``rank``, both sides' values (numbers, or words),
        ``error``, ``limit``, ``times_its_limit`` (above 1 is a violation), the ``unit`` of error and limit, and ``what`` was
        compared, in words. Needs pandas (the extra ``pandas``).
        """
        pairs = [(result, finding) for result in self.stages for finding in result.findings]
        columns = {name: [read(*pair) for pair in pairs] for name, (_, read) in COLUMNS.items()}
        frame: pd.DataFrame = imported().DataFrame(columns).astype({name: kind for name, (kind, _) in COLUMNS.items()})
        return frame

    def write_html(self, path: str | os.PathLike[str]) -> None:
        """Write the page of ``align-hooks compare --html``; raises AlignHooksError without the extra ``html``, OSError as files do."""
        with needing("html", "a page"):
            from align_hooks.report.comparison_page import comparison_page
        output.write(Path(path), comparison_page(self, __version__, check_runs(self.reference, self.candidate, self.statistics)))


def _plain(value: Value) -> str | bool | int | float | None:
    """Return a number or a text unchanged, a message in words."""
    return value if value is None or isinstance(value, str | bool | int | float) else rendered(value)


COLUMNS: dict[str, tuple[str, Callable[[StageResult, Finding], object]]] = {
    "stage": ("object", lambda result, finding: result.stage.id),
    "status": ("object", lambda result, finding: result.status.value),
    "quantity": ("object", lambda result, finding: str(finding.quantity or "")),
    "name": ("object", lambda result, finding: finding.name),
    "step": ("Int64", lambda result, finding: finding.step),  # has a missing value: a finding of all steps together has no step
    "rank": ("Int64", lambda result, finding: finding.rank),
    "reference": ("object", lambda result, finding: _plain(finding.reference)),
    "candidate": ("object", lambda result, finding: _plain(finding.candidate)),
    "error": ("float64", lambda result, finding: finding.error),
    "limit": ("float64", lambda result, finding: finding.limit),
    "times_its_limit": ("float64", lambda result, finding: None if None in (finding.error, finding.limit) else finding.limit_ratio),
    "unit": ("object", lambda result, finding: finding.unit.value),
    "what": ("object", lambda result, finding: rendered(finding.what)),
}
"""The columns of a frame: type, and value of a finding."""


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
    first, second, *repeats = map(_opened, (reference, candidate, *several(noise)))
    patterns = (allow_missing,) if isinstance(allow_missing, str) else tuple(allow_missing)
    with executor_of(executor) if isinstance(executor, str) else nullcontext(executor) as workers:
        result = compare_runs(first, second, noise=repeats, allow_missing=patterns, executor=workers)
    known = {name: getattr(result, name) for name in verdict.ComparisonResult.__struct_fields__}
    return Comparison(**known, reference=first, candidate=second)


def several(runs: Source | Sequence[Source]) -> Sequence[Source]:
    """Return the runs of an argument that takes one run or several."""
    return (runs,) if isinstance(runs, str | os.PathLike | Run) else runs


def _opened(run: Source) -> Run:
    return run if isinstance(run, Run) else open_evidence(os.fspath(run))
