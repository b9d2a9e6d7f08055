"""How a script names itself, its folder, and a file beside it, in texts without blanks and quotes."""

from __future__ import annotations

import os
import re
from pathlib import Path

from align_hooks.configuration.script import Script
from align_hooks.configuration.values import Value
from align_hooks.messages import Argument

HERE = "\0"
"""What stands for the script's folder while a name is worked out."""
ABOVE = 3
"""Folders above a script in which a file may lie that it names from the root of its repository: MindSpeed-LLM's scripts lie in
``examples/mcore/MODEL``."""
_NAME = re.compile(r"\$\{?(?:0|BASH_SOURCE(?:\[0\])?)\}?")
_CURRENT = re.compile(r"\$\(pwd\)|\$?`pwd`")
_INNER = r"([^$`()&;>]*)"
_DIRNAME = re.compile(rf"\$\(dirname(?:--)?{_INNER}\)|`dirname(?:--)?{_INNER}`")
_SAME = re.compile(rf"\$\((?:readlink-f|realpath)(?:--)?{_INNER}\)|\$\(cd(?:--)?{_INNER}(?:&?>/dev/null)?(?:2>&1)?(?:&&|;)pwd(?:-P)?\)")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


def file_beside(text: str) -> str | None:
    """The path, from the script's own folder, of a file that a text names so; None where it names it otherwise."""
    found, before = _CURRENT.sub(HERE, _NAME.sub(f"{HERE}/0", re.sub("[\"']", "", text))), ""
    while found != before:  # from within
        before, found = found, _SAME.sub(lambda match: match[1] or match[2] or "", found)
        found = _DIRNAME.sub(lambda match: _above(match[1] or match[2] or ""), found)
    named = re.fullmatch(rf"{HERE}(?:/([^$`{HERE}]*))?", found)
    return named and (named[1] or "")


def folders_above(folder: Path) -> list[Path]:
    """A script's folder, and those above it that may be the root of its repository."""
    resolved = folder.resolve()
    return [resolved, *list(resolved.parents)[:ABOVE]]


def program_of(named: str, unknown: Argument, at: Value | None, folder: Path | None) -> tuple[str, Argument]:
    """The path from here of the Python file that a command of a script in ``folder`` names, and why it is not known.

    ``at`` is where the script has gone before, None where it has not.
    """
    if at is not None and not named.startswith(("/", "$", "`")):
        named, unknown = f"{at.written}/{named}", unknown or at.unknown
    beside = file_beside(named) if unknown is not None and folder is not None else None
    return (named, unknown) if beside is None else (os.path.normpath(f"{folder}/{beside}"), None)


def _above(path: str) -> str:
    return f"{path}/.." if path.endswith((HERE, "/..")) else path.rpartition("/")[0]


def written_out(script: Script, text: str) -> str:
    """A text with each variable that holds the script's own name, or its folder, as that was written."""

    def held(found: re.Match[str]) -> str:
        words = script.variables.get(found[1] or found[2], [])
        return words[0].text if len(words) == 1 and words[0].unknown and file_beside(words[0].text) is not None else found[0]

    return _VARIABLE.sub(held, text)
