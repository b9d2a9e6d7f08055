"""The package's own tables of facts: text files beside the modules that read them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


def sections(path: Path) -> dict[str, list[str]]:
    """Return the lines below each head, ``[head]``, without comments and empty lines; lines before the first head are below ``""``."""
    found: dict[str, list[str]] = {}
    head = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            head = line.strip("[]")
        elif line and not line.startswith("#"):
            found.setdefault(head, []).append(line)
    return found


def setting(text: str) -> Any:
    """Return a value of a table: a number, ``true``, ``false`` or ``null`` as in JSON, else a text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def columns(words: Iterable[str], names: Sequence[str]) -> dict[str, list[str]]:
    """Return the words of a row behind each column name; none where the row does not have the column."""
    given: dict[str, list[str]] = {name: [] for name in names}
    column = ""
    for word in words:
        if word in given:
            column = word
        else:
            given[column].append(word)
    return given
