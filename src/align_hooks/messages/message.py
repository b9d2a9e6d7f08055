"""A message: an id of the catalogues and named arguments, which may be messages; in words, and as data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from string import Formatter
from typing import TypeAlias, Union

from align_hooks.messages.catalogue import spoken, template

CAPITAL = re.compile("(?<!^)(?=[A-Z])")
"""Where a word begins inside a class's name."""
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
        return rendered(self)


@dataclass(frozen=True, slots=True)
class Message:
    """What is to be said, before it is worded. ``id`` names a template in the catalogues, whose slots are the names of ``arguments``."""

    id: str
    arguments: Mapping[str, Argument]

    def __hash__(self) -> int:
        return hash(self.id)

    def __str__(self) -> str:
        return rendered(self)


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


def as_data(value: Argument) -> object:
    """A message for programs, as JSON holds it: its id and arguments, or the id alone of a member of an enumeration; else the value."""
    if isinstance(value, Message):
        return {"id": value.id, "arguments": {name: as_data(argument) for name, argument in value.arguments.items()}}
    if isinstance(value, Joined):
        return {"id": id_of(value.separator), "parts": [as_data(part) for part in value.parts]}
    return {"id": id_of(value)} if isinstance(value, Enum) else value


def rendered(value: Argument, language: str = "") -> str:
    """A message, or an argument of one, in words; numbers stay numbers for the template, which says how they are written."""
    language = language or spoken.get()
    if isinstance(value, Message):
        values = {name: part if _is_number(part) else rendered(part, language) for name, part in value.arguments.items()}
        return _formatter.vformat(template(value.id, language, values.get("count")), (), values)
    if isinstance(value, Joined):
        return template(id_of(value.separator), language).join(rendered(part, language) for part in value.parts)
    if isinstance(value, Enum):
        return rendered(Message(id_of(value), {}), language)
    return "" if value is None else str(value)


class TemplateFormatter(Formatter):
    """Fills a template, in which ``{count:step|steps}`` is the word for one or for many."""

    def format_field(self, value: object, format_spec: str) -> str:
        """Return a value as its part of the template has it."""
        one, bar, many = format_spec.partition("|")
        filled: str = super().format_field(value, format_spec) if not bar else one if value == 1 else many
        return filled


_formatter = TemplateFormatter()


def id_of(member: Enum) -> str:
    """Return the id that words a member of an enumeration, ``class_name.member``."""
    return f"{CAPITAL.sub('_', type(member).__name__)}.{member.name}".lower()


def _is_number(value: Argument) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool | Enum)
