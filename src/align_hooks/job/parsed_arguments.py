"""The end of a process below ``align-hooks run --arguments-only``, once the framework has parsed its arguments."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from msgspec import Struct
from msgspec.structs import asdict

from align_hooks.errors import RecordError
from align_hooks.process.ranks import SCHEDULER
from align_hooks.process.script import report
from align_hooks.process.streams import flush
from align_hooks.record.write import atomic

if TYPE_CHECKING:
    from align_hooks.session import Session

VARIABLE = "_ALIGN_HOOKS_ARGUMENTS"
"""The folder for parsed arguments; set only below ``run --arguments-only``."""


class Parsed(Struct, frozen=True):
    """The arguments of a process, as ``arguments.json`` holds them."""

    parsed: int
    """When they were parsed, in nanoseconds since 1970."""
    side: str
    versions: Mapping[str, str]
    command: Sequence[str]
    rank: int
    world_size: int
    trains: bool
    environment: object
    arguments: Mapping[str, str]


def asked() -> bool:
    """Return whether this process is to end once its arguments are parsed."""
    return VARIABLE in os.environ


def leave(session: Session, arguments: Mapping[str, str], versions: Mapping[str, str], *, trains: bool) -> NoReturn:
    """Write the parsed arguments, and end the process."""
    code, pid, launch, environment = 0, os.getpid(), session.launch, session.facts["environment"]
    parsed = Parsed(time.time_ns(), session.side, versions, sys.argv, launch.rank, launch.world_size, trains, environment, arguments)
    try:
        if os.environ.get("MS_ROLE") != SCHEDULER:  # which parses the same arguments
            atomic.write_json(Path(os.environ[VARIABLE], f"{pid}.json"), asdict(parsed))
    except OSError as error:
        code = RecordError.exit_code
        report(RecordError(f"pid {pid} cannot write what it parsed: {error.strerror}"))
    finally:
        for child in sys.modules["multiprocessing"].active_children() if "multiprocessing" in sys.modules else ():
            child.terminate()
        flush(sys.stdout)
        flush(sys.stderr)
        os._exit(code)  # a script could catch an exception, and train
