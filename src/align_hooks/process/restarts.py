"""Which launchers would start this process again, and to which of their starts it belongs.

A launcher is known by a fact that no other job has: an elastic agent by its own process, Slurm by the number of the job. The id that
torchrun gives to a job is no such fact: it is ``none`` for every job that names a ``--master-port``, and its workers are started again by
the same agent when they are refused. The port is none either, for some versions of torchrun take a new one at each start.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

AGENTS = {"MS_ROLE": r"(.*/)?msrun|mindspore\.parallel\.cluster.*", "TORCHELASTIC_RUN_ID": r"(.*/)?python[\d.]*"}
"""A variable that an agent sets for its workers, and a word of the agent's command line. A shell that exports the variable is none."""
DEAD = "ZX"
"""The kernel's states of a process that has ended and that its parent has not reaped."""


def launchers(environment: Mapping[str, str]) -> dict[str, int]:
    """Map each launcher that may start this process again to the number of this start, which grows from start to start."""
    found = {}
    if job := environment.get("SLURM_JOB_ID"):
        step, cluster = environment.get("SLURM_STEP_ID", ""), environment.get("SLURM_CLUSTER_NAME", "")
        count = environment.get("SLURM_RESTART_COUNT", "0")  # Slurm sets it once a job was queued again
        found[f"Slurm {cluster} {job} {step}"] = int(count) if count.isdecimal() else 0
    name = next((name for name in AGENTS if name in environment), None)
    if name == "TORCHELASTIC_RUN_ID" and environment.get("TORCHELASTIC_MAX_RESTARTS") == "0":
        name = None  # a notebook may be the agent of several jobs, one after another
    try:
        return found | (_agent(name, environment[name]) if name is not None else {})
    except (OSError, ValueError):  # no /proc, or processes that are hidden
        return found


def is_restart(earlier: Mapping[str, int], now: Mapping[str, int]) -> bool:
    """Return whether a launcher of ``now`` started the ``earlier`` process too, in an earlier start."""
    return any(launcher in earlier and earlier[launcher] < start for launcher, start in now.items())


def born(process: object) -> str:
    """Return when a process was started, in the kernel's ticks since boot; empty where no process of that number lives."""
    try:
        known = facts(int(str(process)))
    except (OSError, ValueError):
        return ""
    return "" if known[0] in DEAD else known[19]


def _agent(name: str, value: str) -> dict[str, int]:
    """Return the agent above this process, with the id that it gave, and the time at which it started the process below it, perhaps a
    script around this one."""
    worker, above = os.getpid(), os.getppid()
    while f"{name}={value}".encode() in words_of(above, "environ"):
        worker, above = above, int(facts(above)[1])
    if not any(re.fullmatch(AGENTS[name], os.fsdecode(word)) for word in words_of(above, "cmdline")):
        return {}
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return {f"process {above} {facts(above)[19]} {os.uname().nodename} {boot} {value}": int(facts(worker)[19])}


def facts(process: int) -> list[str]:
    """Return what the kernel says of a process, its state first; raises OSError where it is gone."""
    return Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def words_of(process: int, name: str) -> list[bytes]:
    """Return the words of a process's command line, or of its environment."""
    return Path(f"/proc/{process}/{name}").read_bytes().split(b"\0")
