"""The errors that align_hooks raises on purpose, each with its exit code; a message is one line that names the thing, the place and the
way out.

None derives from ImportError or OSError, which frameworks catch around imports and file access.
"""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterable

LONG = 200
"""The most letters of a person's text that a message repeats."""


class AlignHooksError(Exception):
    """The base of all errors raised on purpose; a launcher prints the message and exits with ``exit_code``."""

    exit_code = 2


def in_a_line(error: BaseException) -> str:
    """Return any error's type and the first line of its message."""
    try:
        text = str(error).strip().splitlines()
    except Exception:  # the class is a framework's, whose __str__ may fail
        text = []
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def with_origin(error: BaseException) -> str:
    """Return :func:`in_a_line`, and the file, line and function that raised the error."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{in_a_line(error)} ({frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name})" if frames else in_a_line(error)


def printable(text: str) -> str:
    """Return foreign text in one line, with escapes for controls, marks of direction, surrogates and line separators."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape", "surrogatepass").decode() for letter in text)


def meant(name: str, known: Iterable[str]) -> str:
    """Return the question whether the nearest known name was meant; empty where none is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]}?" if near else ""


def no_such(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the statement that nothing of a kind has a name, and the question of :func:`meant`."""
    question = meant(name, known)
    return f"there is no {kind} {shown(name)!r}{question and f'; {question}'}"


def shown(text: str) -> str:
    """Return a person's text as a message repeats it: in one line, and cut where it is long."""
    return printable(text if len(text) <= LONG else f"{text[:LONG]}…")


class SettingsError(AlignHooksError):
    """An ``ALIGN_HOOKS_*`` variable, or a combination of them, cannot be honoured."""


class UnsupportedVersion(AlignHooksError):
    """A framework is installed in a version that a hook was not proven on."""


class AttachError(AlignHooksError):
    """A patch point of a hook is missing, or was patched after us."""


class RefusedRun(AlignHooksError):
    """The run as configured cannot be recorded, replayed or rehearsed; the message says what to change."""


class RecordError(AlignHooksError):
    """A record is missing, incomplete, foreign, or contradicts itself."""

    exit_code = 3


class NothingRecorded(AlignHooksError):
    """A request never happened, or recording stopped before the run did."""

    exit_code = 3
