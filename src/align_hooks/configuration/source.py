"""One side of ``check``: a record, the file of ``run --arguments-only``, a script, YAML of either framework, or a command."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

from align_hooks.configuration.files import SCRIPT, TEXT, read_text
from align_hooks.configuration.megatron import read_command, read_script
from align_hooks.configuration.mindformers import read_yaml
from align_hooks.configuration.model_args import has_model_args, read_model_args
from align_hooks.configuration.recorded import parsed
from align_hooks.configuration.values import Configuration, ConfigurationError
from align_hooks.errors import shown


def read(side: str, environment: Mapping[str, str]) -> Configuration:
    """Return the configuration of a file or a quoted command; :mod:`recorded` reads a directory, which is a record.

    :raises ConfigurationError: there is no such file, or the file cannot be read.
    """
    if not side.strip():
        raise ConfigurationError("a side is empty; name a run's directory, a launch script, a YAML file, or quote a command")
    if not names(side, Path.is_file):
        if " " in side.strip() or side.startswith("--"):
            return read_command(side, environment)
        raise ConfigurationError(
            f"{shown(side)} is no file and no recorded run; name a run's directory, a launch script (.sh), a YAML file (.yaml), or quote "
            f"a command with its arguments"
        )
    path = Path(side)
    kind, name = path.suffix.lower(), shown(path.name)
    text = read_text(path, TEXT if kind in (".json", ".yaml", ".yml") else SCRIPT)
    if kind == ".json":
        return parsed(text, name)
    if kind in (".yaml", ".yml"):
        return read_model_args(text, name, environment) if has_model_args(text) else read_yaml(text, name, path.parent)
    return read_script(text, name, environment, folder=path.parent, given=shlex.join(["bash", side]))


def names(given: str, check: Callable[[Path], bool]) -> bool:
    """Return whether a text, which may be a command too long for a path, is a path that passes a check."""
    try:
        return check(Path(given))
    except (OSError, ValueError):
        return False
