"""One side of ``check``: a record, the file of ``run --arguments-only``, a script, YAML of either framework, or a command."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from align_hooks.configuration import mindspeed
from align_hooks.configuration.files import SCRIPT, TEXT, read_text
from align_hooks.configuration.megatron import FLAGS, number, read_command, read_script
from align_hooks.configuration.mindformers import read_yaml
from align_hooks.configuration.values import FRAMEWORKS, MEGATRON, Configuration, ConfigurationError, Facts, Setting, SourceLocation, Value
from align_hooks.configuration.yaml_files import YamlNode, parsed
from align_hooks.errors import RecordError, shown
from align_hooks.regular import whole_number


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
        return read_parsed(text, name)
    if kind in (".yaml", ".yml"):
        return read_model_args(text, name, environment) if has_model_args(text) else read_yaml(text, name, path.parent)
    return read_script(text, name, environment, folder=path.parent, given=shlex.join(["bash", side]))


def names(given: str, check: Callable[[Path], bool]) -> bool:
    """Return whether a text, which may be a command too long for a path, is a path that passes a check."""
    try:
        return check(Path(given))
    except (OSError, ValueError):
        return False


ARGUMENTS, ENVIRONMENT = "MODEL_ARGS", "ENV_VARS"


def has_model_args(text: str) -> bool:
    """Return whether a YAML text has a section of arguments."""
    return re.search(rf"^{ARGUMENTS}:", text, re.MULTILINE) is not None


def read_model_args(text: str, name: str, environment: Mapping[str, str]) -> Configuration:
    """Return the configuration of a file; ``environment`` wins over the file's own variables.

    :raises ConfigurationError: the text is no YAML, or its arguments start no training.
    """
    lines, variables = [""] * (text.count("\n") + 1), dict[str, Value]()
    with parsed(text, name) as (loader, root):
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


RUN = "run.json"


def read_parsed(text: str, source: str) -> Configuration:
    """Return the configuration in a file of ``align-hooks run --arguments-only``; raises ConfigurationError for any other file."""
    try:
        facts = json.loads(text, parse_int=whole_number)
        needed = {name: facts[name] for name in ("parsed", "side", "arguments")}
        return recorded({**needed, **{name: _table(facts.get(name)) for name in ("versions", "environment")}}, source)
    except (ValueError, TypeError, LookupError, RecursionError, RecordError):
        raise ConfigurationError(f"{source} is not what align-hooks run --arguments-only writes; name a file that it wrote") from None


def recorded(facts: Facts, source: str) -> Configuration:
    """Return the configuration of a run from its ``run.json``; raises RecordError for facts without arguments."""
    arguments = facts.get("arguments")
    if not isinstance(arguments, Mapping):
        raise RecordError(f"{source} holds no run.json with the framework's arguments; check the run's launch script instead")
    place = SourceLocation(source if "parsed" in facts else RUN)
    values = {str(name): Value(number(str(value)), place) for name, value in arguments.items()}
    environment = {
        str(name): Value(str(variable.get("value")), place)
        for name, variable in _table(facts.get("environment")).items()
        if isinstance(variable, Mapping) and variable.get("value") is not None
    }
    side = FRAMEWORKS.get(str(facts.get("side")), MEGATRON)
    fork = mindspeed.fork_of_record(values, FLAGS) if side == MEGATRON else ""
    return Configuration(side, source, mindspeed.by_attribute(values) if fork else values, environment, facts, fork=fork)


def _table(value: Setting) -> Facts:
    return value if isinstance(value, Mapping) else {}
