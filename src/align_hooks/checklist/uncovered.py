"""Settings that no row reads. One keeps a check from being clean unless ``changes_nothing.txt`` has its name, or name and value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from align_hooks.checklist.canonical_values import same, show
from align_hooks.checklist.lookup import MODEL
from align_hooks.checklist.resolvers.data import HANDLERS
from align_hooks.configuration.megatron import defaults_of, number
from align_hooks.configuration.values import MEGATRON, MINDFORMERS, MINDSPEED, Configuration, Setting, Value
from align_hooks.data_file import sections
from align_hooks.messages import Argument

FILE = Path(__file__).parent / "changes_nothing.txt"
PARTLY = (HANDLERS,)
"""Settings of which the rows read a part."""
LAUNCHER = "launcher."
"""The beginning of names of the launcher's own options, which only set the layout."""


class Uncovered(Struct, frozen=True):
    """A setting that no row reads."""

    name: str
    value: Argument
    where: str
    matters: bool
    """Whether the setting may change the result."""
    unknown: bool
    """Whether the value is not known, so that nobody knows whether the other side has the same."""


def not_covered(configuration: Configuration, covered: Set[str]) -> Iterator[tuple[str, Value]]:
    """Yield the settings that are not among the ``covered`` names, those that rows read, but for the launcher's own options."""
    for name, value in configuration.values.items():
        if name not in covered and not name.startswith(LAUNCHER):
            yield name, value


def uncovered(configuration: Configuration, covered: Set[str]) -> Iterator[Uncovered]:
    """Yield the settings of a side that no row read; a name that a YAML repeats by an alias once."""
    values = configuration.values
    places = {(value.place, name.rpartition(".")[2]) for name, value in values.items() if name in covered}
    partly = ((name, values[name]) for name in PARTLY if name in values)
    for name, value in (*not_covered(configuration, covered), *partly):
        place = (value.place, name.rpartition(".")[2])
        if configuration.facts is not None or value.place is None or place not in places or name in PARTLY:
            where = str(replace(value.place, name="")) if value.place is not None else configuration.source
            yield Uncovered(name, show(value.written), where, matters(configuration, name, value), value.unknown is not None)
        places.add(place)


def uncovered_differences(
    reference: Configuration, candidate: Configuration, covered: Set[str]
) -> tuple[tuple[str, Argument, Argument], ...]:
    """Return the settings that no row read and that are known to differ, of two sides of one framework."""
    if reference.side != candidate.side:  # whose names are not the same
        return ()
    unset = Value(None)
    names = [name for name in {**reference.values, **candidate.values} if name not in covered]
    pairs = [(name, reference.values.get(name, unset), candidate.values.get(name, unset)) for name in names]
    differ = [(name, ours, theirs) for name, ours, theirs in pairs if not (ours.unknown or theirs.unknown) and ours.value != theirs.value]
    return tuple((name, _shown(ours, unset), _shown(theirs, unset)) for name, ours, theirs in differ)


def _shown(value: Value, unset: Value) -> Argument:
    return "–" if value is unset else show(value.value)


def matters(configuration: Configuration, name: str, value: Value) -> bool:
    """Return whether a setting may change the result: it is not known to change nothing, and is no default of its framework."""
    if value.written in (None, "None", "", [], {}) or name in configuration.passed_over:
        return False
    # a record of MindFormers holds its defaults too; only names of the model are sure to be somebody's
    if configuration.facts is not None and configuration.side == MINDFORMERS and not name.startswith(MODEL):
        return False
    defaults = defaults_of(configuration.fork) if configuration.side == MEGATRON else {}
    if not value.unknown and name in defaults and same(value.value, defaults[name]):
        return False
    known = changing_nothing()[configuration.side] + (changing_nothing()[MINDSPEED] if configuration.fork else [])
    return not any(fnmatchcase(name, pattern) and _fits(value, at) for pattern, at in known)


def _fits(value: Value, at: Setting) -> bool:
    """Return whether a value is the one at which a setting changes nothing; ``at`` is None where it is any."""
    return at is None or (not value.unknown and same(value.value, at))


@lru_cache(maxsize=1)
def changing_nothing() -> Mapping[str, list[tuple[str, Setting]]]:
    """Return the harmless settings of each framework: a pattern of names, and the only harmless value, None for any."""

    def pair(word: str) -> tuple[str, Setting]:
        name, mark, at = word.partition("=")
        return name, number(at) if mark else None

    return {framework: [pair(word) for line in lines for word in line.split()] for framework, lines in sections(FILE).items()}
