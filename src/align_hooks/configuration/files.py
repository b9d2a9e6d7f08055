"""Text files that people name, of limited size."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from align_hooks.configuration.values import ConfigurationError
from align_hooks.errors import shown
from align_hooks.regular import read_regular

TEXT: Sequence[str] = ("utf-8",)
SCRIPT: Sequence[str] = ("utf-8", "gb18030", "latin-1")
"""Encodings of a script, tried in this order: bash reads bytes, and comments may be in any encoding."""
LARGEST = 1_000_000
"""Most bytes of a configuration."""


def read_text(path: Path, encodings: Sequence[str] = TEXT) -> str:
    """Return the text of a file; raises ConfigurationError for a missing, irregular or too large file, and for one that is no text."""
    wanted = "name a launch script, a list of arguments or a YAML file"
    try:
        if not path.is_file():
            raise ConfigurationError(f"{shown(str(path))} is no file; {wanted}")
        content = read_regular(path, LARGEST)
        if b"\0" in content:
            raise ConfigurationError(f"{shown(str(path))} is no text; {wanted}")
        for encoding in encodings:
            with suppress(UnicodeDecodeError):
                return content.decode(encoding)
        raise ConfigurationError(f"{shown(str(path))} is no text; {wanted}")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"{shown(str(path))} cannot be read: {why}; name a file that you may read") from None
