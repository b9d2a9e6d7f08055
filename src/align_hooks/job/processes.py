"""What ``run`` learns of the processes that it attached to: one small file each, in a folder that a private variable names.

The files are written by the attached processes when they attach, when training begins and when they end, so that one that
was killed is known too. Outside ``run`` the variable is not set and nothing is written.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from align_hooks.errors import SettingsError
from align_hooks.job.ranks import Launch

VARIABLE = "_ALIGN_HOOKS_PROCESSES"
REFUSED = "refused"
WORKER = "a worker process came to train and was left alone; start it with torchrun or msrun, or as a process of its own"
MEETS_AT = ("MASTER_ADDR", "MS_SCHED_HOST")
LOOPBACK = ("127.", "localhost", "::1")
MOST = 99_999
"""Ranks of one machine, and far more than that: a larger number is none of them."""
ELSEWHERE = ("RANK_TABLE_FILE", "MS_SIMULATION_LEVEL", "OMPI_COMM_WORLD_SIZE")
"""Ranks of such jobs may be on other machines, or nowhere at all."""


@dataclass(frozen=True, slots=True)
class Process:
    """One attached process. ``began`` says whether it came to train; ``ended`` is how, None while it runs or after a kill; ``failed``
    whether an error or a signal ended it."""

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
    """Those of its job that should be heard of beside it, itself among them."""

    def __str__(self) -> str:
        rank = f", rank {self.rank}" if self.began else ""
        return f"{self.side} side{rank}, pid {self.pid}, {self.script}: {self._fate()}"

    @property
    def lost(self) -> bool:
        """Whether it is no more and never said how it ended."""
        return self.ended is None and not is_alive(self.pid)

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self.ended is None and is_alive(self.pid)

    def _fate(self) -> str:
        return self.ended or ("never ended by itself: it was killed" if self.lost else "still running")


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
    """Say how this process stands. Nobody may be listening, any more or at all: that is no trouble of training's."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return
    job, ranks = neighbours(os.environ)
    process = Process(os.getpid(), side, rank, sys.argv[0] if sys.argv else "", began, ended, failed, list(problems), job, ranks)
    path = Path(folder, f"{process.pid}.json")
    with contextlib.suppress(OSError):
        path.with_suffix(".new").write_text(json.dumps(asdict(process)), encoding="utf-8")
        path.with_suffix(".new").replace(path)


def told(folder: Path) -> list[Process]:
    """What the processes said, ranks ascending."""
    return sorted((_read(path) for path in folder.glob("*.json")), key=lambda one: (one.rank, one.pid))


def _read(path: Path) -> Process:
    try:
        return Process(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        problem = f"what it said of itself cannot be read ({error}), so nobody knows whether it trained with hooks"
        return Process(int(path.stem), "unknown", 0, "unknown script", ended="unknown", problems=[problem])


def neighbours(environment: Mapping[str, str]) -> tuple[str, list[int]]:
    """The job of this process, and its ranks on this machine; no ranks where the launcher leaves open which they are.

    torchrun says it. msrun does not, nor does a script that starts ranks by hand: there all ranks are here if other
    machines cannot be among them, because the job meets at this machine's loopback address, or names no address.
    """
    try:
        launch = Launch.from_environment(environment)
    except SettingsError:
        return "", []
    here, local = (environment.get(name, "") for name in ("LOCAL_WORLD_SIZE", "LOCAL_RANK"))
    if all(one.isdecimal() and len(one) <= len(str(MOST)) for one in (here, local)):
        first = launch.rank - int(local)
        return launch.job, list(range(first, first + int(here)))
    elsewhere = any(name in environment for name in ELSEWHERE) or not all(
        environment[name].startswith(LOOPBACK) for name in MEETS_AT if name in environment
    )
    return launch.job, [] if elsewhere or launch.world_size > MOST else list(range(launch.world_size))


def unheard(processes: Sequence[Process]) -> Iterator[str]:
    """The ranks that no training process told of, one sentence a job. A script may train several times: as often as most ranks did."""
    jobs: dict[tuple[str, tuple[int, ...]], Counter[int]] = {}
    for one in processes:
        if one.began:
            jobs.setdefault((one.job, tuple(one.ranks)), Counter())[one.rank] += 1
    for (job, ranks), heard in jobs.items():
        if (job, list(ranks)) == neighbours(os.environ):  # run itself is one of these ranks, and the others are not below it
            continue
        if missing := [str(rank) for rank in ranks if heard[rank] < max(heard.values())]:
            yield (
                f"rank {', '.join(missing)} of {len(ranks)} on this machine did not come to train with hooks, rank "
                f"{', '.join(map(str, sorted(heard)))} did: start all of them in the same environment"
            )
