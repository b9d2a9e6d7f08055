"""The catalogues: words of each message in each language, ``en/*.txt`` and ``zh_CN/*.txt``, one file for each area.

A line is ``id: template``, or ``id: template for one || template for many``; a template is a JSON string where blanks at its ends count.
The ids are symbols and not the English text, so English can be reworded without touching the code, a test or the Chinese.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path

from align_hooks.data_file import sections

ENGLISH, CHINESE = "en", "zh_CN"
CATALOGUES = Path(__file__).parent


@contextmanager
def speaking(language: str) -> Iterator[None]:
    """Word messages in this language where nothing names another."""
    token = spoken.set(language)
    try:
        yield
    finally:
        spoken.reset(token)


spoken: ContextVar[str] = ContextVar("spoken", default=ENGLISH)


def language_of(environment: Mapping[str, str]) -> str:
    """Return the language of a locale, as gettext chooses it: Chinese, or English for every other one."""
    locale = next(filter(None, (environment.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))), "")
    return CHINESE if locale.startswith("zh") else ENGLISH


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
