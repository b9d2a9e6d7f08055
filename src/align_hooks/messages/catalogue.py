"""The catalogues: the template of each message in each language, ``en/*.txt`` and ``zh_CN/*.txt``, one file for each area.

A line is ``id: template``, or ``id: template for one || template for many``; a template is a JSON string where blanks at its ends count.
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
    """Render messages in this language by default."""
    token = spoken.set(language)
    try:
        yield
    finally:
        spoken.reset(token)


spoken: ContextVar[str] = ContextVar("spoken", default=ENGLISH)


def language_of(environment: Mapping[str, str]) -> str:
    """Return the language of a locale, as gettext chooses it: Chinese, or else English."""
    locale = next(filter(None, (environment.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))), "")
    return CHINESE if locale.startswith("zh") else ENGLISH


def template(id: str, language: str, count: object = None) -> str:
    """Return the template of an id for ``count``, in English where the language has none; the id where neither has one."""
    one, _, many = catalogue(language).get(id, id).partition(" || ")
    return many if many and isinstance(count, int) and count != 1 else one


@lru_cache(maxsize=4)
def catalogue(language: str) -> Mapping[str, str]:
    """Return id to template of a language, in English where the language has none."""
    found = dict(catalogue(ENGLISH)) if language != ENGLISH else {}
    for path in sorted((CATALOGUES / language).glob("*.txt")):
        for line in (line for lines in sections(path).values() for line in lines):
            id, _, words = line.partition(": ")
            found[id] = json.loads(words) if words.startswith('"') else words
    return found
