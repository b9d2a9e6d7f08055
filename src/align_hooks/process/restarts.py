"""The launchers that may start this process again, each with the number of this start.

A launcher is identified by what no other job has: an elastic agent by its process, Slurm by the job's number. torchrun's id will not do,
as it is ``none`` for every job with a ``--master-port``; nor its port, which may change at each start.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

AGENTS = {"MS_ROLE": r"(.*/)?msrun|mindspore\.parallel\.cluster.*", "TORCHELASTIC_RUN_ID": r"(.*/)?python[\d.]*"}
"""A variable that an agent sets for its workers, to a word of the agent's command line, as a shell may export the variable too."""
DEAD = "ZX"
"""The kernel's states of a process that has ended."""


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
