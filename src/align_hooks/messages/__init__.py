"""Messages as data: an id of the catalogues with named arguments, rendered last in a language. English is a catalogue like any other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from string import Formatter
from typing import TypeAlias, Union

from msgspec import Struct
from msgspec.structs import replace

from align_hooks.messages.catalogue import spoken, template

CAPITAL = re.compile("(?<!^)(?=[A-Z])")
"""Where a word begins inside a class's name."""
Argument: TypeAlias = Union[str, int, float, bool, Enum, "Message", "Joined", None]
"""Text is the same in every language: a name, a path, a command or what a user wrote. See :func:`id_of` for members of enumerations."""


class Side(str, Enum):
    """A side of a comparison or a check."""

    REFERENCE = "reference"
    CANDIDATE = "candidate"

    __str__ = str.__str__


class Separator(Enum):
    """The text between the parts of a list."""

    SENTENCES = "sentences"
    TERMS = "terms"
    AND = "and"
    OR = "or"
    AGAINST = "against"
    LINES = "lines"


class Joined(Struct, frozen=True):
    """A list of messages or names."""

    parts: tuple[Argument, ...]
    separator: Separator

    def __str__(self) -> str:
        return rendered(self)


class Message(Struct, frozen=True):
    """A statement before it is put into words."""

    id: str
    """The name of a template in the catalogues."""
    arguments: Mapping[str, Argument]
    """The slots of the template; ``count`` chooses between one and many."""

    def __eq__(self, other: object) -> bool:
        # a message of a type of its own says the same
        return isinstance(other, Message) and (self.id, self.arguments) == (other.id, other.arguments)

    def __hash__(self) -> int:
        return hash(self.id)

    def having(self, **arguments: Argument) -> Message:
        """Return the message with other values of some arguments."""
        return replace(self, arguments={**self.arguments, **arguments})

    def __str__(self) -> str:
        return rendered(self)


def message(id: str, /, **arguments: Argument) -> Message:
    """Return a message."""
    return Message(id, arguments)


def in_a_row(parts: Iterable[Argument], separator: Separator) -> Joined:
    """Join parts except None; a part with the same separator is flattened."""
    listed: list[Argument] = []
    for part in parts:
        if isinstance(part, Joined) and part.separator is separator:
            listed.extend(part.parts)
        elif part is not None:
            listed.append(part)
    return Joined(tuple(listed), separator)


def sentences(*parts: Argument) -> Joined:
    """Join sentences, except None."""
    return in_a_row(parts, Separator.SENTENCES)


def terms(parts: Iterable[Argument]) -> Joined:
    """Join names or terms."""
    return in_a_row(parts, Separator.TERMS)


def with_commands(words: Argument, *commands: Argument) -> Joined:
    """Put commands to copy below some words, a line each, which no report breaks."""
    return in_a_row((words, *commands), Separator.LINES)


def all_of(*parts: Argument) -> Joined:
    """Join terms with "and"."""
    return in_a_row(parts, Separator.AND)


def any_of(*parts: Argument) -> Joined:
    """Join terms with "or"."""
    return in_a_row(parts, Separator.OR)


def as_data(value: Argument) -> object:
    """Return a message as JSON holds it: id and arguments, a list's parts, the id of a member of an enumeration, or the value."""
    if isinstance(value, Message):
        return {"id": value.id, "arguments": {name: as_data(argument) for name, argument in value.arguments.items()}}
    if isinstance(value, Joined):
        return {"id": id_of(value.separator), "parts": [as_data(part) for part in value.parts]}
    return {"id": id_of(value)} if isinstance(value, Enum) else value


def id_of_first(what: Argument) -> str:
    """Return the id of a message, or of the first of several; empty of a name."""
    first = what.parts[0] if isinstance(what, Joined) else what
    return first.id if isinstance(first, Message) else ""


def rendered(value: Argument, language: str = "") -> str:
    """Return a message, or an argument of one, in words."""
    language = language or spoken.get()
    if isinstance(value, Message):
        # templates format numbers
        values = {name: part if _is_number(part) else rendered(part, language) for name, part in value.arguments.items()}
        return _formatter.vformat(template(value.id, language, values.get("count")), (), values)
    if isinstance(value, Joined):
        return template(id_of(value.separator), language).join(rendered(part, language) for part in value.parts)
    if isinstance(value, Enum):
        return rendered(Message(id_of(value), {}), language)
    return "" if value is None else str(value)


class TemplateFormatter(Formatter):
    """A formatter of templates, in which ``{count:step|steps}`` is the word for one or for many."""

    def format_field(self, value: object, format_spec: str) -> str:
        """Return a value in the format of its slot."""
        one, bar, many = format_spec.partition("|")
        filled: str = super().format_field(value, format_spec) if not bar else one if value == 1 else many
        return filled


_formatter = TemplateFormatter()


def id_of(member: Enum) -> str:
    """Return the message id of a member of an enumeration, ``class_name.member``."""
    return f"{CAPITAL.sub('_', type(member).__name__)}.{member.name}".lower()


def _is_number(value: Argument) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool | Enum)
