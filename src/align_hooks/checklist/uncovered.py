"""Settings that no row looks at: each is listed, and one that is not known to change nothing keeps a check from being clean.

What is known to change nothing is data, in ``changes_nothing.txt``: names, or a name with a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

from align_hooks.checklist.readings.data import HANDLERS
from align_hooks.checklist.row import MODEL
from align_hooks.checklist.side_value import same, show
from align_hooks.configuration.megatron import defaults_of, number
from align_hooks.configuration.values import MEGATRON, MINDFORMERS, MINDSPEED, Configuration, Setting, Value
from align_hooks.data_file import sections
from align_hooks.messages import Argument

FILE = Path(__file__).parent / "changes_nothing.txt"
PARTLY = (HANDLERS,)
"""Settings of which the rows look at a part."""
LAUNCHER = "launcher."
"""What names of the launcher's own options begin with, of which nothing depends but the layout."""


@dataclass(frozen=True, slots=True)
class Uncovered:
    """A setting that no row looks at, and whether it ``matters``: it is not known to change nothing."""

    name: str
    value: Argument
    where: str
    matters: bool
    unknown: bool
    """Whether the value is not known, so that it is not known to be that of the other side either."""


def uncovered(configuration: Configuration) -> Iterator[Uncovered]:
    """Settings of a side that no row looked at; a name that a YAML repeats by an alias is given once."""
    values = configuration.values
    places = {(value.place, name.rpartition(".")[2]) for name, value in values.items() if name in configuration.used}
    partly = ((name, values[name]) for name in PARTLY if name in values)
    for name, value in (*configuration.not_covered((LAUNCHER,)), *partly):
        place = (value.place, name.rpartition(".")[2])
        if configuration.facts is not None or value.place is None or place not in places or name in PARTLY:
            where = str(replace(value.place, name="")) if value.place is not None else configuration.source
            yield Uncovered(name, show(value.written), where, matters(configuration, name, value), value.unknown is not None)
        places.add(place)


def unlike(reference: Configuration, candidate: Configuration) -> tuple[tuple[str, Argument, Argument], ...]:
    """Of two sides of one framework, all settings that no row looks at and that are known to differ, for the sides have the same names."""
    if reference.side != candidate.side:
        return ()
    unset, looked_at = Value(None), reference.used | candidate.used
    names = [name for name in {**reference.values, **candidate.values} if name not in looked_at]
    pairs = [(name, reference.values.get(name, unset), candidate.values.get(name, unset)) for name in names]
    differ = [(name, ours, theirs) for name, ours, theirs in pairs if not (ours.unknown or theirs.unknown) and ours.value != theirs.value]
    return tuple((name, _shown(ours, unset), _shown(theirs, unset)) for name, ours, theirs in differ)


def _shown(value: Value, unset: Value) -> Argument:
    return "–" if value is unset else show(value.value)


def matters(configuration: Configuration, name: str, value: Value) -> bool:
    """Whether a setting may change the result: it is not known to change nothing, and is not what its framework does without it.

    A record of MindFormers holds what was set and what MindFormers filled in; there only names of the model tell of somebody.
    """
    if value.written in (None, "None", "", [], {}) or name in configuration.passed_over:
        return False
    if configuration.facts is not None and configuration.side == MINDFORMERS and not name.startswith(MODEL):
        return False
    defaults = defaults_of(configuration.fork) if configuration.side == MEGATRON else {}
    if not value.unknown and name in defaults and same(value.value, defaults[name]):
        return False
    known = changing_nothing()[configuration.side] + (changing_nothing()[MINDSPEED] if configuration.fork else [])
    return not any(fnmatchcase(name, pattern) and _fits(value, at) for pattern, at in known)


def _fits(value: Value, at: Setting) -> bool:
    """Whether a value is the one at which a setting changes nothing; ``at`` is None where it is any."""
    return at is None or (not value.unknown and same(value.value, at))


@lru_cache(maxsize=1)
def changing_nothing() -> Mapping[str, list[tuple[str, Setting]]]:
    """Framework to what changes nothing there: a pattern of names, and the value at which it does, None for any."""
    return {
        framework: [
            (name, number(at) if mark else None) for line in lines for name, mark, at in (word.partition("=") for word in line.split())
        ]
        for framework, lines in sections(FILE).items()
    }
