"""Every error that align_hooks raises on purpose.

Each class is one kind of trouble and carries the exit code that the contract gives to it. A message is one line that
names the thing, the place and the way out. None derives from ImportError or OSError: frameworks wrap their imports and
their file access in broad handlers, which would swallow the news.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LONG = 200
"""Letters of what a person wrote that a message repeats."""


class AlignHooksError(Exception):
    """Base of all errors raised on purpose; a launcher prints its message and exits with ``exit_code``."""

    exit_code = 2


def in_a_line(error: BaseException) -> str:
    """Any error by its type and the first line of what it says."""
    try:
        text = str(error).strip().splitlines()
    except Exception:  # the class is a framework's, and its words may fail as its work did
        text = []
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def printable(text: str) -> str:
    """Foreign text in one line that shows all of it: controls, marks of direction, surrogates and separators of lines as their escapes."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape", "surrogatepass").decode() for letter in text)


def meant(name: str, known: Iterable[str]) -> str:
    """Return the question whether the nearest of the known names was meant; empty where none is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]}?" if near else ""


def no_such(kind: str, name: str, known: Iterable[str]) -> str:
    """Say that nothing of a kind has a name, and which was meant where one is near."""
    question = meant(name, known)
    return f"there is no {kind} {shown(name)!r}{question and f'; {question}'}"


def shown(text: str) -> str:
    """What a person wrote, as a message repeats it: in one line, and cut where it is long."""
    return printable(text if len(text) <= LONG else f"{text[:LONG]}…")


class SettingsError(AlignHooksError):
    """An ``ALIGN_HOOKS_*`` variable, or a combination of them, cannot be honoured."""


class UnsupportedVersion(AlignHooksError):
    """A framework is installed in a version that a hook was not proven on."""


class AttachError(AlignHooksError):
    """A seam that a hook needs is not where it was in every supported version."""


class RefusedRun(AlignHooksError):
    """The run as configured cannot be recorded, replayed or rehearsed; the message says what to change."""


class RecordError(AlignHooksError):
    """A record is missing, not whole, foreign, or contradicts itself."""

    exit_code = 3


class NothingRecorded(AlignHooksError):
    """Something that was asked for never happened, or recording stopped before the run did."""

    exit_code = 3
