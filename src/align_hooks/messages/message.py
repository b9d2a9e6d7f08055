"""A message: an id of the catalogues, and named arguments, which may be messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias, Union

Argument: TypeAlias = Union[str, int, float, bool, Enum, "Message", "Joined", None]
"""What an argument may be. Text is a name, a path, a command or what a user wrote, and is the same in every language. The id
``<class>.<name>`` words a member of an enumeration. The catalogue's template formats numbers."""


class Side(str, Enum):
    """A side of a comparison or a check, which every room's messages name."""

    REFERENCE = "reference"
    CANDIDATE = "candidate"

    __str__ = str.__str__


class Separator(Enum):
    """What stands between the parts of a list."""

    SENTENCES = "sentences"
    TERMS = "terms"
    AND = "and"
    OR = "or"
    AGAINST = "against"
    LINES = "lines"


@dataclass(frozen=True, slots=True)
class Joined:
    """Messages or names in a row, with what stands between them in a language."""

    parts: tuple[Argument, ...]
    separator: Separator

    def __str__(self) -> str:
        return _in_words(self)


@dataclass(frozen=True, slots=True)
class Message:
    """What is to be said, before it is worded. ``id`` names a template in the catalogues, whose slots are the names of ``arguments``."""

    id: str
    arguments: Mapping[str, Argument]

    def __hash__(self) -> int:
        return hash(self.id)

    def __str__(self) -> str:
        return _in_words(self)


def _in_words(words: Message | Joined) -> str:
    from align_hooks.messages.render import rendered  # it stands above this module

    return rendered(words)


def message(id: str, /, **arguments: Argument) -> Message:
    """A message by its id; an argument that is called ``count`` chooses between one and many."""
    return Message(id, arguments)


def in_a_row(parts: Iterable[Argument], separator: Separator) -> Joined:
    """Parts in their order, without those that are None; those of a part that is such a row stand in its place."""
    listed: list[Argument] = []
    for part in parts:
        if isinstance(part, Joined) and part.separator is separator:
            listed.extend(part.parts)
        elif part is not None:
            listed.append(part)
    return Joined(tuple(listed), separator)


def sentences(*parts: Argument) -> Joined:
    """Sentences in a row, without those that are None."""
    return in_a_row(parts, Separator.SENTENCES)


def terms(parts: Iterable[Argument]) -> Joined:
    """Names or terms in a row."""
    return in_a_row(parts, Separator.TERMS)


def with_commands(words: Argument, *commands: Argument) -> Joined:
    """Words, and below them commands to copy, a line each, which no report breaks."""
    return in_a_row((words, *commands), Separator.LINES)


def all_of(*parts: Argument) -> Joined:
    """All of some terms, ``one and other``."""
    return in_a_row(parts, Separator.AND)


def any_of(*parts: Argument) -> Joined:
    """One of some terms, ``one or other``."""
    return in_a_row(parts, Separator.OR)
