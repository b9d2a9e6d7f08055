"""The YAML of MindFormers' PyNative trainer under the keys by which the static graph's YAML says the same, and back.

So one CheckList reads both trainers, and what it advises is written under the keys of the file at hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from align_hooks.configuration.values import Setting, SourceLocation, Value
from align_hooks.data_file import sections

PYNATIVE = "PyNative"
"""The trainer's name in a record."""
OF_GRAPH_MODE = ("model.model_config.", "model_config.", "runner_config.")
"""Sections of the static graph's trainer that this one's files lack."""
OF_FSDP = "data."
"""A section of MindSpeed-LLM's trainer for FSDP, whose YAML has a section ``training`` too."""
_TABLES = sections(Path(__file__).with_name("pynative_keys.txt"))


class OwnKey(Struct, frozen=True):
    """A key, or a section with a dot behind it."""

    own: str
    graph: str
    default: Setting = None
    """The trainer's own default; None where the static graph's holds."""


def _key(line: str) -> OwnKey:
    own, graph, *default = line.split(" ", 2)
    return OwnKey(own, graph, json.loads(default[0]) if default else None)


KEYS = tuple(map(_key, _TABLES["keys"]))
ALWAYS: Mapping[str, Setting] = {key: json.loads(value) for key, _, value in (line.partition(" ") for line in _TABLES["always"])}
UNREAD = frozenset(name for line in _TABLES["unread"] for name in line.split())
"""Names of a model that the trainer does not read."""


def is_pynative(keys: Iterable[str]) -> bool:
    """Return whether the keys are of a YAML for the PyNative trainer."""
    known = tuple(keys)
    return any(key.startswith("training.") for key in known) and not any(key.startswith((*OF_GRAPH_MODE, OF_FSDP)) for key in known)


def as_graph(values: Mapping[str, Value]) -> dict[str, Value]:
    """Return values under the static graph's keys, each with its own key in its place, and with the trainer's defaults."""
    read = {graph_key(key): _with_name(key, value) for key, value in values.items()}
    defaults = {key.graph: Value(key.default) for key in KEYS if key.default is not None}
    return {**defaults, **read, **{key: Value(value) for key, value in ALWAYS.items()}}


def recorded_arguments(arguments: Mapping[str, object] | None) -> Mapping[str, object]:
    """Return a record's arguments, those of the PyNative trainer under the static graph's keys; empty for None."""
    given = arguments or {}
    if not is_pynative(given):
        return given
    return {key: value.written for key, value in as_graph({key: Value(value) for key, value in given.items()}).items()}


def _with_name(key: str, value: Value) -> Value:
    place = value.place
    if place is None or place.line is None:
        return value
    return Value(value.written, SourceLocation(place.source, place.line, place.name or key), value.unknown, value.tie)


def graph_key(key: str) -> str:
    """Return the static graph's key for a key of the PyNative trainer."""
    return next((_moved(key, known.own, known.graph) for known in KEYS if _matches(key, known.own)), key)


def own_key(key: str) -> str:
    """Return the PyNative trainer's key for a key of the static graph; the key itself where it has none."""
    return next((_moved(key, known.graph, known.own) for known in KEYS if _matches(key, known.graph)), key)


def _matches(key: str, known: str) -> bool:
    return key.startswith(known) if known.endswith(".") else key == known


def _moved(key: str, old: str, new: str) -> str:
    return new + key[len(old) :] if old.endswith(".") else new
