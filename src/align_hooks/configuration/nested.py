"""Scripts within a script: the text of a here-document, of ``bash -c``, or of a file that another bash reads.

Schedulers (``sbatch <<EOF``) and containers (``srun bash -c "…"``) get their jobs so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from align_hooks.configuration.files import SCRIPT, read_text
from align_hooks.configuration.script import CONTINUED, Script, ShellWord
from align_hooks.configuration.values import ConfigurationError

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
