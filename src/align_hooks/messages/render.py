"""Words for messages, from gettext catalogues with ids: ``en/*.po`` and ``zh_CN/*.po``, one file a room of the package.

The ids are symbols and not the English text, as translators know it from monolingual catalogues: so English can be reworded without
touching the code, a test or the Chinese. polib reads the catalogues as they are edited, with no step that compiles them; looking up,
plural forms and falling back to English are the standard library's gettext.
"""

from __future__ import annotations

import gettext
import io
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import lru_cache
from pathlib import Path

from align_hooks.messages.message import Argument, Joined, Message, Separator

ENGLISH, CHINESE = "en", "zh_CN"
CATALOGUES = Path(__file__).parent


def rendered(value: Argument, language: str = ENGLISH) -> str:
    """A message, or an argument of one, in words."""
    if isinstance(value, Message):
        return worded(value.id, value.arguments, language)
    if isinstance(value, Joined):
        return joined(value.parts, value.separator, language)
    if isinstance(value, Enum):
        return worded(id_of(value), {}, language)
    return "" if value is None else str(value)


def worded(id: str, arguments: Mapping[str, Argument], language: str) -> str:
    """The template of an id, filled in; numbers stay numbers, for the template says how they are written."""
    values = {name: value if _is_number(value) else rendered(value, language) for name, value in arguments.items()}
    return template(id, language, values.get("count")).format_map(values)


def joined(parts: Iterable[Argument], separator: Separator, language: str) -> str:
    """Parts in a row."""
    return template(id_of(separator), language).join(rendered(part, language) for part in parts)


def id_of(member: Enum) -> str:
    """The id that words a member of an enumeration: both names in small letters."""
    return f"{type(member).__name__}.{member.name}".lower()


def template(id: str, language: str, count: object = None) -> str:
    """The template of an id for so many; the id itself where no catalogue has it, which a test excludes."""
    words = _words(language)
    if isinstance(count, int):
        found = words.ngettext(id, id, count)
        if found != id:
            return found
    return words.gettext(id)


@lru_cache(maxsize=4)
def _words(language: str) -> gettext.NullTranslations:
    """All catalogues of a language, and English behind them."""
    import polib  # where a message is worded, and not in a process that trains and says nothing

    found: gettext.NullTranslations | None = _words(ENGLISH) if language != ENGLISH else None
    for path in sorted((CATALOGUES / language).glob("*.po")):
        one = gettext.GNUTranslations(io.BytesIO(polib.pofile(str(path), encoding="utf-8").to_binary()))
        if found is not None:
            one.add_fallback(found)
        found = one
    return found or gettext.NullTranslations()


def _is_number(value: Argument) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool | Enum)
