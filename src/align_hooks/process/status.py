"""The state of the processes below ``align-hooks run``: a small file each, in a folder that a private variable names.

A process writes its file when it is attached, when training begins and when it ends, so that a killed process is known too.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import asdict

from align_hooks.errors import SettingsError
from align_hooks.process.ranks import LOOPBACK, Launch, is_restart, launchers

VARIABLE = "_ALIGN_HOOKS_PROCESSES"
REFUSED = "refused"
WORKER = "a worker process came to train and was left alone; start it with torchrun or msrun, or as a process of its own"
MEETS_AT = ("MASTER_ADDR", "MS_SCHED_HOST")
MOST = 99_999
"""The most ranks that a machine may have."""
ELSEWHERE = ("RANK_TABLE_FILE", "MS_SIMULATION_LEVEL", "OMPI_COMM_WORLD_SIZE")
"""Variables of jobs whose ranks may be on other machines, or only simulated."""


class Process(Struct, frozen=True):
    """An attached process."""

    pid: int
    side: str
    rank: int
    script: str
    began: bool = False
    """Whether it came to train."""
    ended: str | None = None
    """How it ended; None while it runs, and after a kill."""
    failed: bool = False
    """Whether an error or a signal ended it."""
    problems: Sequence[str] = ()
    job: str = ""
    ranks: Sequence[int] = ()
    """The ranks of its job on this machine, its own included."""
    launchers: Mapping[str, int] = field(default_factory=dict)
    """The launchers that may start it again, each with the number of this start."""

    def __str__(self) -> str:
        rank = f", rank {self.rank}" if self.began else ""
        fate = self.ended or ("never ended by itself: it was killed" if self.lost else "still running")
        return f"{self.side} side{rank}, pid {self.pid}, {self.script}: {fate}"

    @property
    def lost(self) -> bool:
        """Whether it is gone without a report of its end."""
        return self.ended is None and not is_alive(self.pid)

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self.ended is None and is_alive(self.pid)


def is_alive(pid: int) -> bool:
    """Return whether this host has a process, of any user."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def tell(
    side: str, rank: int, *, began: bool = False, ended: str | None = None, failed: bool = False, problems: Sequence[str] = ()
) -> None:
    """Write the state of this process, unless it is not below ``align-hooks run``; errors are ignored, so that training goes on."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return
    job, ranks = neighbours(os.environ)
    process = Process(
        os.getpid(), side, rank, sys.argv[0] if sys.argv else "", began, ended, failed, list(problems), job, ranks, launchers(os.environ)
    )
    path = Path(folder, f"{process.pid}.json")
    with contextlib.suppress(OSError):
        path.with_suffix(".new").write_text(json.dumps(asdict(process)), encoding="utf-8")
        path.with_suffix(".new").replace(path)


def attached_processes(folder: Path) -> list[Process]:
    """Return the processes that wrote into the folder, by rank."""
    return sorted((_read(path) for path in folder.glob("*.json")), key=lambda process: (process.rank, process.pid))


def _read(path: Path) -> Process:
    try:
        return Process(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        problem = f"what it said of itself cannot be read ({error}), so nobody knows whether it trained with hooks"
        return Process(int(path.stem), "unknown", 0, "unknown script", ended="unknown", problems=[problem])


def started_again(process: Process, processes: Sequence[Process]) -> bool:
    """Return whether the launcher of a process started its rank again, whose end is then the later process's."""
    return any(later.rank == process.rank and is_restart(process.launchers, later.launchers) for later in processes)


def neighbours(environment: Mapping[str, str]) -> tuple[str, list[int]]:
    """Return the job of this process and its ranks on this machine; no ranks where these are unknown.

    torchrun states them. Under msrun or a script they are all ranks, if the job meets at the loopback address or names none.
    """
    try:
        launch = Launch.from_environment(environment)
    except SettingsError:
        return "", []
    size, local = (environment.get(name, "") for name in ("LOCAL_WORLD_SIZE", "LOCAL_RANK"))
    if all(number.isdecimal() and len(number) <= len(str(MOST)) for number in (size, local)):
        first = launch.rank - int(local)
        return launch.job, list(range(first, first + int(size)))
    elsewhere = any(name in environment for name in ELSEWHERE) or not all(
        environment[name].startswith(LOOPBACK) for name in MEETS_AT if name in environment
    )
    return launch.job, [] if elsewhere or launch.world_size > MOST else list(range(launch.world_size))


def unheard(processes: Sequence[Process]) -> Iterator[str]:
    """Yield a sentence for each job in which some ranks trained less often than others, or never."""
    jobs: dict[tuple[str, tuple[int, ...]], Counter[int]] = {}
    for process in processes:
        if process.began:
            jobs.setdefault((process.job, tuple(process.ranks)), Counter())[process.rank] += 1
    for (job, ranks), heard in jobs.items():
        if (job, list(ranks)) == neighbours(os.environ):  # run itself is a rank of this job, and does not see the others
            continue
        if missing := [str(rank) for rank in ranks if heard[rank] < max(heard.values())]:
            yield (
                f"rank {', '.join(missing)} of {len(ranks)} on this machine did not come to train with hooks, rank "
                f"{', '.join(map(str, sorted(heard)))} did: start all of them in the same environment"
            )
