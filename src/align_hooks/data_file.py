"""The package's own tables of facts, which are text files beside the modules that read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def sections(path: Path) -> dict[str, list[str]]:
    """Return the lines below each head, ``[head]``, without comments and empty lines; what stands before the first head is below ``""``."""
    found: dict[str, list[str]] = {}
    head = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            head = line.strip("[]")
        elif line and not line.startswith("#"):
            found.setdefault(head, []).append(line)
    return found


def setting(text: str) -> Any:
    """Return a value as a table has it: a number, ``true``, ``false`` or ``null`` as in JSON, else a text."""
    try:
        return json.loads(text)
    except ValueError:
        return text
