"""How a script names itself, its folder, and a file beside it, in texts without blanks and quotes."""

from __future__ import annotations

import re

from align_hooks.configuration.script import Script

_NAME = r"\$\{?(?:0|BASH_SOURCE(?:\[0\])?)\}?"
_ITSELF = rf"(?:{_NAME}|\$\((?:readlink-f|realpath)(?:--)?{_NAME}\))"
_DIRNAME = rf"(?:\$\(|`)dirname(?:--)?{_ITSELF}[)`]"
_FOLDER = rf"(?:{_DIRNAME}|\$\(cd(?:--)?{_DIRNAME}(?:&?>/dev/null)?(?:2>&1)?(?:&&|;)pwd(?:-P)?\)|\$\(pwd\)|\$?`pwd`)"
BESIDE = re.compile(rf"{_FOLDER}/([^$`]*)")
PLACE = re.compile(rf"{_ITSELF}|{_FOLDER}")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


def file_beside(text: str) -> str | None:
    """The path, from the script's own folder, of a file that a text names so; None where it names it otherwise."""
    named = BESIDE.fullmatch(_plain(text))
    return named and named[1]


def written_out(script: Script, text: str) -> str:
    """A text with each variable that holds the script's own name, or its folder, as that was written."""

    def held(found: re.Match[str]) -> str:
        words = script.variables.get(found[1] or found[2], [])
        return words[0].text if len(words) == 1 and words[0].unknown and PLACE.fullmatch(_plain(words[0].text)) else found[0]

    return _VARIABLE.sub(held, text)


def _plain(text: str) -> str:
    return re.sub("[\"']", "", text)
