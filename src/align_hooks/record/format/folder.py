"""The boundary of a run's directory for writing, deleting and reading.

A run may hold links: a user's, a snapshot's, a stranger's. Nothing is written or deleted through a link, and no
link out of the run is read: a stranger's record could show any file of its reader. A hard link shares its bytes
with a file elsewhere, so a file with more than one name is never changed in place.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from align_hooks.errors import RecordError
from align_hooks.process.storage import is_remote

TEMPORARY = ".tmp"
"""The end of the name of a file that is being written."""
ATTEMPTS = 20
"""How often a directory is made again when another rank removes it while it is empty."""


def make(run: Path, folder: Path) -> Path:
    """Make and return a ``folder`` in ``run``; raises RecordError where the path has a link."""
    if run not in (folder, *folder.parents):
        raise RecordError(f"{folder} is not in {run}; give a path in the run's directory")
    in_the_way = link(run, folder)
    if in_the_way is not None:  # checked before anything is made: the target of a link is not ours
        raise RecordError(f"{in_the_way} is a link, and nothing is written through one; put a directory in its place")
    for last in (*[False] * ATTEMPTS, True):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            break
        except (FileNotFoundError, FileExistsError):  # another rank has just removed a directory above it, which was empty
            if last or folder.exists():
                raise
    return folder


def inside(run: Path, path: Path) -> Path:
    """Return ``path`` for reading; raises RecordError where a link leads out of ``run``."""
    if is_remote(path):  # object storage has no links
        return path
    try:
        if _is_below(path, run) and ".." not in path.parts and link(run, path) is None:
            return path  # links above the run do not matter
        real, home = os.path.realpath(path), os.path.realpath(run)
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} cannot be read: {error}") from None
    if os.path.commonpath([real, home]) != home:
        raise RecordError(f"{path} is a link that leads out of {run}; copy the file into the record")
    return path


def is_shared(path: Path) -> bool:
    """Whether ``path`` is a link, no regular file, or a file that has another name elsewhere."""
    with contextlib.suppress(FileNotFoundError):
        facts = path.lstat()
        return not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1
    return False


def link(run: Path, path: Path) -> Path | None:
    """Return the deepest link from ``path`` up to ``run``; None without a link."""
    if not _is_below(path, run):
        return None
    parts, above = path.parts, len(run.parts)
    # every read of a file of a record comes by here, and a Path a part takes five times as long
    below = (os.path.join(*parts[:count]) for count in range(len(parts), above, -1))  # noqa: PTH118
    return next((Path(part) for part in below if os.path.islink(part)), None)  # noqa: PTH114


def _is_below(path: Path, run: Path) -> bool:
    """Whether ``path`` begins with the parts of ``run``."""
    return path.parts[: len(run.parts)] == run.parts and path.is_absolute() == run.is_absolute()


def remove(run: Path, paths: Iterable[Path]) -> None:
    """Delete the ``paths`` that exist, and the directories of steps that this leaves empty; nothing through a link."""
    folders = set()
    for path in paths:
        if link(run, path.parent) is None:
            folders.add(path.parent)
            with contextlib.suppress(FileNotFoundError, IsADirectoryError, NotADirectoryError):
                path.unlink()
    # other ranks write meanwhile: of shared directories only step_N goes, which make() expects
    above = {parent for folder in folders for parent in (folder, *folder.parents) if run in parent.parents}
    for emptied in sorted((path for path in above if path.relative_to(run).parts[0].startswith("step_")), reverse=True):
        try:
            emptied.rmdir()
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR):
                raise


def sweep(folder: Path, beginning: str = "") -> None:
    """Delete the temporary files of killed processes in a folder; ``beginning`` restricts the names where others write too."""
    try:
        names = [path.name for path in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        parts = name.split(".")
        if name.startswith(f".{beginning}") and name.endswith(TEMPORARY) and len(parts) > 3 and parts[-2].isdigit():
            (folder / name).unlink(missing_ok=True)
