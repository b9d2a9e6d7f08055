"""What ``run`` learns of the processes to which it attached: a small file each, in a folder that a private variable names.

The attached processes write the files when they attach, when training begins and when they end, so that a process that
was killed is known too. Outside ``run`` the variable is not set and nothing is written.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from align_hooks.errors import SettingsError
from align_hooks.process.ranks import LOOPBACK, Launch
from align_hooks.process.restarts import is_restart, launchers

VARIABLE = "_ALIGN_HOOKS_PROCESSES"
REFUSED = "refused"
WORKER = "a worker process came to train and was left alone; start it with torchrun or msrun, or as a process of its own"
MEETS_AT = ("MASTER_ADDR", "MS_SCHED_HOST")
MOST = 99_999
"""More ranks than any machine has: a larger number is no number of ranks."""
ELSEWHERE = ("RANK_TABLE_FILE", "MS_SIMULATION_LEVEL", "OMPI_COMM_WORLD_SIZE")
"""Ranks of such jobs may be on other machines, or nowhere at all."""


@dataclass(frozen=True, slots=True)
class Process:
    """An attached process. ``began`` says whether it came to train; ``ended`` how it ended, None while it runs or after a kill; ``failed``
    whether an error or a signal ended it; ``ranks`` are the ranks of its job on this machine, itself among them."""

    pid: int
    side: str
    rank: int
    script: str
    began: bool = False
    ended: str | None = None
    failed: bool = False
    problems: Sequence[str] = ()
    job: str = ""
    ranks: Sequence[int] = ()
    launchers: Mapping[str, int] = field(default_factory=dict)
    """The launchers that may start it again, each with the number of this start."""

    def __str__(self) -> str:
        rank = f", rank {self.rank}" if self.began else ""
        fate = self.ended or ("never ended by itself: it was killed" if self.lost else "still running")
        return f"{self.side} side{rank}, pid {self.pid}, {self.script}: {fate}"

    @property
    def lost(self) -> bool:
        """Whether it is gone and never wrote how it ended."""
        return self.ended is None and not is_alive(self.pid)

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self.ended is None and is_alive(self.pid)


def is_alive(pid: int) -> bool:
    """Whether a process of this host is still there, be it another user's."""
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
    """Write how this process stands. A folder that is gone, or was never there, does not disturb training."""
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
    """The processes that wrote into the folder, ranks ascending."""
    return sorted((_read(path) for path in folder.glob("*.json")), key=lambda process: (process.rank, process.pid))


def _read(path: Path) -> Process:
    try:
        return Process(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        problem = f"what it said of itself cannot be read ({error}), so nobody knows whether it trained with hooks"
        return Process(int(path.stem), "unknown", 0, "unknown script", ended="unknown", problems=[problem])


def started_again(process: Process, processes: Sequence[Process]) -> bool:
    """Return whether the launcher of a process started its rank again: then the end of the later process is that of the rank."""
    return any(later.rank == process.rank and is_restart(process.launchers, later.launchers) for later in processes)


def neighbours(environment: Mapping[str, str]) -> tuple[str, list[int]]:
    """The job of this process, and its ranks on this machine; no ranks where the launcher leaves open which they are.

    torchrun tells which. msrun does not, nor does a script that starts ranks by hand. Then all ranks are on this machine if none can be
    elsewhere: the job meets at this machine's loopback address, or names no address.
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
    """The ranks of which too few training processes wrote, a sentence a job: a script may train several times, each rank equally often."""
    jobs: dict[tuple[str, tuple[int, ...]], Counter[int]] = {}
    for process in processes:
        if process.began:
            jobs.setdefault((process.job, tuple(process.ranks)), Counter())[process.rank] += 1
    for (job, ranks), heard in jobs.items():
        if (job, list(ranks)) == neighbours(os.environ):  # run itself is a rank of this job, and the other ranks are not below it
            continue
        if missing := [str(rank) for rank in ranks if heard[rank] < max(heard.values())]:
            yield (
                f"rank {', '.join(missing)} of {len(ranks)} on this machine did not come to train with hooks, rank "
                f"{', '.join(map(str, sorted(heard)))} did: start all of them in the same environment"
            )
