"""One training of a proof: its processes started and ended, and what their witnesses wrote."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import IO

from msgspec import Struct

from align_hooks.job.child import NOT_EXECUTABLE, NOT_FOUND, SIGNALLED, environment, wait
from align_hooks.job.run import account
from align_hooks.job.witness import Witnessed, read
from align_hooks.process.command import exported
from align_hooks.process.descendants import POLL, descendants, end
from align_hooks.process.limit import VARIABLE
from align_hooks.process.status import REFUSED, Process, attached_processes
from align_hooks.proof.ways import Way, own
from align_hooks.settings import Settings

GRACE = 300.0
"""Seconds in which processes that a launcher leaves running may come to train."""
LAST = 15
"""Lines of a failed training's output that are kept."""
ERROR = re.compile(r"(\[rank\d+\]:\s*)?([\w.]*(Error|Exception|Interrupt|Exit)\b|align_hooks\.errors\.|\S+: error:)")
"""Beginning of a line that states an error."""


class Failure(Enum):
    """Why a training is no part of a proof."""

    REFUSED = "refused"
    """By us, before the first step."""
    TOO_LONG = "too long"
    NOT_STARTED = "not started"
    FAILED = "failed"
    KILLED = "killed"
    UNTRAINED = "untrained"
    MISSING_RANKS = "missing ranks"
    SHORT = "short"


ENDED = (Failure.FAILED, Failure.KILLED, Failure.SHORT)
"""Failures of a training that should have gone on."""


class Trained(Struct, frozen=True):
    """A training that has ended."""

    way: Way
    asked: int
    """Steps that it was to make."""
    code: int | None
    """Exit code of the command; None where it did not end in time."""
    seconds: float
    run: Path
    witnessed: Sequence[Witnessed]
    problems: Sequence[str]
    """What hooks asked for and did not get, a sentence each."""
    last_lines: Sequence[str] = ()
    """Lines of the output of a command that failed, the last of them the last error, or the last at all."""
    refusals: Sequence[str] = ()
    """What we refused before the first step, a line each."""

    @property
    def steps(self) -> int:
        """Steps that every rank made."""
        return min((len(seen.steps) for seen in self.witnessed), default=0)

    @property
    def signal(self) -> int | None:
        """The signal that ended the command; None where none did."""
        return self.code - SIGNALLED if self.code is not None and self.code > SIGNALLED else None

    @property
    def missing_ranks(self) -> list[int]:
        """Ranks of which no witness wrote here."""
        sizes = max((seen.world_size for seen in self.witnessed), default=0)
        return sorted(set(range(sizes)) - {seen.rank for seen in self.witnessed})

    @property
    def failure(self) -> Failure | None:
        """Why the training is no part of a proof; None where it is."""
        if self.refusals:
            return Failure.REFUSED
        if self.code is None:
            return Failure.TOO_LONG
        if self.code in (NOT_FOUND, NOT_EXECUTABLE) and not self.witnessed:
            return Failure.NOT_STARTED
        if self.code:
            return Failure.FAILED if self.signal is None else Failure.KILLED
        if not self.witnessed:
            return Failure.UNTRAINED
        if self.missing_ranks:
            return Failure.MISSING_RANKS
        return Failure.SHORT if self.steps < self.asked else None


def train(command: Sequence[str], way: Way, folder: Path, *, limit: int, steps: str, seconds: float) -> Trained:
    """Run ``command`` in a way, for at most ``limit`` steps and ``seconds``; ``folder`` is this training's own, and empty.

    ``steps`` are those at which quantities of the model's size are recorded. Every process is ended with the training.
    """
    (folder / "processes").mkdir(parents=True)
    run, log = folder / "run", folder / "log"
    inherited = {**own(os.environ), **way.variables(str(run), steps)}
    settings = Settings.from_environment(inherited)
    variables = environment(settings, inherited, folder / "processes") | exported(command, inherited)
    variables[VARIABLE] = f"{limit}:{folder / 'witnesses'}"
    started = time.monotonic()
    with log.open("wb") as output:
        code = to_its_end(command, variables, output, folder / "witnesses", seconds)
    processes, seen = attached_processes(folder / "processes"), read(folder / "witnesses")
    refusals = refused(processes, seen)
    problems = [*account(processes, failed=bool(code))] if way.recorded and processes and not refusals else []
    last = last_lines(log) if code != 0 else []
    return Trained(way, limit, code, time.monotonic() - started, run, seen, problems, last, refusals)


def refused(processes: Sequence[Process], seen: Sequence[Witnessed]) -> list[str]:
    """Return what we refused before the first step, each line once; a witness may have begun before."""
    lines = [line for process in processes if process.ended == REFUSED for line in process.problems]
    return [] if any(each.steps for each in seen) else list(dict.fromkeys(lines))


def to_its_end(command: Sequence[str], variables: Mapping[str, str], output: IO[bytes], witnesses: Path, seconds: float) -> int | None:
    """Return the exit code of a command whose ranks have ended too; None where they had not after ``seconds``. Nothing is left running."""
    started, received = time.monotonic(), list[int]()
    code: int | None = None
    try:
        code = wait(command, variables, output=output, seconds=seconds, received=received)
        ended = time.monotonic()
        while not received and is_training(witnesses, ended):
            if time.monotonic() - started > seconds:
                code = None
                break
            time.sleep(POLL)
    except subprocess.TimeoutExpired:
        pass
    finally:
        end()
    if received:
        raise SystemExit(SIGNALLED + received[0])
    return code


def last_lines(log: Path) -> list[str]:
    """Return the lines up to the last that states an error, behind which a launcher prints more; without any up to the end."""
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    errors = [number for number, line in enumerate(lines) if ERROR.match(line)]
    end_of = errors[-1] + 1 if errors else len(lines)
    return lines[max(end_of - LAST, 0) : end_of]


def is_training(folder: Path, ended: float) -> bool:
    """Return whether ranks train on after their command ``ended``, or may yet come to train; what else is left is none of the job."""
    seen, left = read(folder), descendants()
    if not seen:
        return bool(left) and time.monotonic() - ended < GRACE
    return any(each.pid in left for each in seen) or (bool(left) and len(seen) < seen[0].world_size)
