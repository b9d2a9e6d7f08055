"""The rank of this process, its job, and the launchers that may start it again, from the variables of torchrun, msrun, mpirun or Slurm.

They go into every rank's manifest; a reader refuses ranks of different jobs. A launcher is identified by what no other job has: an elastic
agent by its process, Slurm by the job's number. torchrun's id will not do, as it is ``none`` for every job with a ``--master-port``; nor
its port, which may change at each start.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from align_hooks.errors import SettingsError

RANK = ("RANK", "RANK_ID", "OMPI_COMM_WORLD_RANK")
WORLD_SIZE = ("WORLD_SIZE", "RANK_SIZE", "MS_WORKER_NUM", "OMPI_COMM_WORLD_SIZE")
DIGITS = 9
"""The most digits of a rank."""
SCHEDULER = "MS_SCHED"
"""``MS_ROLE`` of the process that msrun starts beside the ranks."""
JOB = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "MASTER_ADDR", "MASTER_PORT", "MS_SCHED_HOST", "MS_SCHED_PORT")
LOOPBACK = ("127.", "localhost", "::1")
AGENTS = {"MS_ROLE": r"(.*/)?msrun|mindspore\.parallel\.cluster.*", "TORCHELASTIC_RUN_ID": r"(.*/)?python[\d.]*"}
"""A variable that an agent sets for its workers, to a word of the agent's command line, as a shell may export the variable too."""
DEAD = "ZX"
"""The kernel's states of a process that has ended."""


class Launch(Struct, frozen=True):
    """A process of a job."""

    rank: int = 0
    """The global rank."""
    world_size: int = 1
    job: str = ""
    """The variables that identify the job."""
    host: str = ""
    launchers: Mapping[str, int] = field(default_factory=dict)
    """The launchers that may start the process again, each with the number of this start."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Launch:
        """Read the launcher's variables, by default rank 0 of 1; raises SettingsError where they clash."""
        rank, world_size = (_first(environment, names) for names in (RANK, WORLD_SIZE))
        if (rank or 0) >= (world_size or 1):
            raise SettingsError(f"the launcher's variables say rank {rank} of {world_size or 1}; set WORLD_SIZE, or unset RANK")
        if rank is None or world_size is None:
            return cls(host=socket.gethostname(), launchers=launchers(environment))
        job = " ".join(f"{name}={environment[name]}" for name in JOB if name in environment)
        return cls(rank, world_size, job, socket.gethostname(), launchers(environment))


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    if "MS_ROLE" in environment:  # under msrun, RANK and WORLD_SIZE may be a pod's, which count pods
        names = (*names[1:], names[0])
    name = next((name for name in names if environment.get(name, "").isdecimal()), None)
    if name is not None and len(environment[name]) > DIGITS:
        raise SettingsError(f"{name} has {len(environment[name])} digits: no job has so many ranks; unset it, or let the launcher set it")
    return int(environment[name]) if name is not None else None


def launchers(environment: Mapping[str, str]) -> dict[str, int]:
    """Return each launcher that may start this process again with the number of this start, which grows."""
    found = {}
    if job := environment.get("SLURM_JOB_ID"):
        step, cluster = environment.get("SLURM_STEP_ID", ""), environment.get("SLURM_CLUSTER_NAME", "")
        count = environment.get("SLURM_RESTART_COUNT", "0")  # Slurm sets it once a job was queued again
        found[f"Slurm {cluster} {job} {step}"] = int(count) if count.isdecimal() else 0
    name = next((name for name in AGENTS if name in environment), None)
    if name == "TORCHELASTIC_RUN_ID" and environment.get("TORCHELASTIC_MAX_RESTARTS") == "0":
        name = None  # it will not start again; and a notebook may be the agent of one job after another
    try:
        return found | (_agent(name, environment[name]) if name is not None else {})
    except (OSError, ValueError):  # no /proc, or hidden processes
        return found


def is_restart(earlier: Mapping[str, int], now: Mapping[str, int]) -> bool:
    """Return whether a launcher of ``now`` started the ``earlier`` process too, in an earlier start."""
    return any(launcher in earlier and earlier[launcher] < start for launcher, start in now.items())


def born(process: object) -> str:
    """Return the start time of a process, in the kernel's ticks since boot; empty where no such process lives."""
    try:
        known = facts(int(str(process)))
    except (OSError, ValueError):
        return ""
    return "" if known[0] in DEAD else known[19]


def _agent(name: str, value: str) -> dict[str, int]:
    """Return the agent above this process with the start time of its worker; empty where there is none."""
    worker, above = os.getpid(), os.getppid()  # the worker may be a script around this process
    while f"{name}={value}".encode() in words_of(above, "environ"):
        worker, above = above, int(facts(above)[1])
    if not any(re.fullmatch(AGENTS[name], os.fsdecode(word)) for word in words_of(above, "cmdline")):
        return {}
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return {f"process {above} {facts(above)[19]} {os.uname().nodename} {boot} {value}": int(facts(worker)[19])}


def facts(process: int) -> list[str]:
    """Return the fields of ``/proc/PID/stat`` from the state on; raises OSError where the process is gone."""
    return Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def words_of(process: int, name: str) -> list[bytes]:
    """Return the words of a process's ``cmdline`` or ``environ``."""
    return Path(f"/proc/{process}/{name}").read_bytes().split(b"\0")
