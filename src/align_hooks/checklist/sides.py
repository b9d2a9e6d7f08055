"""``align-hooks check``: two sides, each a record or a file, compared by the guide's CheckList."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from align_hooks.checklist.canonical_values import Hidden
from align_hooks.checklist.fix import Fixed, fixed
from align_hooks.checklist.lookup import MODEL, known
from align_hooks.checklist.result import NEWEST, Checklist, as_read
from align_hooks.checklist.result import check as check_configurations
from align_hooks.checklist.tables import ROW
from align_hooks.configuration.recorded import recorded
from align_hooks.configuration.source import read
from align_hooks.configuration.values import Configuration, ConfigurationError, Setting
from align_hooks.errors import shown
from align_hooks.messages import Side, message
from align_hooks.messages.progress import Progress, silent
from align_hooks.process.archive import is_archive
from align_hooks.process.storage import is_address
from align_hooks.record.batch_statistics import BatchStatistics, Decode, of_run
from align_hooks.record.format.schema import Table

if TYPE_CHECKING:  # a check of two files opens no record
    from align_hooks.record.reader import Run

SPECIAL = ("bos_token_id", "eos_token_id", "pad_token_id")
CORE = "megatron-core"
"""The package of Megatron-LM."""


def check(
    reference: str,
    candidate: str,
    environment: Mapping[str, str],
    *,
    decode: Decode | None = None,
    mindformers: str | None = None,
    megatron: str | None = None,
    progress: Progress = silent,
) -> Checklist:
    """Read and check both sides, and the batches of records too.

    ``mindformers`` and ``megatron`` are the versions that read a YAML and a script: None is the installed one, of MindFormers
    the newest of the tables where none is installed.

    :raises AlignHooksError: a side cannot be read.
    """
    if mindformers is not None and not re.fullmatch(r"1\.[3-9](\.\d+\w*)?", mindformers):
        raise ConfigurationError(f"--mindformers {shown(mindformers)} is no version that the tables know; give one of 1.3 to {NEWEST}")
    if megatron is not None and not re.fullmatch(r"0\.\d+(\.\d+\w*)?", megatron):
        raise ConfigurationError(f"--megatron {shown(megatron)} is no version of Megatron-LM's core; give one such as 0.13.0")
    (ours, our_run), (theirs, their_run) = (open_side(side, environment, progress) for side in (reference, candidate))
    special = special_ids(named_ids(ours) | named_ids(theirs))
    ids = hidden_ids(as_read(side, mindformers or installed()) for side in (ours, theirs))
    one, other = (None if run is None else of_run(run, special, decode, progress, ids) for run in (our_run, their_run))
    rates = rates_of(our_run), rates_of(their_run)
    return check_configurations(
        ours, theirs, (one, other), mindformers or installed(), megatron or installed(CORE, ""), rates, models_of(our_run, their_run)
    )


def fix(
    reference: str,
    candidate: str,
    environment: Mapping[str, str],
    checklist: Checklist,
    mindformers: str | None,
    megatron: str | None = None,
) -> tuple[Fixed, Checklist]:
    """Return the candidate's YAML with the edits of its check, and the same check of that YAML; no file is written.

    :raises ConfigurationError: the candidate is no YAML of MindFormers, or cannot be mended by its settings only.
    """
    mended, (ours, _) = fixed(candidate, checklist), open_side(reference, environment, silent)
    versions = mindformers or installed(), megatron or installed(CORE, "")
    return mended, check_configurations(ours, mended.configuration, (None, None), *versions)


def installed(package: str = "mindformers", otherwise: str = NEWEST) -> str:
    """Return the version of a package on this machine; ``otherwise`` where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return otherwise


def check_runs(reference: Run, candidate: Run, statistics: Mapping[Side, BatchStatistics]) -> Checklist | None:
    """Check two records and their batches for the report of a comparison; None where one holds no configuration."""
    runs = (reference, candidate)
    if not all(run.facts.arguments is not None for run in runs):
        return None
    ours, theirs = (recorded(run.manifest, str(run.path)) for run in runs)
    # a comparison's statistics count no ids: batches are read anew where a model leaves some out
    ids = hidden_ids(as_read(side, NEWEST) for side in (ours, theirs))
    seen = [statistics[side] if side in statistics and not ids else of_run(run, {}, ids=ids) for side, run in zip(Side, runs, strict=True)]
    return check_configurations(ours, theirs, (seen[0], seen[1]), rates=(rates_of(reference), rates_of(candidate)), models=models_of(*runs))


def models_of(reference: Run | None, candidate: Run | None) -> tuple[Table, Table]:
    """Return the models of two records; empty where a side is no record."""
    return ({}, {}) if reference is None or candidate is None else (reference.facts.model, candidate.facts.model)


def rates_of(run: Run | None) -> dict[int, float] | None:
    """Return the learning rate on record of each step, the highest where parameter groups differ; None without a record."""
    if run is None:
        return None
    rates = {row.step: row.learning_rate for row in run.rows if row.learning_rate}
    return {step: max(rate) if isinstance(rate, list) else rate for step, rate in rates.items()}


def open_side(side: str, environment: Mapping[str, str], progress: Progress) -> tuple[Configuration, Run | None]:
    """Return the configuration of one side, and its run where it is a record."""
    progress(message("progress.reading", path=side))
    if not may_be_record(side):
        return read(side, environment), None
    from align_hooks.record.reader import open_run

    run = open_run(side)
    return recorded(run.manifest, side), run


def may_be_record(side: str) -> bool:
    """Return whether a side may be a record, in a directory, in one file or in object storage."""
    try:
        return is_address(side) or (bool(side.strip()) and (Path(side).is_dir() or is_archive(Path(side))))
    except (OSError, ValueError):
        return False


def named_ids(configuration: Configuration) -> dict[str, Setting]:
    """Return the special ids that a configuration names."""
    return {name.removeprefix(MODEL): known(configuration, name) for name in configuration.values if name.endswith("_token_id")}


def hidden_ids(sides: Iterable[Configuration]) -> set[int]:
    """Return the token ids that the models of some sides leave out."""
    canonicals = [ROW["pad_token_id"].read(side).canonical for side in sides]
    return {canonical.id for canonical in canonicals if isinstance(canonical, Hidden) and canonical.id is not None}


def special_ids(values: Mapping[str, Setting]) -> dict[str, int | None]:
    """Return the special ids that a configuration names, by the names of the guide; None where an id is not set, or no id."""
    ids = {name: values.get(name) for name in SPECIAL}
    return {name: id if isinstance(id, int) and not isinstance(id, bool) and id >= 0 else None for name, id in ids.items()}
