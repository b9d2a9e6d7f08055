"""How a message becomes words: nested, in a row, one or many, in a language that lacks it."""

from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import pytest

from align_hooks.messages import Argument, all_of, any_of, catalogue, message, rendered, sentences, terms
from align_hooks.messages.catalogue import CHINESE, ENGLISH

WORDS = {
    ENGLISH: """
separator.sentences: "; "
separator.terms: ", "
separator.and: " and "
separator.or: " or "
side.left: left
lost: the {side} lost {what}
error: error {error:.2e} at {name}
rows: {count} row || {count} rows
untranslated: only in English
""",
    CHINESE: """
# A comment, and an empty line.

separator.sentences: ；
separator.terms: 、
separator.and: 和
separator.or: 或
side.left: 左
lost: {side}丢失了{what}
error: {name}的误差{error:.2e}
rows: {count}行
""",
}


class Side(Enum):
    LEFT = "l"


@pytest.fixture(autouse=True)
def catalogues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for language, words in WORDS.items():
        (tmp_path / language).mkdir()
        (tmp_path / language / "one.txt").write_text(words, encoding="utf-8")
    monkeypatch.setattr(catalogue, "CATALOGUES", tmp_path)
    catalogue.catalogue.cache_clear()
    yield
    catalogue.catalogue.cache_clear()


ONE, TWO = (message("rows", count=count) for count in (1, 2))
TEXTS: dict[str, tuple[Argument, str, str]] = {
    "messages within messages": (
        message("lost", side=Side.LEFT, what=terms([TWO, "model.norm.weight"])),
        *("the left lost 2 rows, model.norm.weight", "左丢失了2行、model.norm.weight"),
    ),
    "one": (ONE, "1 row", "1行"),
    "many": (TWO, "2 rows", "2行"),
    "a number as the template says": (message("error", error=0.000123, name="loss"), "error 1.23e-04 at loss", "loss的误差1.23e-04"),
    "what a language lacks is English": (message("untranslated"), "only in English", "only in English"),
    "parts that are none are left out": (sentences(message("untranslated"), None, ONE), "only in English; 1 row", "only in English；1行"),
    "of two parts one that is none": (sentences(ONE, None), "1 row", "1行"),
    "all of": (all_of("a", "b"), "a and b", "a和b"),
    "any of": (any_of("a", "b"), "a or b", "a或b"),
    "what people wrote is the same, braces and all": (
        message("lost", side="{what}", what="{0.__class__} rows"),
        *("the {what} lost {0.__class__} rows", "{what}丢失了{0.__class__} rows"),
    ),
}


@pytest.mark.parametrize(("text", "english", "chinese"), TEXTS.values(), ids=TEXTS)
def test_words_of_a_message(text: Argument, english: str, chinese: str) -> None:
    assert (rendered(text), rendered(text, CHINESE)) == (english, chinese)
