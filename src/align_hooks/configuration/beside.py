"""Expressions by which a script names itself, its folder and a file beside it, without blanks and quotes."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from align_hooks.configuration.files import SCRIPT, read_text
from align_hooks.configuration.script import CONTINUED, Script, ShellWord
from align_hooks.configuration.values import ConfigurationError, Value
from align_hooks.messages import Argument

HERE = "\0"
"""Placeholder of the script's folder while a name is worked out."""
ABOVE = 3
"""Folders above a script that may be its repository's root: MindSpeed-LLM's scripts lie in ``examples/mcore/MODEL``."""
_NAME = re.compile(r"\$\{?(?:0|BASH_SOURCE(?:\[0\])?)\}?")
_CURRENT = re.compile(r"\$\(pwd\)|\$?`pwd`")
_INNER = r"([^$`()&;>]*)"
_DIRNAME = re.compile(rf"\$\(dirname(?:--)?{_INNER}\)|`dirname(?:--)?{_INNER}`")
_SAME = re.compile(rf"\$\((?:readlink-f|realpath)(?:--)?{_INNER}\)|\$\(cd(?:--)?{_INNER}(?:&?>/dev/null)?(?:2>&1)?(?:&&|;)pwd(?:-P)?\)")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


def file_beside(text: str) -> str | None:
    """Return the path, relative to the script's folder, that a text stands for; None for any other text."""
    found, before = _CURRENT.sub(HERE, _NAME.sub(f"{HERE}/0", re.sub("[\"']", "", text))), ""
    while found != before:  # from within
        before, found = found, _SAME.sub(lambda match: match[1] or match[2] or "", found)
        found = _DIRNAME.sub(lambda match: _above(match[1] or match[2] or ""), found)
    named = re.fullmatch(rf"{HERE}(?:/([^$`{HERE}]*))?", found)
    return named and (named[1] or "")


def folders_above(folder: Path) -> list[Path]:
    """Return a script's folder, and the folders above that may be the root of its repository."""
    resolved = folder.resolve()
    return [resolved, *resolved.parents[:ABOVE]]


def program_of(named: str, unknown: Argument, at: Value | None, folder: Path | None) -> tuple[str, Argument]:
    """Return the path of the Python file that a command of a script in ``folder`` names, and why the path is unknown.

    :param at: the folder to which the script changed before; None where it did not.
    """
    if at is not None and not named.startswith(("/", "$", "`")):
        named, unknown = f"{at.written}/{named}", unknown or at.unknown
    beside = file_beside(named) if unknown is not None and folder is not None else None
    return (named, unknown) if beside is None else (os.path.normpath(f"{folder}/{beside}"), None)


def _above(path: str) -> str:
    return f"{path}/.." if path.endswith((HERE, "/..")) else path.rpartition("/")[0]


def written_out(script: Script, text: str) -> str:
    """Return a text with each variable that stands for the script's name or folder replaced by the variable's text."""

    def expanded(found: re.Match[str]) -> str:
        words = script.variables.get(found[1] or found[2], [])
        return words[0].text if len(words) == 1 and words[0].unknown and file_beside(words[0].text) is not None else found[0]

    return _VARIABLE.sub(expanded, text)


SHELLS = ("bash", "sh")
READERS = (*SHELLS, "sbatch")
"""Commands that read a script."""
ELSEWHERE = ("docker", "kubectl", "podman", "ssh")
"""Commands that pass no variable on."""
SCRIPT_NAME = re.compile(r"\S+\.(sh|bash|sbatch|slurm|job)")


@dataclass(frozen=True, slots=True)
class Nested:
    """A text that another bash reads."""

    text: ShellWord
    arguments: Sequence[ShellWord]
    inherits: bool
    """Whether the other bash has the exported variables."""
    name: str = ""
    """The name of the file with the text; empty without a file."""


def script_in(script: Script, started: Sequence[ShellWord], document: ShellWord | None) -> Nested | None:
    """Return the script that a command's bash reads: the word of ``-c``, a file on this machine, or the here-document."""
    names = [Path(word.text).name for word in started]
    at = next((at for at, name in enumerate(names) if name in READERS), None)
    if at is None or any(name.endswith(".py") for name in names[:at]):
        return None
    inherits, rest = names[0] not in ELSEWHERE, list(started[at + 1 :])
    while rest and rest[0].text.startswith("-") and names[at] in SHELLS:
        option = rest.pop(0).text
        if re.fullmatch(r"-[a-z]*c", option) and rest:
            return None if rest[0].unknown and not rest[0].parts else Nested(rest[0], rest[2:], inherits)
        if re.fullmatch(r"-[a-z]*[oO]", option):
            del rest[:1]
    file = next((at for at, word in enumerate(rest) if SCRIPT_NAME.fullmatch(word.text) or names[0] in SHELLS), None)
    if file is None:
        return Nested(document, [], inherits) if document is not None else None
    path = Path(rest[file].text)
    if rest[file].unknown or script.moved or (script.folder is None and not path.is_absolute()):
        return None
    try:
        text = read_text(path if script.folder is None else script.folder / path, SCRIPT)
    except ConfigurationError:
        return None
    return Nested(ShellWord(text, 0), rest[file + 1 :], inherits, path.name)


def written_again(text: ShellWord) -> tuple[str, dict[str, list[ShellWord]]]:
    """Return a text that bash reads again, and the variables that stand in it for unknown parts."""
    written, stands = text.raw.replace(CONTINUED, "\\\n"), dict[str, list[ShellWord]]()
    for number, part in enumerate(part for part in text.parts or (text,) if part.unknown):
        stands[f"_unknown_{number}"] = [part]
        written = written.replace(part.raw, f"${{_unknown_{number}}}", 1)
    return written, stands
