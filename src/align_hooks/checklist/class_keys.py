"""Names that the configuration classes of MindFormers' older models read, by release: data, in ``class_keys.txt``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from align_hooks.checklist.readings.lookup import is_since
from align_hooks.checklist.row import MODEL, is_new
from align_hooks.configuration.values import MINDFORMERS, Configuration
from align_hooks.data_file import sections

FILE = Path(__file__).parent / "class_keys.txt"
EVERY = "every"
"""The section of names that are read whatever the class is."""
OF_CLASS = f"{MODEL}type"


def class_of(configuration: Configuration) -> str:
    """Return the configuration class of an older model, as the table writes it; empty where it is not in the table, or not named."""
    kind = configuration.values.get(OF_CLASS)
    if configuration.side != MINDFORMERS or is_new(configuration) or kind is None:
        return ""
    return next((name for name in classes() if name.lower() == str(kind.value).lower()), "")


def keys_read(kind: str, version: str) -> frozenset[str]:
    """Return the names under ``model_config`` that a class reads in a release, with those of its parents and of every class."""
    parent, own = classes()[kind]
    names = {name for name, since in {**own, **classes()[EVERY][1]}.items() if is_since(version, *since)}
    return frozenset(names | (keys_read(parent, version) if parent else frozenset()))


def own_keys(kind: str, version: str) -> frozenset[str]:
    """Return the same names without those of every class."""
    return keys_read(kind, version) - classes()[EVERY][1].keys()


def not_read(configuration: Configuration) -> Iterator[str]:
    """Yield the names, tables' members too, that a configuration sets and its class does not read."""
    kind = class_of(configuration)
    read = keys_read(kind, configuration.version) if kind else frozenset[str]()
    for name in configuration.values if kind else ():
        if name.startswith(MODEL) and name.removeprefix(MODEL).partition(".")[0] not in read:
            yield name


@lru_cache(maxsize=1)
def classes() -> Mapping[str, tuple[str, Mapping[str, tuple[int, ...]]]]:
    """Class to the class that it is made of, and to its names, each with the release from which on it is read, empty where that is all."""
    table = {}
    for head, lines in sections(FILE).items():
        kind, _, parent = head.partition(" ")
        words = (word.partition("@") for line in lines for word in line.split())
        table[kind] = parent, {name: tuple(map(int, since.split("."))) if since else () for name, _, since in words}
    return table
