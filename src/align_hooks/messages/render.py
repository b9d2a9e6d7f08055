"""Messages in words and as data. Words come from the catalogues ``en/*.txt`` and ``zh_CN/*.txt``, one file for each area.

A line of a catalogue is ``id: template``, or ``id: template for one || template for many``; a template is a JSON string where blanks at its
ends count. The ids are symbols and not the English text, so English can be reworded without touching the code, a test or the Chinese.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from functools import lru_cache
from pathlib import Path
from string import Formatter

from align_hooks.data_file import sections
from align_hooks.messages.message import Argument, Joined, Message

ENGLISH, CHINESE = "en", "zh_CN"
CATALOGUES = Path(__file__).parent


@contextmanager
def speaking(language: str) -> Iterator[None]:
    """Word messages in this language where nothing names another."""
    token = _spoken.set(language)
    try:
        yield
    finally:
        _spoken.reset(token)


_spoken: ContextVar[str] = ContextVar("spoken", default=ENGLISH)


def language_of(environment: Mapping[str, str]) -> str:
    """Return the language of a locale, as gettext chooses it: Chinese, or English for every other one."""
    locale = next(filter(None, (environment.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))), "")
    return CHINESE if locale.startswith("zh") else ENGLISH


def as_data(value: Argument) -> object:
    """A message for programs, as JSON holds it: its id and arguments, or the id alone of a member of an enumeration; else the value."""
    if isinstance(value, Message):
        return {"id": value.id, "arguments": {name: as_data(argument) for name, argument in value.arguments.items()}}
    if isinstance(value, Joined):
        return {"id": id_of(value.separator), "parts": [as_data(part) for part in value.parts]}
    return {"id": id_of(value)} if isinstance(value, Enum) else value


def rendered(value: Argument, language: str = "") -> str:
    """A message, or an argument of one, in words; numbers stay numbers for the template, which says how they are written."""
    language = language or _spoken.get()
    if isinstance(value, Message):
        values = {name: part if _is_number(part) else rendered(part, language) for name, part in value.arguments.items()}
        return _words.vformat(template(value.id, language, values.get("count")), (), values)
    if isinstance(value, Joined):
        return template(id_of(value.separator), language).join(rendered(part, language) for part in value.parts)
    if isinstance(value, Enum):
        return rendered(Message(id_of(value), {}), language)
    return "" if value is None else str(value)


class Words(Formatter):
    """Fills a template, in which ``{count:step|steps}`` is the word for one or for many."""

    def format_field(self, value: object, format_spec: str) -> str:
        """Return a value as its part of the template has it."""
        one, bar, many = format_spec.partition("|")
        filled: str = super().format_field(value, format_spec) if not bar else one if value == 1 else many
        return filled


_words = Words()


def id_of(member: Enum) -> str:
    """The id that words a member of an enumeration: both names in small letters."""
    return f"{type(member).__name__}.{member.name}".lower()


def template(id: str, language: str, count: object = None) -> str:
    """Return the template of an id for so many, the English one where the language has none; the id itself where neither has one."""
    one, _, many = catalogue(language).get(id, id).partition(" || ")
    return many if many and isinstance(count, int) and count != 1 else one


@lru_cache(maxsize=4)
def catalogue(language: str) -> Mapping[str, str]:
    """Return the templates of a language by their ids, the English one of what it lacks."""
    found = dict(catalogue(ENGLISH)) if language != ENGLISH else {}
    for path in sorted((CATALOGUES / language).glob("*.txt")):
        for line in (line for lines in sections(path).values() for line in lines):
            id, _, words = line.partition(": ")
            found[id] = json.loads(words) if words.startswith('"') else words
    return found


def _is_number(value: Argument) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool | Enum)
