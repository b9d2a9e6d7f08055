"""Print a line once, where all ranks of a host would print it on the same stream.

Refused ranks do not communicate any more, so the rank that creates a file prints. The file's name is a digest of the launcher (its pid
and start time, so that the next job prints the line again), of the stream (so that each log has the line), and of the line.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
import tempfile
import time
from pathlib import Path

from align_hooks.errors import SettingsError
from align_hooks.process.ranks import Launch
from align_hooks.process.restarts import born

KEPT = 3600
"""Seconds after which a file of an earlier job is removed."""


def first_to_say(line: str) -> bool:
    """Return whether this process is to print ``line`` on stderr; True where that is unknown."""
    try:
        if Launch.from_environment(os.environ).world_size == 1:
            return True
        launcher, stream = born(os.getppid()), os.fstat(sys.stderr.fileno())
        if not launcher:
            return True
        key = f"{os.getppid()} {launcher} {stream.st_dev}:{stream.st_ino} {line}"
        path = _folder() / hashlib.sha256(key.encode("utf-8", "backslashreplace")).hexdigest()
    except (SettingsError, OSError, ValueError, AttributeError):
        return True
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError as error:
        return not isinstance(error, FileExistsError)
    return True


def _folder() -> Path:
    """Return a private folder of this user, without old files; raises OSError where there can be none."""
    folder = Path(tempfile.gettempdir()) / f"align_hooks-said-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    state = folder.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o077:
        raise PermissionError(f"{folder} is not ours alone")
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > KEPT:
                path.unlink()
    return folder
