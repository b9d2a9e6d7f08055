"""A log, or another tool's curves, as a record of scalars and logged local norms, with their source and resolution.

MindFormers logs local norms with ``runner_wrapper.local_norm: True``: of each parameter one squared sum, with no name. They have the order
of the optimizer's groups, and are of gradients before data-parallel reduction and clipping (``LocalNorm`` in its ``wrapper.py``;
``_get_loss_output`` logs them just above the step's own line). A record of the same model gives the names; the logged numbers of elements
show whether the model is the same.
"""

from __future__ import annotations

import bisect
import hashlib
import math
import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from align_hooks.errors import RecordError
from align_hooks.evidence.curves import is_table, is_tensorboard, read_events, read_tables, scalars_of
from align_hooks.evidence.logs import COLOURS, COUNT, DIGITS, TrainingLog, half_of_last_digit, read_log
from align_hooks.evidence.recording import Scalars, recording
from align_hooks.process.paths import well_formed
from align_hooks.record.format.shard import Shard
from align_hooks.record.reader import Run, open_run
from align_hooks.settings import Settings

LONGEST = 2**30
"""Most bytes of a log."""
BLOCK = re.compile(r"\bnorm_size: [(\[](?P<sizes>[^()\[\]\n]*)[)\]]\s*\nlocal_norm:\s*\n\[(?P<sums>[^\[\]{|]*)\]")
NUMBER = re.compile(rf"(?:{DIGITS}|nan|inf)\Z")
Norms: TypeAlias = Mapping[int, Mapping[str, float]]
SEVERAL, ALONE = "'use_parallel': True", "'use_parallel': False"
"""Texts of the configuration that MindFormers prints at its start, but not into its own log file."""


def convert(log: Path, run: Path, names: Path | None = None) -> tuple[TrainingLog, list[int]]:
    """Write the record of a log, with local norms by a record ``names`` by MindFormers; return the log and the steps with local norms."""
    content = read(log)
    text = re.sub(r"\r+\n?", "\n", content.decode("utf-8", "replace"))
    parsed = read_log(text, log.name)
    squared: Norms = {}
    shards: Sequence[Shard] = ()
    resolution = dict(parsed.resolution)
    source = {"log": well_formed(str(log.resolve())), "sha256": hashlib.sha256(content).hexdigest()}
    if names is not None:
        named = open_run(names)
        squared, resolution["local_norms"], notes = local_norms(COLOURS.sub("", text), parsed.lines, named, log.name)
        parsed.notes.extend(notes)
        source["names"], shards = well_formed(str(named.path)), named.shards(0)
    write(run, replace(parsed, resolution=resolution), source, shards, squared)
    return parsed, sorted(squared)


def convert_curves(source: Path, run: Path, side: str | None = None) -> Scalars:
    """Write the record of curves that TensorBoard, W&B or a table kept; ``side`` is ``torch`` or ``ms`` where the curves do not tell."""
    scalars = scalars_of(read_events(source) if is_tensorboard(source) else read_tables(source), side)
    write(run, scalars, {"curves": well_formed(str(source.resolve()))})
    return scalars


def is_curves(source: Path) -> bool:
    """Return whether :func:`convert_curves` reads a path."""
    return source.exists() and (is_tensorboard(source) or is_table(source))


def write(run: Path, scalars: Scalars, source: Mapping[str, str], shards: Sequence[Shard] = (), squared: Norms | None = None) -> None:
    """Write rows of scalars, and the ``squared`` sums of the gradients of ``shards`` by step, as a record of one rank."""
    steps = [int(row["step"] or 0) for row in scalars.rows]
    facts = {"converted": source, "planned_steps": len(steps), "resolution": scalars.resolution, "notes": scalars.notes}
    with recording(run, scalars.side, Settings(), facts, range(steps[0], steps[-1] + 1), shards) as writer:
        for step, row in zip(steps, scalars.rows, strict=True):
            writer.scalars(row)
            if squared and step in squared:
                writer.local_norms(step, "reduced", squared[step])  # on one rank there is nothing to reduce


def read(log: Path) -> bytes:
    """Return the bytes of a log: a file, or a pipe such as a shell's ``<(zcat …)``; raises RecordError for a device, or a named pipe."""
    advice = "name a log that Megatron-LM or MindFormers printed"
    try:
        # a named pipe may never get a writer, and reading it would wait for ever
        if stat.S_ISFIFO(log.stat().st_mode) and os.path.lexists(os.path.realpath(log)):
            raise RecordError(f"{log} is a pipe with a name; {advice}")
        with log.open("rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode) and not stat.S_ISFIFO(facts.st_mode):
                raise RecordError(f"{log} is a device and no log; {advice}")
            content = file.read(LONGEST + 1) if facts.st_size <= LONGEST else b""
    except OSError as error:
        raise RecordError(f"{log} cannot be read: {error.strerror or error}; {advice}") from None
    if max(len(content), facts.st_size) > LONGEST:
        lines = f"grep -a 'iteration \\|step:\\|start of training' {log}"
        raise RecordError(f"{log} is larger than {LONGEST >> 30} GiB; cut it to the lines of its steps: {lines}")
    return content


def local_norms(text: str, lines: Sequence[tuple[int, int]], names: Run, log: str) -> tuple[Norms, float, list[str]]:
    """Return the local norms of a log (squared sums by step and canonical name), a norm's relative resolution, and notes.

    ``lines`` are the number and the step of every line of a step, ascending; ``names`` is a record of the same model by MindFormers.
    """
    if SEVERAL in text:
        why = "whose local norms are of gradients not yet reduced; give the log of a run on one"
        raise RecordError(f"{log} is of one of several ranks, {why}")
    order, coarsest, line, before = ordered(names), 0.0, 1, 0
    by_step: dict[int, dict[str, float]] = {}
    for block in BLOCK.finditer(text):
        line, before = line + text.count("\n", before, block.start()), block.start()
        after = bisect.bisect(lines, (line, math.inf))
        if after == len(lines):  # the log ends before the step's own line
            break
        squared, step = _named(block, order, f"{log}:{line}", names), lines[after][1]
        if repr(by_step.setdefault(step, squared)) != repr(squared):
            others = f"other local norms of iteration {step + 1} than stand above"
            raise RecordError(f"{log}:{line} has {others}: give the log of one run, and one rank")
        coarsest = max([coarsest, *map(coarse, block["sums"].split())])
    if not by_step:
        broken = next((line for line in text.splitlines() if "norm_size:" in line), "")
        why = f"its line {broken.strip()[:80]!r} cannot be read" if broken else "MindFormers logs them with runner_wrapper.local_norm: True"
        raise RecordError(f"{log} has no local norms; {why}")
    unsaid = "nothing in the log says that it is of a run on one rank: of several, MindFormers logs norms of gradients not yet reduced"
    return by_step, coarsest, [] if ALONE in text else [unsaid]


def _named(block: re.Match[str], order: Mapping[str, int], where: str, names: Run) -> dict[str, float]:
    """Return one step's squared sums by canonical name."""
    sizes = [int(size) for size in re.findall(COUNT, block["sizes"])]
    if len(sizes) != len(order):
        counts = f"{len(sizes)} parameters, the model of {names.path} has {len(order)}"
        raise RecordError(f"{where} has local norms of {counts}: name another record")
    for (name, elements), size in zip(order.items(), sizes, strict=True):
        if elements != size:
            raise RecordError(f"{where} has {size} elements where {name} of {names.path} has {elements}: name a record of the same model")
    words = block["sums"].split()
    if wrong := next((word for word in words if not NUMBER.match(word)), None):
        why = "numpy prints no more than a thousand numbers" if wrong == "..." else "which is no sum of squares"
        raise RecordError(f"{where} holds {wrong[:40]!r} among its local norms, {why}; nothing can be made of them")
    if len(words) != len(order):
        raise RecordError(f"{where} has {len(words)} local norms of {len(order)} parameters; give a log that is whole")
    return dict(zip(order, map(float, words), strict=True))


def ordered(names: Run) -> dict[str, int]:
    """Return canonical name to number of elements of every trained tensor, in the optimizer's order; raises RecordError where unknown."""
    if names.facts.side != "ms" or names.world_size != 1:
        raise RecordError(f"{names.path} is no record by MindFormers on one rank, whose order its local norms have; name one with --names")
    shards = {shard.name: shard for shard in names.shards(0) if shard.trainable}
    listed = list(names.facts.optimizer.by_parameter()) if names.facts.optimizer else []
    native: dict[str, str] = {}
    for name, shard in shards.items():
        if (first := native.setdefault(shard.native, name)) != name:
            both = f"{shard.native} holds {first} and {name} as one, and the log has one number of both"
            raise RecordError(f"{names.path}: {both}; it cannot tell")
    return {name: shards[name].elements for name in listed if name in shards}


def coarse(word: str) -> float:
    """Return the relative resolution of a norm from a printed squared sum; 0 where unknown."""
    half, value = half_of_last_digit(word), abs(float(word))
    return half / 2 / value if half and value else 0.0
