"""A log, or another tool's curves, as a record of scalars and logged local norms, with their source and resolution."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from align_hooks.errors import RecordError
from align_hooks.evidence.curves.series import scalars_of
from align_hooks.evidence.curves.table import is_table, read_tables
from align_hooks.evidence.curves.tensorboard import is_tensorboard, read_events
from align_hooks.evidence.local_norms import Norms, local_norms
from align_hooks.evidence.logs import COLOURS, TrainingLog, read_log
from align_hooks.evidence.recording import Scalars, recording
from align_hooks.process.paths import well_formed
from align_hooks.record.format.shard import Shard
from align_hooks.record.reader import open_run
from align_hooks.settings import Settings

LONGEST = 2**30
"""Most bytes of a log."""


def convert(log: Path, run: Path, names: Path | None = None) -> tuple[TrainingLog, list[int]]:
    """Write the record of a log, and return its content and the steps with local norms.

    :param names: a record of the same model by MindFormers, for the names of logged local norms.
    :raises RecordError: the log cannot be read. :raises RefusedRun: the directory holds a run.
    """
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
