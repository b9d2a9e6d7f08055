"""A rank's lock on its part of a run's directory, for the lifetime of the job.

``manifest/rank_M.claim`` is locked (POSIX ``fcntl``) while a rank records. The kernel drops the lock when the process
ends, so a killed job blocks nobody. Forked processes do not inherit the lock, as they would by ``flock``: a data
loader that outlives a job would keep the directory. The kernel also drops the lock when the process closes the file
by any other descriptor, as a script does that copies its own run. So the file also records its release; without
one, a living process of this machine holds the directory whatever the lock says.

The lock works among the containers of one machine, and among machines where the file system forwards locks: NFS 4,
NFS 3 with its lock manager, Lustre mounted with ``flock``, GPFS, CephFS, BeeGFS where configured. Elsewhere
:attr:`DirectoryLock.storage_limitations` names the lack where it is visible. So the file is read again whenever a
step is written: a later job has written itself there, and the earlier job stops recording. A network file system
shows that late (NFS: 3 to 60 seconds); the digests in the rows separate what the two jobs wrote in that time.
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

from align_hooks.errors import RecordError, RefusedRun
from align_hooks.process.ranks import LOOPBACK, Launch, born
from align_hooks.record.format.folder import is_shared
from align_hooks.record.format.layout import JsonObject
from align_hooks.record.format.storage_limitations import NO_LOCKS

LONGEST = 4096
"""The largest size of the lock file, in bytes."""
FLOCK = "hhqqi4x"
"""``struct flock`` of 64-bit Linux: type, whence, start, length, process."""
RELEASED = "released"
"""The fact that a job adds when it releases its lock."""
HELD = {errno.EACCES, errno.EAGAIN}


@dataclass(eq=False)
class DirectoryLock:
    """One rank's lock; made by :func:`take`."""

    path: Path
    facts: JsonObject
    storage_limitations: str = ""
    """What the file system lacks for a lock; empty where it lacks nothing."""
    _file: int = field(default=-1, repr=False)
    _before: bytes = b""

    @property
    def is_proof(self) -> bool:
        """Whether no other process can hold this rank, since the file system has locks."""
        return not self.storage_limitations

    def check(self) -> None:
        """Raise RecordError where another job took the directory, or somebody removed it."""
        if self.facts.get("pid") != os.getpid():
            raise RecordError(
                f"{self.path} is of process {self.facts.get('pid')}, which this one was forked from; one process records a rank"
            )
        try:
            named, claimed = self.path.lstat(), os.fstat(self._file)
            content = os.pread(self._file, LONGEST, 0)
        except OSError as error:
            raise RecordError(f"{self.path} is gone ({error.strerror}): somebody moved or deleted the run while it was recorded") from None
        if (named.st_dev, named.st_ino) != (claimed.st_dev, claimed.st_ino) or content != self._content():
            raise RecordError(f"{self.path} is another job's by now ({holder(self.path)}); give every job a directory of its own")

    def add(self, **facts: object) -> None:
        """Write more facts into the lock file."""
        self.facts |= facts
        self._write(self._content())

    def release(self, *, unused: bool = False) -> None:
        """Release the directory, and record it in the lock file; ``unused`` restores the earlier content."""
        if self._file < 0:
            return
        # the file stays: a process that deletes it could delete another job's lock
        with contextlib.suppress(OSError):  # a full disk, or a directory that is gone: the next job sees that this process has ended
            if os.pread(self._file, LONGEST, 0) == self._content() and self.facts["pid"] == os.getpid():
                self._write((unused and self._before) or json.dumps(self.facts | {RELEASED: True}).encode())
        os.close(self._file)
        self._file = -1

    def _content(self) -> bytes:
        return json.dumps(self.facts).encode()

    def _write(self, content: bytes) -> None:
        os.pwrite(self._file, content, 0)
        os.ftruncate(self._file, len(content))


def take(path: Path, launch: Launch) -> DirectoryLock:
    """Lock a rank's place, and write nothing; raises RefusedRun where another living process holds the place."""
    if path.is_symlink():
        raise RefusedRun(f"{path} is a link, and nothing is written through one; remove it")
    if is_shared(path):  # with a snapshot: our lock and our facts are for this directory alone
        path.unlink(missing_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    process = {"host": os.uname().nodename, "pid": os.getpid(), "born": born(os.getpid()), "inode": os.fstat(file).st_ino}
    claim = DirectoryLock(path, {**job(launch), "rank": launch.rank, **process}, "", file)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise RefusedRun(f"{path} is no file; remove it")
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in HELD:
                raise refusal(path) from None
            claim.storage_limitations = f"{NO_LOCKS}: {error.strerror}"
        if os.fstat(file).st_ino != path.stat().st_ino:
            raise refusal(path)
        claim._before = os.pread(file, LONGEST, 0)
        if _lives(parsed(claim._before), path):  # read() would drop the lock
            raise refusal(path)
    except BaseException:
        os.close(file)
        raise
    return claim


def read(path: Path) -> JsonObject:
    """Return the facts of a lock file; empty without a complete one."""
    with contextlib.suppress(OSError, ValueError):
        if not path.is_symlink() and stat.S_ISREG(path.stat().st_mode):
            with path.open("rb") as file:
                return parsed(file.read(LONGEST))
    return {}


def parsed(content: bytes) -> JsonObject:
    """Return the facts in a lock file's content; empty for any other content."""
    with contextlib.suppress(ValueError, RecursionError):
        facts = json.loads(content)
        return facts if isinstance(facts, dict) else {}
    return {}


def is_held(path: Path) -> bool:
    """Whether another living process holds a lock file, as far as the file system shows."""
    try:
        with path.open("rb") as file:
            lock = fcntl.fcntl(file, fcntl.F_GETLK, struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError:
        return False
    return bool(struct.unpack(FLOCK, lock)[0] != fcntl.F_UNLCK)


def has_ended(path: Path, claim: Mapping[str, object]) -> bool:
    """Whether another process's lock has surely ended: by its release, or with its process on this machine."""
    if claim.get("pid") == os.getpid():
        return False
    return bool(claim.get(RELEASED)) or (claim.get("host") == os.uname().nodename and not is_held(path) and not _lives(claim, path))


def job(launch: Launch) -> JsonObject:
    """Return the facts that identify a start of a job; a loopback address needs the machine too."""
    local = not launch.job or any(f"={address}" in launch.job for address in LOOPBACK)
    return {"job": launch.job[:1000], "world_size": launch.world_size} | ({"machine": launch.host} if local else {})


def is_of(claim: Mapping[str, object], launch: Launch) -> bool:
    """Whether a lock file is of a rank of this job."""
    return bool(claim) and all(claim.get(key) == value for key, value in job(launch).items())


def refusal(path: Path) -> RefusedRun:
    """Return the error for a lock that another living process holds."""
    return RefusedRun(f"{path.parent.parent} is being recorded into by {holder(path)}; choose another directory, or end that job")


def holder(path: Path) -> str:
    """Return a description of the process that wrote a lock file."""
    facts = read(path)
    process = f"pid {facts.get('pid', 'unknown')} of {facts.get('host', 'an unknown host')}"
    return f"{process}, since {facts['started']}" if "started" in facts else process


def _lives(claim: Mapping[str, object], path: Path) -> bool:
    """Whether the process of a lock file lives on this machine and has not released the lock."""
    since = claim.get("born")
    if claim.get(RELEASED) or claim.get("inode") != path.stat().st_ino:  # a copy of a lock file holds nothing
        return False
    return bool(since) and claim.get("host") == os.uname().nodename and claim.get("pid") != os.getpid() and born(claim.get("pid")) == since
