"""One side's configuration: named values, each with the place where it was set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from align_hooks.errors import AlignHooksError
from align_hooks.messages import Argument, Message, message, rendered

MEGATRON, MINDFORMERS = "Megatron-LM", "MindFormers"
FRAMEWORKS = {"torch": MEGATRON, "ms": MINDFORMERS}
"""The framework of each side."""


class ConfigurationError(AlignHooksError):
    """A configuration cannot be read, or says two things at once; the exit code is that of usage."""


class Contradiction(ConfigurationError):
    """A configuration sets one thing to two values; ``why`` says which."""

    def __init__(self, why: Message) -> None:
        super().__init__(rendered(why))
        self.why = why


@dataclass(frozen=True, slots=True)
class Value:
    """What a name was set to, and where: ``train.sh:31``, ``llama.yaml:88``, ``run.json``.

    ``unknown`` says why the value cannot be told, where a script takes it from something that is not there; None where it is known.
    """

    value: Any
    where: str = ""
    unknown: Message | None = None


@dataclass(frozen=True, slots=True)
class Configuration:
    """What one side was told.

    ``values`` are Megatron's arguments by the name of their attribute, or MindFormers' keys with dots; ``environment`` the variables
    that a script exports or a record noted. ``facts`` is a record's ``run.json``, None for a file. ``notes`` is what a reader should
    know of how it was read, and ``unread`` a file that says more and is not here. ``used`` collects the names that somebody looked at,
    for the others are shown as not covered; ``passed_over`` are names that the framework itself ignores, so that they do not count.
    ``gaps`` are where more may be said that could not be followed, ``program`` the Python file that a command starts.
    """

    side: str
    source: str
    values: Mapping[str, Value]
    environment: Mapping[str, Value] = field(default_factory=dict)
    facts: Mapping[str, Any] | None = None
    notes: Sequence[Argument] = ()
    unread: str = ""
    used: set[str] = field(default_factory=set)
    passed_over: frozenset[str] = frozenset()
    gaps: tuple[Message, ...] = ()
    program: str = ""

    @property
    def account(self) -> str:
        """Where the framework's own account of its arguments stands: a record, or what ``run --arguments-only`` wrote."""
        return self.source if "parsed" in (self.facts or {}) else "run.json"

    def find(self, names: Sequence[str]) -> Value | None:
        """The value of the first of some names that was set to anything; all of them count as looked at.

        :raises Contradiction: two of the names, which mean the same, were set to different things.
        """
        self.used.update(names)
        given = [name for name in names if name in self.values and name not in self.passed_over]
        found = [(name, self.values[name]) for name in given if self.values[name].value is not None]
        for name, value in found[1:]:
            first, one = found[0]
            if not (one.unknown or value.unknown) and one.value != value.value and self.facts is None:
                raise Contradiction(
                    message(
                        "configuration.contradiction",
                        name=first,
                        value=repr(one.value),
                        place=one.where,
                        other=name,
                        another=repr(value.value),
                        elsewhere=value.where,
                    )
                )
        return found[0][1] if found else None

    def fact(self, path: str) -> Any:
        """What a record says of what was built, by dotted path with numbers for places in lists; None where it says nothing."""
        found: Any = self.facts
        for part in path.split("."):
            if isinstance(found, list | tuple):
                found = found[int(part)] if int(part) < len(found) else None
            else:
                found = found.get(part) if isinstance(found, Mapping) else None
        return found

    def not_covered(self, ignored: Sequence[str] = ()) -> Iterator[tuple[str, Value]]:
        """Names that were set and that nobody looked at; ``ignored`` are prefixes of names that say nothing."""
        for name, value in self.values.items():
            if name not in self.used and not name.startswith(tuple(ignored)):
                yield name, value
