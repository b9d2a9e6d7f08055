"""A log as a record: rows of scalars and nothing else, with where they came from and how fine they are."""

from __future__ import annotations

import hashlib
from pathlib import Path

from align_hooks.configuration.values import FRAMEWORKS
from align_hooks.errors import RecordError, RefusedRun
from align_hooks.evidence.logs import Log, read_log
from align_hooks.launch import Launch
from align_hooks.record.writer import Writer, holds_a_run
from align_hooks.settings import Settings

LONGEST = 2**30
"""Bytes of a log, and no more."""


def convert(log: Path, run: Path) -> Log:
    """Write the record of a log; returns what was read.

    :raises RecordError: the log cannot be read. :raises RefusedRun: the directory holds a run.
    """
    try:
        if log.stat().st_size > LONGEST:
            raise RecordError(
                f"{log} is larger than {LONGEST >> 30} GiB; cut it to the lines of its steps: grep -a 'iteration \\|step:' {log}"
            )
        content = log.read_bytes()
    except OSError as error:
        raise RecordError(f"{log} cannot be read: {error.strerror or error}; name a log that Megatron-LM or MindFormers printed") from None
    found = read_log(content.decode("utf-8", "replace"), log.name)
    if run.exists() and holds_a_run(run):
        raise RefusedRun(f"{run} already holds a run; choose another directory")
    writer = Writer(run.resolve(), Launch(), found.side, Settings())
    writer.begin()
    source = {"log": str(log.resolve()), "sha256": hashlib.sha256(content).hexdigest()}
    facts = {"framework": FRAMEWORKS[found.side], "converted": source, "resolution": dict(found.resolution), "notes": found.notes}
    writer.describe(place={}, shards=(), facts=facts, steps=range(found.rows[0]["step"], found.rows[-1]["step"] + 1))
    for row in found.rows:
        writer.scalars(row)
    writer.finish(hooks={}, ended="finished")
    return found
