"""A message: an id of the catalogues, and named arguments, which may be messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias, Union

if TYPE_CHECKING:
    from typing_extensions import Self

Argument: TypeAlias = Union[str, int, float, bool, Enum, "Message", "Joined", None]
"""What an argument may be. Text is a name, a path, a command or what a user wrote: it is the same in every language. A member of an
enumeration is worded by the id ``<class>.<name>``, and numbers are formatted by the catalogue's template."""


class Separator(Enum):
    """What stands between the parts of a list."""

    SENTENCES = "sentences"
    TERMS = "terms"
    AND = "and"
    OR = "or"
    AGAINST = "against"


class Joined(str):
    """Messages or names in a row, with what stands between them in a language."""

    parts: tuple[Argument, ...]
    separator: Separator

    def __new__(cls, parts: Iterable[Argument], separator: Separator) -> Self:
        """``parts`` in their order; those that are None are left out."""
        from align_hooks.messages.render import ENGLISH, joined

        kept = tuple(part for part in parts if part is not None)
        made = super().__new__(cls, joined(kept, separator, ENGLISH))
        made.parts, made.separator = kept, separator
        return made

    def __deepcopy__(self, memo: object) -> Self:
        return self


class Message(str):
    """What is to be said, before anybody says it."""

    id: str
    arguments: Mapping[str, Argument]

    def __new__(cls, id: str, arguments: Mapping[str, Argument]) -> Self:
        """``id`` names a template in the catalogues, whose slots are the names of ``arguments``."""
        from align_hooks.messages.render import ENGLISH, worded

        made = super().__new__(cls, worded(id, arguments, ENGLISH))
        made.id, made.arguments = id, arguments
        return made

    def __deepcopy__(self, memo: object) -> Self:
        return self


def message(id: str, /, **arguments: Argument) -> Message:
    """A message by its id; an argument that is called ``count`` chooses between one and many."""
    return Message(id, arguments)


def sentences(*parts: Argument) -> Joined:
    """Sentences in a row, without those that are None."""
    return Joined(parts, Separator.SENTENCES)


def terms(parts: Iterable[Argument]) -> Joined:
    """Names or terms in a row."""
    return Joined(parts, Separator.TERMS)


def both(*parts: Argument) -> Joined:
    """All of some terms, ``one and other``."""
    return Joined(parts, Separator.AND)


def either(*parts: Argument) -> Joined:
    """One of some terms, ``one or other``."""
    return Joined(parts, Separator.OR)
