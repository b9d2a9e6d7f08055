"""One side's configuration: named values, each with the place where it was set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from align_hooks.errors import AlignHooksError
from align_hooks.messages import Argument, Message, message, rendered

MEGATRON, MINDFORMERS = "Megatron-LM", "MindFormers"
MINDSPEED, MINDSPEED_LLM = "MindSpeed", "MindSpeed-LLM"
"""Forks of Megatron-LM, whose arguments are Megatron-LM's and their own."""
Setting: TypeAlias = Any
"""A setting in the type that its framework gives it: an argument of Megatron-LM, a value of MindFormers' YAML, or a fact of a record."""
Facts: TypeAlias = Mapping[str, Setting]
"""A record's ``run.json``, whose trees of JSON a reading asks by path."""
KeyPath: TypeAlias = tuple[Any, ...]
"""Steps into lists, which are places, and into tables, which are keys."""
FRAMEWORKS = {"torch": MEGATRON, "ms": MINDFORMERS}
"""The framework of each side."""


class ConfigurationError(AlignHooksError):
    """A configuration cannot be read, or says two things at once; the exit code is that of usage."""


class Unknown(Exception):
    """A value is needed and not known; ``why`` says the reason."""

    def __init__(self, why: Argument) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        """The reason in words, which most that catch it never show."""
        return rendered(self.why)


class ConflictingValues(Unknown, ConfigurationError):
    """A configuration sets one thing to two values."""


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """Where something is set: a file or a command, its line (None of a whole file), and the option as it stands there."""

    source: str
    line: int | None = None
    name: str = ""

    def __str__(self) -> str:
        """``train.sh:31 --lr``, ``llama.yaml:88``, ``run.json``."""
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        return f"{place} {self.name}" if self.name else place

    @property
    def is_json(self) -> bool:
        """Whether it is a whole JSON file, as a model's ``config.json`` or a record is."""
        return self.line is None and self.source.endswith(".json")


@dataclass(frozen=True, slots=True)
class Tie:
    """What an anchor of a YAML gives one value."""

    anchor: str
    """The name of the anchor, which may be that of a section."""
    members: tuple[tuple[str, KeyPath], ...]
    """Each dotted key, with the path to the value within it, empty where it is all of it; that of the anchor itself first."""


@dataclass(frozen=True, slots=True)
class Value:
    """What a name is set to."""

    written: Setting
    """The value, or the text of one that is not known, such as ``$LOAD``."""
    place: SourceLocation | None = None
    """Where the value was set; None where nobody set it."""
    unknown: Argument = None
    """Why the value is not known, as where a script takes it from a variable that nothing sets; None where it is known."""
    tie: Tie | None = None
    """The anchor that gives the value to other keys too; None where none does."""

    @property
    def value(self) -> Setting:
        """The value.

        :raises Unknown: it is not known, so that nothing can be decided by it.
        """
        if self.unknown is not None:
            raise Unknown(self.unknown)
        return self.written

    @property
    def where(self) -> str:
        """The place in words, empty where there is none."""
        return str(self.place or "")


@dataclass(frozen=True, slots=True)
class Configuration:
    """What one side was told.

    ``values`` are Megatron's arguments by the name of their attribute, or MindFormers' keys with dots. ``environment`` are the variables
    that a script exports or a record noted. ``facts`` is a record's ``run.json``, None for a file. ``notes`` are what a reader should know
    of how the side was read; ``unread`` is a file that says more and is not on this machine. ``used`` collects the names that a row looked
    at; the others are shown as not covered. ``passed_over`` are names that the framework itself ignores, so that they do not count.
    ``gaps`` are where the side may say more that could not be followed, ``bounded`` the names of arguments that may be in one of them,
    where it is known that no others are. ``program`` is the Python file that a command starts. ``fork`` is the fork of Megatron-LM whose
    arguments these are, empty for Megatron-LM itself. ``version`` is that of the framework that reads them, empty where nothing says it.
    """

    side: str
    source: str
    values: Mapping[str, Value]
    environment: Mapping[str, Value] = field(default_factory=dict)
    facts: Facts | None = None
    notes: Sequence[Argument] = ()
    unread: str = ""
    used: set[str] = field(default_factory=set)
    passed_over: frozenset[str] = frozenset()
    gaps: tuple[Message, ...] = ()
    bounded: Mapping[Message, frozenset[str]] = field(default_factory=dict)
    program: str = ""
    lost: Argument = None
    """Why the path of the program is not known; None where it is."""
    fork: str = ""
    version: str = ""

    @property
    def account(self) -> SourceLocation:
        """Where the framework's own account of its arguments stands: a record, or the file that ``run --arguments-only`` wrote."""
        return SourceLocation(self.source if "parsed" in (self.facts or {}) else "run.json")

    def find(self, names: Sequence[str]) -> Value | None:
        """The value of the first of some names that was set to anything; all of them count as looked at.

        :raises Contradiction: two of the names, which mean the same, were set to different things.
        """
        self.used.update(names)
        named = [(name, self.values[name]) for name in names if name in self.values and name not in self.passed_over]
        named = [(name, value) for name, value in named if value.written is not None]
        for name, value in named[1:]:
            first_name, first = named[0]
            if not (first.unknown or value.unknown) and first.written != value.written and self.facts is None:
                ours = {"name": first_name, "value": repr(first.value), "place": first.where}
                theirs = {"other": name, "another": repr(value.value), "elsewhere": value.where}
                raise ConflictingValues(message("configuration.contradiction", **ours, **theirs))
        return named[0][1] if named else None

    def fact(self, path: str) -> Setting:
        """What a record says of what was built, by dotted path with numbers for places in lists; None where it says nothing."""
        fact: Setting = self.facts
        for part in path.split("."):
            if isinstance(fact, list | tuple):
                fact = fact[int(part)] if int(part) < len(fact) else None
            else:
                fact = fact.get(part) if isinstance(fact, Mapping) else None
        return fact

    def not_covered(self, ignored: Sequence[str] = ()) -> Iterator[tuple[str, Value]]:
        """Names that were set and that nobody looked at; ``ignored`` are prefixes of names that say nothing."""
        for name, value in self.values.items():
            if name not in self.used and not name.startswith(tuple(ignored)):
                yield name, value
