"""MindFormers' YAML files, over those that ``base_config`` names and the ``config.json`` of ``pretrained_model_dir``."""

from __future__ import annotations

import json
from pathlib import Path

from align_hooks.configuration.files import read_text
from align_hooks.configuration.values import MINDFORMERS, Configuration, ConfigurationError, SourceLocation, Value
from align_hooks.configuration.yaml_files import leaves
from align_hooks.errors import shown
from align_hooks.messages import Message, message
from align_hooks.regular import whole_number

MOST_BASES = 8
"""Largest depth of ``base_config``."""
MODEL = "model.model_config."
SECTIONS = ("model.", "runner_config.", "trainer.", "optimizer.", "model_config.")
OF_GRAPH_MODE = ("model.model_config.", "model_config.", "runner_config.")
"""Sections of MindFormers' trainer of GRAPH_MODE that the other trainers' files lack."""
COPIES = ("train_dataset_task.dataset_config.", "eval_dataset_task.dataset_config.")
"""Sections that MindFormers overwrites with ``train_dataset`` and ``eval_dataset`` (1.9, ``trainer/base_trainer.py:1038``)."""
HUGGING_FACE = ("pretrained_model_dir", "model.pretrained_model_dir", "model.model_config.pretrained_model_dir")


def read_yaml(text: str, name: str, folder: Path) -> Configuration:
    """Read a YAML file, the files of its ``base_config``, and the ``config.json`` in its ``pretrained_model_dir``, if that is here.

    :raises ConfigurationError: a file is no YAML, holds a tag or a key twice, or is no configuration of the trainer of GRAPH_MODE.
    """
    values = _with_bases(text, name, folder, (), {})
    if any(key.startswith("training.") for key in values) and not any(key.startswith(OF_GRAPH_MODE) for key in values):
        trainer = "MindSpeed-LLM's FSDP2" if any(key.startswith("data.") for key in values) else "MindFormers' PYNATIVE_MODE"
        raise ConfigurationError(f"{name} has the sections of {trainer}, which are not read yet; name a YAML of GRAPH_MODE, or a run")
    if not any(key.startswith(SECTIONS) for key in values):
        raise ConfigurationError(f"{name} is no MindFormers configuration: it has no section model, runner_config or optimizer")
    values = {key: value for key, value in values.items() if not key.startswith(COPIES)}
    notes, unread = _hugging_face(values, folder)
    return Configuration(MINDFORMERS, name, values, notes=notes, unread=unread)


def _with_bases(text: str, name: str, folder: Path, above: tuple[Path, ...], known: dict[Path, dict[str, Value]]) -> dict[str, Value]:
    """Return a file's values, with those of its base files as defaults; ``known`` has the files that were read already."""
    values = leaves(text, name)
    for base in _bases(values):
        file = (folder / base).resolve()
        if file in above or len(above) > MOST_BASES:
            raise ConfigurationError(f"{name} stands over base_config {shown(str(file))}, which stands over it; take one out")
        try:
            if file not in known:
                known[file] = _with_bases(read_text(file), shown(file.name), file.parent, (*above, file), known)
            below = known[file]
        except ConfigurationError as error:
            raise ConfigurationError(
                f"{name} stands over base_config {shown(str(file))}, which cannot be read: {error}; copy it beside the YAML"
            ) from None
        for key, value in below.items():
            values.setdefault(key, value)
    return values


def _bases(values: dict[str, Value]) -> list[str]:
    named = values.pop("base_config", None)
    names = [] if named is None else named.value if isinstance(named.value, list) else [named.value]
    return [str(name) for name in reversed(names)]


def _hugging_face(values: dict[str, Value], folder: Path) -> tuple[list[Message], str]:
    """Add the values of the Hugging Face configuration as defaults; return notes, and the file's path where it is not here."""
    folder_value = next((values[key] for key in HUGGING_FACE if key in values and values[key].value), None)
    if folder_value is None:
        return [], ""
    file = folder / str(folder_value.value) / "config.json"
    if not file.is_file():
        return [message("configuration.no_model_file", place=folder_value.where, file=str(file))], str(file)
    try:
        facts = json.loads(read_text(file), parse_int=whole_number)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{shown(str(file))} cannot be read as JSON: {str(error).splitlines()[0]}") from None
    if not isinstance(facts, dict):
        raise ConfigurationError(f"{shown(str(file))} is no Hugging Face configuration: it holds no table")
    own = {name.removeprefix(MODEL).partition(".")[0] for name in values if name.startswith(MODEL)}
    for key, value in facts.items():
        if key.partition(".")[0] in own:  # a table of the YAML replaces all of the file's
            continue
        nested = {f"{key}.{name}": inner for name, inner in value.items()} if isinstance(value, dict) else {key: value}
        for name, inner in nested.items():
            values.setdefault(MODEL + name, Value(inner, SourceLocation(str(file))))
    return [message("configuration.model_file", file=str(file))], ""
