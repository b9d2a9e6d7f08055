"""Files that people name: regular, text, and of a size that somebody wrote."""

from __future__ import annotations

from pathlib import Path

from align_hooks.configuration.values import ConfigurationError

LARGEST = 1_000_000
"""Bytes of a configuration; no script or YAML comes near."""


def read_text(path: Path) -> str:
    """The text of a file.

    :raises ConfigurationError: it is not there, no regular file, too large, or no text.
    """
    wanted = "name a launch script, a list of arguments or a YAML file"
    try:
        if not path.is_file():
            raise ConfigurationError(f"{path} is no file; {wanted}")
        if path.stat().st_size > LARGEST:
            raise ConfigurationError(f"{path} is larger than {LARGEST} bytes; {wanted}")
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
        if b"\0" in content or len(content) > LARGEST:
            raise ConfigurationError(f"{path} is no text; {wanted}")
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is no text; {wanted}") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"{str(path)[:200]} cannot be read: {why}; name a file that you may read") from None
