"""One side of ``check``: a record, the file of ``run --arguments-only``, a script, YAML of either framework, or a command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec.structs import replace

from align_hooks.configuration.files import SCRIPT, TEXT, read_text
from align_hooks.configuration.megatron import read_command, read_script
from align_hooks.configuration.mindformers import read_yaml
from align_hooks.configuration.recorded import parsed
from align_hooks.configuration.values import Configuration, ConfigurationError, SourceLocation, Value
from align_hooks.configuration.yaml_files import YamlNode
from align_hooks.configuration.yaml_files import parsed as parsed_yaml
from align_hooks.errors import shown

ARGUMENTS, ENVIRONMENT = "MODEL_ARGS", "ENV_VARS"
"""Sections of the YAML files of Megatron-LM's own tests: a flag and its value a line, and variables."""


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


def has_model_args(text: str) -> bool:
    """Return whether a YAML text has a section of arguments."""
    return re.search(rf"^{ARGUMENTS}:", text, re.MULTILINE) is not None


def read_model_args(text: str, name: str, environment: Mapping[str, str]) -> Configuration:
    """Return the configuration of a file; ``environment`` wins over the file's own variables.

    ``tests/functional_tests/shell_test_utils/_run_training.sh`` makes words of bash of the sections, and so does this function.

    :raises ConfigurationError: the text is no YAML, or its arguments start no training.
    """
    lines, variables = [""] * (text.count("\n") + 1), dict[str, Value]()
    with parsed_yaml(text, name) as (loader, root):
        sections = {key.value: node for key, node in root.value if node.id == "mapping"}
        for section, node in sections.items():
            loader.flatten_mapping(node)
            for key, value in node.value:
                if section == ARGUMENTS:
                    lines[key.start_mark.line] += f" {key.value} {_words(value)}"
                elif section == ENVIRONMENT:
                    variables[str(key.value)] = Value(str(value.value), SourceLocation(name, key.start_mark.line + 1))
    own = {key: value.value for key, value in variables.items()}
    return replace(read_script("\n".join(lines), name, {**own, **environment}), environment=variables)


def _words(node: YamlNode) -> str:
    """Return a value as the runner writes it for bash: in quotes where bash would split it."""
    if node.id == "sequence":
        return " ".join(map(_words, node.value))
    text = str(node.value).strip()
    if text.lower() == "true":  # a flag that takes no value
        return ""
    if re.fullmatch(r"\[[^]]+\]", text):
        return text[1:-1]
    return f'"{text}"' if re.search(r"[ |()]", text) else text
