"""One side's configuration: named values, each with the place where it was set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct, field

from align_hooks.errors import AlignHooksError
from align_hooks.messages import Argument, Message, message, rendered

MEGATRON, MINDFORMERS = "Megatron-LM", "MindFormers"
MINDSPEED, MINDSPEED_LLM = "MindSpeed", "MindSpeed-LLM"
"""Forks of Megatron-LM, whose arguments are Megatron-LM's and their own."""
Setting: TypeAlias = Any
"""A setting in the type that its framework gives it: an argument of Megatron-LM, a value of MindFormers' YAML, a fact of a record."""
Facts: TypeAlias = Mapping[str, Setting]
"""A record's ``run.json``."""
KeyPath: TypeAlias = tuple[Any, ...]
"""Indices into lists and keys into tables, the outermost first."""
FRAMEWORKS = {"torch": MEGATRON, "ms": MINDFORMERS}
"""The framework of each side."""


class ConfigurationError(AlignHooksError):
    """A configuration cannot be read, or contradicts itself; the exit code is that of usage."""


class Unknown(Exception):
    """A value is needed and not known; ``why`` is the reason."""

    def __init__(self, why: Argument) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return rendered(self.why)  # here, for most handlers never show the reason


class MissingArgument(Message, frozen=True, eq=False):
    """That a value is an argument of the script itself, which nobody gives."""

    script: str = ""


class UnsetVariable(Message, frozen=True, eq=False):
    """That nothing sets a variable of a script, which is then empty in bash."""


class UndecidedVariable(Message, frozen=True, eq=False):
    """That a script sets a variable, to any number of words, in a way that only a run shows."""


class IncompleteSide(Message, frozen=True, eq=False):
    """That a part of a side was not read, for want of a file or of arguments."""


class ConflictingValues(Unknown, ConfigurationError):
    """A configuration sets one thing to two values."""


class SourceLocation(Struct, frozen=True):
    """Where something is set."""

    source: str
    """A file, or a command."""
    line: int | None = None
    """None for all of a file."""
    name: str = ""
    """The option as written there."""

    def __str__(self) -> str:
        """``train.sh:31 --lr``, ``llama.yaml:88``, ``run.json``."""
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        return f"{place} {self.name}" if self.name else place

    @property
    def is_json(self) -> bool:
        """Whether the location is all of a JSON file, such as a model's ``config.json`` or a record."""
        return self.line is None and self.source.endswith(".json")


class Tie(Struct, frozen=True):
    """The keys that share one value of a YAML by an anchor."""

    anchor: str
    """The name of the anchor, which may be that of a section."""
    members: tuple[tuple[str, KeyPath], ...]
    """Each dotted key with the path to the value within it (empty: all of it); the key with the anchor first."""


class Value(Struct, frozen=True):
    """The value of a name."""

    written: Setting
    """The value, or the text of an unknown one, such as ``$LOAD``."""
    place: SourceLocation | None = None
    """Where the value was set; None where nobody set it."""
    unknown: Argument = None
    """Why the value is unknown, as of a variable that nothing sets; None for a known value."""
    tie: Tie | None = None
    """The anchor that gives the value to other keys too; None without such an anchor."""

    @property
    def value(self) -> Setting:
        """The value; raises Unknown for an unknown one."""
        if self.unknown is not None:
            raise Unknown(self.unknown)
        return self.written

    @property
    def where(self) -> str:
        """The place as text, empty without one."""
        return str(self.place or "")


class Configuration(Struct, frozen=True):
    """The configuration of one side."""

    side: str
    source: str
    values: Mapping[str, Value]
    """By attribute of Megatron-LM's arguments, or by dotted key of MindFormers."""
    environment: Mapping[str, Value] = field(default_factory=dict)
    """The variables that a script exports, or a record noted."""
    facts: Facts | None = None
    """None for a file."""
    notes: Sequence[Argument] = ()
    """What a reader should know of how the side was read."""
    misplaced: Sequence[Message] = ()
    """Those of ``notes`` that name a file which is not where its framework looks."""
    by_a_run: Argument = None
    """How a run of the script shows the values that could not be followed; None where all were."""
    unread: str = ""
    """A file with more settings that is not on this machine."""
    passed_over: frozenset[str] = frozenset()
    """Names that the framework itself ignores."""
    gaps: tuple[Message, ...] = ()
    """Places that were not followed, where more may be set."""
    bounded: Mapping[Message, frozenset[str]] = field(default_factory=dict)
    """The only arguments that a gap may hold; a gap without an entry may hold any."""
    program: str = ""
    """The Python file that a command starts."""
    lost: Argument = None
    """Why the path of the program is unknown; None where it is known."""
    fork: str = ""
    """The fork of Megatron-LM whose arguments these are; empty for Megatron-LM itself."""
    version: str = ""
    """The version of the framework that reads the values; empty where unknown."""
    trainer: str = ""
    """The trainer whose file has other keys than the values, such as MindFormers' PyNative one; empty for the usual one."""

    @property
    def account(self) -> SourceLocation:
        """The framework's own list of its arguments: a record, or the file that ``run --arguments-only`` wrote."""
        return SourceLocation(self.source if "parsed" in (self.facts or {}) else "run.json")

    def find(self, names: Sequence[str]) -> Value | None:
        """Return the value of the first of some synonyms that is set.

        :raises ConflictingValues: two of the names are set to different values.
        """
        present = ((name, self.values[name]) for name in names if name in self.values and name not in self.passed_over)
        named = [(name, value) for name, value in present if value.written is not None]
        for name, value in named[1:]:
            first_name, first = named[0]
            if not (first.unknown or value.unknown) and first.written != value.written and self.facts is None:
                ours = {"name": first_name, "value": repr(first.value), "place": first.where}
                theirs = {"other": name, "another": repr(value.value), "elsewhere": value.where}
                raise ConflictingValues(message("configuration.contradiction", **ours, **theirs))
        return named[0][1] if named else None

    def fact(self, path: str) -> Setting:
        """Return the value at a dotted path of ``facts``, with numbers as indices into lists; None where there is none."""
        fact: Setting = self.facts
        for part in path.split("."):
            if isinstance(fact, list | tuple):
                fact = fact[int(part)] if int(part) < len(fact) else None
            else:
                fact = fact.get(part) if isinstance(fact, Mapping) else None
        return fact
