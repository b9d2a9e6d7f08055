"""A rank's claim on its part of a run's directory, for as long as the job lives.

A file beside the manifest, ``manifest/rank_M.claim``, is locked (POSIX ``fcntl``) from the start of recording to its end. The kernel
drops the lock when the process ends, however it ends, so a killed job blocks nobody. Processes that it forks do not inherit it, unlike
a lock by ``flock``: a data loader that outlives a job would hold the directory. It also drops it when the process closes the claim by any
other descriptor, as a script does that copies its own run's directory. So a claim says too when it was let go, and one that was not, of a
process of this machine that still lives, is held whatever the lock says.

The lock holds among the containers of one machine, and among machines where the file system passes locks on: NFS 4, NFS 3 with its lock
manager, Lustre mounted with ``flock``, GPFS, CephFS, BeeGFS where it is switched on. Elsewhere it is one machine's own, or there is none;
:attr:`Claim.weaker` says so where that can be seen. So the claim is looked at again whenever a step is written: the job that came
later has written itself into it, and the earlier one stops recording. A network file system may show that late, by as long as it keeps
attributes (NFS: 3 to 60 seconds); what both wrote in that time is told apart by the digests in the rows.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from align_hooks.errors import RecordError, RefusedRun
from align_hooks.job.ranks import Launch
from align_hooks.record.folder import is_shared
from align_hooks.record.weakness import Weakness

LONGEST = 4096
"""Bytes of a claim, and no more."""
FLOCK = "hhqqi4x"
"""``struct flock`` of 64-bit Linux: type, whence, start, length, process."""
RELEASED = "released"
"""The fact that a job adds to its claim when it lets go."""
DEAD = "ZX"
"""What the kernel says of a process that has ended and whose parent has not asked how."""
HELD = {errno.EACCES, errno.EAGAIN}
LOOPBACK = ("127.", "localhost", "::1")


@dataclass(eq=False)
class Claim:
    """One rank's claim; made by :func:`take`. ``weaker`` says what the file system cannot do for it, empty where it can."""

    path: Path
    facts: dict[str, Any]
    weaker: str = ""
    _file: int = field(default=-1, repr=False)
    _before: bytes = b""

    @property
    def is_proof(self) -> bool:
        """Whether no other process can hold this rank: the lock was granted by a file system that has locks."""
        return not self.weaker

    def check(self) -> None:
        """Raise RecordError where the directory was taken over, or away, since it was claimed."""
        if self.facts.get("pid") != os.getpid():
            raise RecordError(
                f"{self.path} is of process {self.facts.get('pid')}, which this one was forked from; one process records a rank"
            )
        try:
            there, mine = self.path.lstat(), os.fstat(self._file)
            content = os.pread(self._file, LONGEST, 0)
        except OSError as error:
            raise RecordError(f"{self.path} is gone ({error.strerror}): somebody moved or deleted the run while it was recorded") from None
        if (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino) or content != self._content():
            raise RecordError(f"{self.path} is another job's by now ({holder(self.path)}); give every job a directory of its own")

    def add(self, **facts: Any) -> None:
        """Write more facts into the claim."""
        self.facts |= facts
        content = self._content()
        os.pwrite(self._file, content, 0)
        os.ftruncate(self._file, len(content))

    def release(self, *, unused: bool = False) -> None:
        """Let the directory go, and say so in the claim; ``unused`` leaves the claim as it was found.

        The file stays: whoever would delete it could delete another job's lock."""
        if self._file < 0:
            return
        with contextlib.suppress(OSError):  # a full disk, or a place that is gone: whoever comes sees that this process has ended
            if os.pread(self._file, LONGEST, 0) == self._content() and self.facts["pid"] == os.getpid():
                after = self._before if unused and self._before else json.dumps(self.facts | {RELEASED: True}).encode()
                os.pwrite(self._file, after, 0)
                os.ftruncate(self._file, len(after))
        os.close(self._file)
        self._file = -1

    def _content(self) -> bytes:
        return json.dumps(self.facts).encode()


def take(path: Path, launch: Launch) -> Claim:
    """Claim a rank's place, and write nothing yet: :meth:`Claim.add` does. Raises RefusedRun where another living process holds it, OSError
    where the place cannot be written."""
    if path.is_symlink():
        raise RefusedRun(f"{path} is a link, and nothing is written through one; remove it")
    if is_shared(path):  # with a snapshot: a lock and a line of ours are for this directory alone
        path.unlink(missing_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    process = {"host": os.uname().nodename, "pid": os.getpid(), "born": _born(os.getpid()), "inode": os.fstat(file).st_ino}
    claim = Claim(path, {**job(launch), "rank": launch.rank, **process}, "", file)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise RefusedRun(f"{path} is no file; remove it")
        claim.weaker = _lock(file, path)
        if os.fstat(file).st_ino != path.stat().st_ino:
            raise RefusedRun(_refusal(path))
        claim._before = os.pread(file, LONGEST, 0)
        if _lives(parsed(claim._before), path):  # and not read(), which would drop the lock
            raise RefusedRun(_refusal(path))
    except BaseException:
        os.close(file)
        raise
    return claim


def read(path: Path) -> dict[str, Any]:
    """What a claim says; empty where there is none, or none that is whole."""
    try:
        if path.is_symlink() or not stat.S_ISREG(path.stat().st_mode):
            return {}
        with path.open("rb") as file:
            return parsed(file.read(LONGEST))
    except (OSError, ValueError):
        return {}


def parsed(content: bytes) -> dict[str, Any]:
    """What a claim's content says; empty where it is no claim."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def is_held(path: Path) -> bool:
    """Whether another living process has locked a claim, as far as the file system tells."""
    try:
        with path.open("rb") as file:
            found = fcntl.fcntl(file, fcntl.F_GETLK, struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError:
        return False
    return bool(struct.unpack(FLOCK, found)[0] != fcntl.F_UNLCK)


def refuse_held(path: Path) -> None:
    """Raise RefusedRun where another living process has locked a claim."""
    if is_held(path):
        raise RefusedRun(_refusal(path))


def has_ended(path: Path, claim: Mapping[str, Any]) -> bool:
    """Whether a claim of another process is surely nobody's any more: it was let go, or its process was one of this machine and is gone."""
    if claim.get("pid") == os.getpid():
        return False
    return bool(claim.get(RELEASED)) or (claim.get("host") == os.uname().nodename and not is_held(path) and not _lives(claim, path))


def job(launch: Launch) -> dict[str, Any]:
    """What identifies a start of a job to its ranks. Jobs that meet at a machine's own address are told apart by the machine."""
    local = not launch.job or any(f"={one}" in launch.job for one in LOOPBACK)
    return {"job": launch.job[:1000], "world_size": launch.world_size} | ({"machine": launch.host} if local else {})


def is_of(claim: Mapping[str, Any], launch: Launch) -> bool:
    """Whether a claim is one of this job's ranks."""
    return bool(claim) and all(claim.get(key) == value for key, value in job(launch).items())


def _lock(file: int, path: Path) -> str:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in HELD:
            raise RefusedRun(_refusal(path)) from None
        return Weakness.NO_LOCKS.value.format(error=error.strerror)
    return ""


def _refusal(path: Path) -> str:
    return f"{path.parent.parent} is being recorded into by {holder(path)}; choose another directory, or end that job"


def holder(path: Path) -> str:
    """Who wrote a claim, in words."""
    found = read(path)
    who = f"pid {found.get('pid', 'unknown')} of {found.get('host', 'an unknown host')}"
    return f"{who}, since {found['started']}" if "started" in found else who


def _lives(claim: Mapping[str, Any], path: Path) -> bool:
    """Whether the process that wrote a claim is one of this machine's, still there, and did not let go; a copy of a claim holds nothing."""
    born = claim.get("born")
    if claim.get(RELEASED) or claim.get("inode") != path.stat().st_ino:
        return False
    return bool(born) and claim.get("host") == os.uname().nodename and claim.get("pid") != os.getpid() and _born(claim.get("pid")) == born


def _born(process: Any) -> str:
    """When a process was started, in the kernel's ticks; empty where none of that number lives: one that was not reaped yet does not."""
    try:
        content = Path(f"/proc/{int(process)}/stat").read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError, TypeError):
        return ""
    facts = content.rpartition(")")[2].split()
    return "" if facts[0] in DEAD else facts[19]
