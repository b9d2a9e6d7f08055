"""A value of one side: how it is read of the side's settings, and how it is written into them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import update_wrapper
from operator import attrgetter
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, field

from align_hooks.checklist.canonical_values import UNSET, CanonicalValue, plain
from align_hooks.checklist.edits import flag_of
from align_hooks.checklist.lookup import Read, known, value_of
from align_hooks.checklist.mindformers_models import DEFAULTS
from align_hooks.configuration import mindspeed
from align_hooks.configuration.megatron import CHOICES, flags_of
from align_hooks.configuration.values import MEGATRON, MINDFORMERS, Configuration, Setting, Unknown, Value
from align_hooks.data_file import sections
from align_hooks.messages import Argument, message

ODD = (TypeError, ValueError, ArithmeticError, AttributeError, LookupError)
"""Exceptions that a value of a wrong kind raises in a reader."""
MOST_MEMBERS = 128
"""Members of a list that are tried one by one: no model's setting has more."""
GROUP_LIST = "grouped_lr_schedule.grouped"
"""A list of groups, each with its own parameters: no value for a single number."""
TYPES = {name: kind for kind, lines in sections(Path(__file__).parent / "setting_types.txt").items() for name in " ".join(lines).split()}
"""Setting of MindFormers to the type of number that its class takes."""
SWITCH = ("use_", "enable_", "is_", "no_", "has_")
"""The beginnings of MindFormers' names for switches."""
Edits: TypeAlias = Mapping[str, Setting]
"""Keys to the values that they are given together; UNSET takes a key out."""


class Resolved(Struct, frozen=True):
    """A value as a side's settings give it."""

    value: Setting
    keys: frozenset[str]
    """The names that were asked for, set or not."""
    why: Argument = None
    """Why the value is not known; None where it is, or where nothing sets it."""


class EditRequest(Struct, frozen=True):
    """A value that a candidate is to have."""

    reference: Configuration
    candidate: Configuration
    wanted: Setting
    """The reference's canonical value."""
    keys: Sequence[str]
    """The candidate's keys that may be written, those that are set first."""


Write: TypeAlias = Callable[[EditRequest], Iterable[Edits]]
"""Yields ways of writing a value: keys to be written together. The caller tries each and takes the first that leads to the value,
so a way that does not does no harm, and the plainest stands first."""


class TracedConfiguration(Configuration, frozen=True):
    """A configuration that notes the names it is asked for."""

    asked: set[str] = field(default_factory=set)

    def find(self, names: Sequence[str]) -> Value | None:
        """Return the value of the first of some synonyms that is set, and note all of them."""
        self.asked.update(names)
        return Configuration.find(self, names)


_values_of = attrgetter(*Configuration.__struct_fields__)


def traced(configuration: Configuration) -> TracedConfiguration:
    """Return a copy that notes the names it is asked for."""
    return TracedConfiguration(*_values_of(configuration))


class Resolver:
    """A value that a framework computes of several settings: the function that reads it, and the one that writes it.

    ``@resolver`` makes one of a reader, ``@NAME.writer`` beside it adds how the value is written; without a writer one key is given it.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self.write: Write = one_key
        update_wrapper(self, read)

    def __call__(self, configuration: Configuration) -> Setting:
        """Return the value."""
        return self._read(configuration)

    def writer(self, write: Write) -> Write:
        """Make a function the way of writing the value."""
        self.write = write
        return write


resolver = Resolver


def resolved(read: Read, configuration: Configuration) -> Resolved:
    """Return what a reader makes of a configuration, and the names that it asked for."""
    copy = traced(configuration)
    value: Setting = UNSET
    why: Argument = None
    try:
        value = read(copy)
    except Unknown as unknown:
        why = unknown.why
    except ODD as odd:
        why = message("held.odd", source=configuration.source, error=str(odd))
    return Resolved(value, frozenset(copy.asked), why)


# ---- ways of writing a value


def one_key(request: EditRequest) -> Iterator[Edits]:
    """Yield one key with a value that may mean what is wanted and that the key accepts."""
    for key in request.keys:
        choices = choices_of(key, request.candidate)
        yield from ({key: value} for value in (*_copied(key, request), *_values(key, request), *choices))


def _copied(key: str, request: EditRequest) -> Iterator[Setting]:
    """Yield the reference's number for a key, where both sides are of one framework, so that all rows of the key agree."""
    reference, candidate = request.reference, request.candidate
    value = known(reference, key) if reference.side == candidate.side else None
    if isinstance(value, int) and accepts(key, value, candidate):
        yield value


def _values(key: str, request: EditRequest) -> Iterator[Setting]:
    """Yield the wanted value, a switch, what stands for nothing, or a number of the value; a list with one member replaced."""
    wanted, current = request.wanted, known(request.candidate, key)
    if isinstance(current, list):
        yield from [wanted] if isinstance(wanted, list) else []
        yield from ([*current[:at], wanted, *current[at + 1 :]] for at in range(min(len(current), MOST_MEMBERS)))
        return
    numbers = wanted.numbers if isinstance(wanted, CanonicalValue) else (1, 0) if wanted is None else ()
    integer = [int(wanted)] if isinstance(wanted, float) and wanted.is_integer() else []
    first = [*integer, wanted] if key.endswith("_steps") else [wanted, *integer]
    switch = isinstance(wanted, bool)
    yield from (value for value in (*first, True, False, *numbers) if accepts(key, value, request.candidate, switch))


def one_of(*choices: Setting) -> Write:
    """Return a writer of all values that a key accepts, none of which is the wanted value itself."""
    return lambda request: ({key: choice} for key in request.keys for choice in choices)


def one_more(member: Setting) -> Write:
    """Return a writer of a list with one member more."""

    def write(request: EditRequest) -> Iterator[Edits]:
        lists = ((key, value_of(request.candidate, (key,), [])) for key in request.keys)
        yield from ({key: [*members, member]} for key, members in lists if isinstance(members, list))

    return write


def no_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield nothing, where no way is known from here, such as the path of a data set on another machine."""
    return iter(())


# ---- the values that a key accepts


def accepts(key: str, value: Setting, candidate: Configuration, switch: bool = False) -> bool:
    """Return whether a key accepts a value; ``switch``: the key is on or off where neither its default nor its name says it."""
    if value is None:
        return True
    if isinstance(value, CanonicalValue | Enum) or (isinstance(value, str) and re.search(r"[\s(]", value)):  # no key accepts a sentence
        return False
    if not is_choice(key, value, candidate):
        return False
    kind = _kind(key, candidate, switch)
    if isinstance(value, bool) or kind == "nothing" or key == GROUP_LIST:
        return isinstance(value, bool) and kind == "nothing"
    numbers = {"integer": isinstance(value, int), "number": isinstance(value, int | float), "float": isinstance(value, int | float)}
    return numbers.get(kind, not isinstance(value, list | frozenset))


def choices_of(key: str, candidate: Configuration) -> Sequence[str]:
    """Return all values that Megatron's parser accepts for an attribute; none where any is accepted, or of MindFormers."""
    flag = flag_of(key)[0].replace("_", "-")
    if candidate.side != MEGATRON or flag not in CHOICES:
        return ()
    return (*CHOICES[flag], *(mindspeed.CHOICES.get(flag, ()) if candidate.fork else ()))


def is_choice(key: str, value: Setting, candidate: Configuration) -> bool:
    """Return whether a key's parser has a value among its choices; None leaves the key out."""
    known = choices_of(key, candidate)
    return value is None or not known or all(one in known for one in (value if isinstance(value, list) else [value]))


def _kind(key: str, candidate: Configuration, switch: bool) -> str:
    """Return the kind of value of a key by Megatron's parser; of MindFormers by its type, current value, default or name."""
    if candidate.side == MEGATRON:
        flag, constant = flag_of(key)
        return "nothing" if constant is not None else flags_of(candidate.fork).get(flag.replace("_", "-"), "text")
    if (checked := type_of(key)) is not None:
        return checked
    name, usual = key.rpartition(".")[2], known(candidate, key)
    usual = usual if usual is not None else next(iter(DEFAULTS.get(name, {}).values()), None)
    if isinstance(usual, bool) or (usual is None and (switch or name.startswith(SWITCH))):
        return "nothing"
    return "number" if isinstance(usual, int | float) else "text"


def type_of(key: str) -> str | None:
    """Return the type of number that MindFormers accepts for a key; None of anything else, or of a type that is not known."""
    return TYPES.get(key) or TYPES.get(key.rpartition(".")[2])


def as_accepted(key: str, value: Setting, candidate: Configuration) -> Setting:
    """Return a value in the type that MindFormers accepts: not ``hidden_dropout: 0``, nor ``warmup_steps: 2.0``."""
    kind = type_of(key) if candidate.side == MINDFORMERS else None
    if isinstance(value, list) and kind is not None:
        return [as_accepted(key, member, candidate) for member in value]
    number = plain(value)
    if kind is None or isinstance(number, bool) or not isinstance(number, int | float):
        return value
    return float(number) if kind == "float" else int(number) if kind == "integer" and number == int(number) else number
