"""A path as a person wrote it, resolved or refused in one line, and as text that any file may hold."""

from __future__ import annotations

import os
import re
from pathlib import Path

ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://")
"""The beginning of an address of object storage."""
COLLAPSED = re.compile(r"[a-z][a-z0-9+.-]+:/")
"""The same, with one slash, as ``pathlib`` keeps it."""


def path_of(text: str | os.PathLike[str]) -> Path:
    """Return the absolute path, with ``~`` and links resolved, whether it exists or not.

    Raises ValueError for a path that cannot be resolved: ``~nobody``, a link to itself, a name too long, ``s3://bucket``.
    """
    name = os.fspath(text)
    if not name:
        raise ValueError("names nothing")
    if COLLAPSED.match(name):
        raise ValueError("is an address of object storage, which is read and never written; name a directory, and copy it there afterwards")
    if "\0" in name or name.splitlines() != [name]:
        raise ValueError("holds a NUL or a line break, which the name of no run or report may")
    try:
        path = Path(name).expanduser()
    except RuntimeError:
        raise ValueError("begins with the home directory of a user whom this machine does not know; write the path in full") from None
    named = path
    try:
        path = path.resolve()
        os.stat(path)  # noqa: PTH116 -- Path.exists() hides the errors that are looked for
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        if os.path.exists(named):  # noqa: PTH110 -- a shell's <(…), to which no path leads but its own
            return named
        if not path.is_absolute():
            raise ValueError("is a place below a working directory that is gone; write the path in full") from None
    except RuntimeError:  # of a link to itself, before Python 3.13
        raise ValueError("is a link that leads to itself; name another place") from None
    except OSError as error:
        raise ValueError(f"cannot be a path here ({error.strerror}); name another place") from None
    return path


def well_formed(text: str) -> str:
    """Return text without lone surrogates: the letters that their bytes encode in UTF-8, and ``\\xff`` for other bytes."""
    # without a UTF-8 locale (LC_ALL=C) Python keeps the bytes of arguments, variables and file names as surrogates
    try:
        text.encode()
    except UnicodeEncodeError:
        are_bytes = all("\udc80" <= char <= "\udcff" for char in text if "\ud800" <= char <= "\udfff")
        return text.encode("utf-8", "surrogateescape" if are_bytes else "backslashreplace").decode("utf-8", "backslashreplace")
    return text
