"""MindFormers' YAML files, keys with dots, each value with its line.

Loaded as MindFormers loads them, by the safe loader of YAML 1.1, which makes objects of no tag and text of ``1e-8``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, TypeAlias

from align_hooks.configuration.files import read_text
from align_hooks.configuration.values import MINDFORMERS, Configuration, ConfigurationError, Place, Setting, Value
from align_hooks.messages import Message, message

YamlNode: TypeAlias = Any
"""A node of PyYAML, which is imported only where a YAML file is read."""
YamlLoader: TypeAlias = Any
"""PyYAML's safe loader of a text."""
MOST = 100_000
"""Values of a file, and no more: by aliases a few lines can make more than a machine holds."""
DEEPEST = 10_000
MODEL = "model.model_config."
SECTIONS = ("model.", "runner_config.", "trainer.", "optimizer.", "model_config.")
HUGGING_FACE = ("pretrained_model_dir", "model.pretrained_model_dir", "model.model_config.pretrained_model_dir")


def read_yaml(text: str, name: str, folder: Path) -> Configuration:
    """A YAML file, over the files that its ``base_config`` names; with ``pretrained_model_dir`` the ``config.json`` there, if it is here.

    :raises ConfigurationError: it is no YAML, holds a tag, a key twice, or is no MindFormers configuration.
    """
    values = _with_bases(text, name, folder, ())
    if not any(key.startswith(SECTIONS) for key in values):
        raise ConfigurationError(f"{name} is no MindFormers configuration: it has no section model, runner_config or optimizer")
    notes, unread = _hugging_face(values, folder)
    return Configuration(MINDFORMERS, name, values, notes=notes, unread=unread)


def _with_bases(text: str, name: str, folder: Path, above: tuple[Path, ...]) -> dict[str, Value]:
    """A file's values, and below them those of the files that it stands over, which may stand over others."""
    values = leaves(text, name)
    for base in _bases(values):
        file = (folder / base).resolve()
        if file in above:
            raise ConfigurationError(f"{name} stands over base_config {file}, which stands over it; take one out")
        try:
            below = _with_bases(read_text(file), file.name, file.parent, (*above, file))
        except ConfigurationError as error:
            raise ConfigurationError(
                f"{name} stands over base_config {file}, which cannot be read: {error}; copy it beside the YAML"
            ) from None
        for key, value in below.items():
            values.setdefault(key, value)
    return values


def _bases(values: dict[str, Value]) -> list[str]:
    named = values.pop("base_config", None)
    names = [] if named is None else named.value if isinstance(named.value, list) else [named.value]
    return [str(name) for name in reversed(names)]


def leaves(text: str, name: str) -> dict[str, Value]:
    """Every value of a YAML file by its dotted key.

    :raises ConfigurationError: it is no YAML, holds a tag or a key twice, or PyYAML is not installed.
    """
    try:
        import yaml
    except ModuleNotFoundError:
        raise ConfigurationError("reading a YAML file needs PyYAML, which is not installed; pip install 'align-hooks[cli]'") from None
    values: dict[str, Value] = {}
    if max(map(len, re.findall(r"[\[{][\[{\s]*", text)), default=0) > DEEPEST:  # the parser is in C, and ends the process
        raise ConfigurationError(f"{name} cannot be read as YAML: it opens more than {DEEPEST} brackets, one in another")
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
        node = loader.get_single_node()
        if node is not None and _size(node, {}) > MOST:
            raise ConfigurationError(f"{name} unfolds into more than {MOST} values; take its aliases out")
        if isinstance(node, yaml.MappingNode):
            _flatten(loader, node, "", name, values, ())
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}" if mark is not None else name
        problem = str(getattr(error, "problem", None) or error).splitlines()[0]
        if "constructor" in problem:
            tag = problem.rpartition("tag ")[2].strip("'")
            problem = f"the tag {tag} makes an object, and MindFormers reads none; nothing was executed, take it out"
        raise ConfigurationError(f"{where} cannot be read as YAML: {problem}") from None
    except (RecursionError, ValueError, TypeError, LookupError) as error:
        raise ConfigurationError(
            f"{name} cannot be read as YAML: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        ) from None
    return values


def _flatten(loader: YamlLoader, node: YamlNode, prefix: str, name: str, values: dict[str, Value], above: tuple[int, ...]) -> None:
    """Every leaf of a mapping under its dotted key."""
    import yaml

    if id(node) in above:
        raise ConfigurationError(f"{name}:{node.start_mark.line + 1} holds itself; take the alias out")
    seen: dict[str, int] = {}
    for key_node, _ in node.value:
        key, line = str(key_node.value), key_node.start_mark.line + 1
        if key in seen and key != "<<":
            raise ConfigurationError(f"{prefix}{key} is given twice, in {name}:{seen[key]} and {name}:{line}; leave one out")
        seen[key] = line
    loader.flatten_mapping(node)
    for key_node, value_node in node.value:
        key = prefix + str(key_node.value)
        if isinstance(value_node, yaml.MappingNode) and value_node.tag != "tag:yaml.org,2002:map":
            loader.construct_undefined(value_node)  # raises
        if isinstance(value_node, yaml.MappingNode):
            _flatten(loader, value_node, f"{key}.", name, values, (*above, id(node)))
        else:
            values[key] = Value(_constructed(loader, value_node), Place(name, key_node.start_mark.line + 1))


def _constructed(loader: YamlLoader, node: YamlNode) -> Setting:
    """The value of a node. PyYAML has no error of its own for a tag such as ``!!timestamp`` on a value that is none."""
    try:
        return loader.construct_object(node, deep=True)
    except (AttributeError, LookupError, TypeError, ValueError):
        kind = node.tag.rpartition(":")[2]
        raise ValueError(f"line {node.start_mark.line + 1} has no {kind} where its tag, or its form, says so") from None


def _size(node: YamlNode, known: dict[int, int]) -> int:
    """How many values a node unfolds into, each alias counted; the time it takes is that of the text as written."""
    if id(node) not in known:
        known[id(node)] = MOST + 1  # of one that holds itself
        inner = node.value if isinstance(node.value, list) else []
        pieces = [piece for piece in inner for piece in (piece if isinstance(piece, tuple) else (piece,))]
        known[id(node)] = 1 + sum(_size(piece, known) for piece in pieces)
    return known[id(node)]


def _hugging_face(values: dict[str, Value], folder: Path) -> tuple[list[Message], str]:
    """Add what the Hugging Face configuration says, below the YAML's own keys; the notes on it, and its path where it is not here."""
    folder_value = next((values[key] for key in HUGGING_FACE if key in values and values[key].value), None)
    if folder_value is None:
        return [], ""
    file = folder / str(folder_value.value) / "config.json"
    if not file.is_file():
        return [message("configuration.no_model_file", place=folder_value.where, file=str(file))], str(file)
    try:
        facts = json.loads(read_text(file))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{file} cannot be read as JSON: {str(error).splitlines()[0]}") from None
    if not isinstance(facts, dict):
        raise ConfigurationError(f"{file} is no Hugging Face configuration: it holds no table")
    for key, value in facts.items():
        nested = {f"{key}.{name}": inner for name, inner in value.items()} if isinstance(value, dict) else {key: value}
        for name, inner in nested.items():
            values.setdefault(MODEL + name, Value(inner, Place(str(file))))
    return [message("configuration.model_file", file=str(file))], ""
