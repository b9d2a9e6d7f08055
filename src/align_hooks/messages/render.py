"""Messages in words and as data. Words come from gettext catalogues with ids: ``en/*.po`` and ``zh_CN/*.po``, one file for each room.

The ids are symbols and not the English text, as in monolingual catalogues, so English can be reworded without touching the code, a test or
the Chinese. polib reads the catalogues as they are edited, with no step that compiles them. The standard library's gettext looks ids up,
chooses plural forms and falls back to English.
"""

from __future__ import annotations

import gettext
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from functools import lru_cache
from pathlib import Path
from string import Formatter

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
    """The template of an id for so many; the id itself where no catalogue has it, which a test excludes."""
    catalogue = _catalogue(language)
    if isinstance(count, int):
        words = catalogue.ngettext(id, id, count)
        if words != id:
            return words
    return catalogue.gettext(id)


@lru_cache(maxsize=4)
def _catalogue(language: str) -> gettext.NullTranslations:
    """All catalogues of a language, and English behind them."""
    import polib  # where a message is worded, and not in a process that trains and says nothing

    merged = _catalogue(ENGLISH) if language != ENGLISH else gettext.NullTranslations()
    for path in sorted((CATALOGUES / language).glob("*.po")):
        catalogue = gettext.GNUTranslations(io.BytesIO(polib.pofile(str(path), encoding="utf-8").to_binary()))
        catalogue.add_fallback(merged)
        merged = catalogue
    return merged


def _is_number(value: Argument) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool | Enum)
