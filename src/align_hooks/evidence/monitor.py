"""Norms of gradients in the CSV files of msprobe's monitor (PyTorch or MindSpore), a directory a rank.

Version 1 writes ``grad_reduced_A-B.csv``, rounded to six decimals; version 2 ``weight_grad_stepA-B.csv``, whose scope ``reduced`` is read.
Each norm is of a framework's parameter, after the data-parallel reduction, before unscaling and clipping; steps count from 0.
The files do not name the part of a parameter that a rank holds, so several ranks must hold copies.
A fused parameter has one norm, which counts only for the global norm.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from align_hooks.configuration.values import FRAMEWORKS
from align_hooks.errors import RecordError, shown
from align_hooks.evidence.convert import write
from align_hooks.evidence.curves import records
from align_hooks.evidence.logs import half_of_last_digit
from align_hooks.evidence.recording import Scalars, row_of
from align_hooks.process.paths import well_formed
from align_hooks.record.format.files import in_words, is_folder_in, list_folder
from align_hooks.record.format.shard import Shard
from align_hooks.record.reader import Run, open_run

Norms: TypeAlias = Mapping[int, Mapping[str, float]]
"""Step to the framework's name of a parameter to the norm of its gradient."""
FILE = re.compile(r"(?:grad_reduced_|weight_grad_step)\d+-\d+\.csv")
OF_A_RANK = re.compile(r"rank_\d+|.*-rank\d+-.*")
WRAPPED = re.compile(r"(?:\d+:)?(?:module\.)*")
"""Prefix of a parameter's name: the number of its chunk, and the model's wrappers."""
REDUCED = "reduced"
LARGEST = 1e100
"""Upper bound of a norm of fp32 numbers; its square is finite."""
SMALLEST = 1e-150
"""Least norm whose square is no denormal."""
WORTH = 0.01
"""Largest relative resolution of a norm that is kept."""


class Monitored(Struct, frozen=True):
    """The norms in one rank's files."""

    norms: Norms
    half: float
    """Half of the last printed decimal; 0 where unknown."""


def is_monitored(source: Path) -> bool:
    """Return whether a directory is of msprobe's monitor, of one rank or of several."""
    return source.is_dir() and bool(_ranks(source))


def convert_monitored(source: Path, run: Path, names: Path | None = None, side: str | None = None) -> tuple[Scalars, list[int]]:
    """Write the record of a monitor's files, and return its rows and the steps with local norms.

    ``names`` is a record of the same model by the same framework; without it ``side`` is needed, empty where nobody can say it, and only
    the global norm is written.
    """
    monitored = read_monitored(source)
    named = open_run(names) if names is not None else None
    side = named.facts.side if named is not None else side
    if side not in ("", *FRAMEWORKS):
        raise RecordError(f"{source} does not tell which framework made it; say --side torch or --side ms, or name a record with --names")
    shards = _pieces(named, monitored, source) if named is not None else {}
    kept, left_out = _kept(monitored, shards)
    squares = [square for step in kept.values() for square in step.values() if square]
    resolution = {"grad_norm": monitored.half * math.sqrt(max(map(len, monitored.norms.values())))}
    resolution["local_norms"] = max((monitored.half / math.sqrt(square) for square in squares), default=0.0)
    totals = {step: math.fsum(norm * norm for norm in norms.values()) for step, norms in sorted(monitored.norms.items())}
    rows = [row_of(step, grad_norm=math.sqrt(total), skipped=False) for step, total in totals.items()]
    scalars = Scalars(side or None, rows, resolution, left_out)
    place = well_formed(str(source.resolve()))
    origin = {"dump": place, "curves": place, "tool": "msprobe"} | ({"names": well_formed(str(named.path))} if named is not None else {})
    with_norms = {name for step in kept.values() for name in step}
    write(run, scalars, origin, [shard for shard in shards.values() if shard.name in with_norms], kept)
    return scalars, sorted(kept)


def read_monitored(source: Path) -> Monitored:
    """Read a monitor's files; raises RecordError for files without norms, and for ranks with different norms."""
    ranks = _ranks(source)
    first, *others = map(_of_a_rank, ranks)
    if differing := next((rank for rank, other in zip(ranks[1:], others, strict=True) if other.norms != first.norms), None):
        why = "each rank holds a part of the model, and the files do not say which"
        way = "record them with ALIGN_HOOKS_LOCAL_NORMS instead, which puts parts together"
        raise RecordError(f"{differing} has other norms than {ranks[0]}: {why}; {way}")
    return first


def _ranks(source: Path) -> list[Path]:
    """Return the directories of ranks: the named one, or those in it."""
    below = (one for one in list_folder(source) if OF_A_RANK.fullmatch(one.name) and is_folder_in(one, source))
    return [rank for rank in (source, *below) if any(FILE.fullmatch(one.name) for one in list_folder(rank))]


def _of_a_rank(rank: Path) -> Monitored:
    norms: dict[int, dict[str, float]] = {}
    half = math.inf
    for file in (one for one in list_folder(rank) if FILE.fullmatch(one.name)):
        for step, name, word, place in _cells(file):
            of_step = norms.setdefault(step, {})
            if name in of_step:
                way = "clear the directory before a run, and monitor one chunk"
                raise RecordError(f"{place} has {shown(name)} of step {step} twice: {way}")
            of_step[name] = float(word)
            half = min(half, half_of_last_digit(word) or math.inf)
    if not norms:
        raise RecordError(f"{rank} has no norms of reduced gradients; msprobe's monitor writes them when the optimizer makes its step")
    return Monitored(norms, 0.0 if half == math.inf else half)


def _cells(file: Path) -> Iterator[tuple[int, str, str, str]]:
    """Yield step, framework's name of a parameter, printed norm, and line."""
    try:
        for number, row in enumerate(records(file, file.parent), 2):
            place, name = f"{file}:{number}", str(row.get("module_name") or row.get("name") or "")
            if row.get("scope", REDUCED) != REDUCED:
                continue
            if not row.get("norm"):
                raise RecordError(f"{file} has no column of norms; have msprobe's monitor write them: ops: ['norm']")
            if row.get("vpp_stage") not in ("0", "", None):
                way = "of which no rank has the whole model; monitor a run on one rank"
                raise RecordError(f"{place} is of a virtual pipeline stage, {way}")
            step, norm = str(row["step"]), str(row["norm"])
            if not re.fullmatch(r"[0-9]{1,9}", step):
                raise ValueError(f"{step[:40]} is no step")
            if math.isfinite(float(norm)) and not 0 <= float(norm) < LARGEST:
                raise ValueError(f"{norm[:40]} is no norm of a gradient")
            yield int(step), WRAPPED.sub("", name, count=1), norm, place
    except (ValueError, KeyError) as error:
        raise RecordError(f"{file} cannot be read: {shown(in_words(error))}; give a directory as msprobe's monitor wrote it") from None


def _pieces(named: Run, monitored: Monitored, source: Path) -> Mapping[str, Shard]:
    """Return the framework's name of each parameter that is one canonical tensor, to its shard; raises RecordError for another model."""
    if named.world_size != 1:
        raise RecordError(f"{named.path} is of {named.world_size} ranks; name a record of the same model on one with --names")
    by_native: dict[str, list[Shard]] = defaultdict(list)
    for shard in named.shards(0):
        by_native[shard.native].append(shard)
    trained = {native for native, pieces in by_native.items() if any(piece.trainable for piece in pieces)}
    for step, norms in monitored.norms.items():
        if unknown := next((name for name in norms if name not in by_native), None):
            raise RecordError(f"{source} has {shown(unknown)}, which the model of {named.path} has not; name a record of the same model")
        if missing := sorted(trained - norms.keys()):
            own = f"which the model of {named.path} trains; name its own record"
            raise RecordError(f"{source} has no {shown(missing[0])} at step {step}, {own}")
    return {native: pieces[0] for native, pieces in by_native.items() if len(pieces) == 1 and native in trained}


def _kept(monitored: Monitored, shards: Mapping[str, Shard]) -> tuple[dict[int, dict[str, float]], list[str]]:
    """Return squared sums by step and canonical name, without norms of too few digits; and notes on the parameters left out."""
    least = max(monitored.half / WORTH, SMALLEST)
    coarse = {name for norms in monitored.norms.values() for name in shards if 0 < norms[name] < least}
    fine = {native: shard.name for native, shard in shards.items() if native not in coarse}
    steps = sorted(monitored.norms.items()) if fine else ()
    kept = {step: {name: norms[native] * norms[native] for native, name in fine.items()} for step, norms in steps}
    names = {name for norms in monitored.norms.values() for name in norms}
    fused: Sequence[str] = sorted(names - shards.keys()) if shards else []
    notes = ["gradients were not unscaled: a run with a loss scale has norms that are larger by it"]
    if not shards:
        notes.append("the global norm alone is kept: with --names, a record of the same model, so is each parameter's")
    if fused:
        several = f"{len(fused)} fused parameters have one norm of several tensors, {shown(fused[0])} the first"
        notes.append(f"{several}: they are in the global norm")
    if coarse:
        notes.append(f"{len(coarse)} norms are too small for the decimals that are printed, {shown(min(coarse))} the first: left out")
    return kept, notes
