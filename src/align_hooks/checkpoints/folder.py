"""A destination that is complete or absent: everything is written beside it under a temporary name, synced, and renamed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from align_hooks.errors import AlignHooksError
from align_hooks.record.write import atomic


def refuse_existing(path: Path) -> None:
    """Raise AlignHooksError where something has the destination's name."""
    if os.path.lexists(path):
        raise AlignHooksError(f"{path} is there already; name a new destination, for nothing is written over")


@contextmanager
def written(path: Path) -> Iterator[Path]:
    """Yield the temporary name of a file or a directory, which is renamed on success and removed on failure.

    :raises AlignHooksError: the destination cannot be written.
    """
    refuse_existing(path)
    temporary = atomic.temporary_name(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove(temporary)
        yield temporary
        refuse_existing(path)
        temporary.rename(path)
        atomic.sync_path(path.parent)
    except OSError as error:
        why = error.strerror or error
        raise AlignHooksError(f"{path} cannot be written: {why}; name a place with room that you may write to") from None
    finally:
        _remove(temporary)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
