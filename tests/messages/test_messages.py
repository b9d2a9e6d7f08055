"""How a message becomes words: nested, in a row, one or many, in a language that lacks it."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import pytest

from align_hooks.messages import CHINESE, ENGLISH, all_of, any_of, catalogue, message, rendered, sentences, terms

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


@pytest.mark.parametrize(
    ("language", "words"), [(ENGLISH, "the left lost 2 rows, model.norm.weight"), (CHINESE, "左丢失了2行、model.norm.weight")]
)
def test_messages_within_messages(language: str, words: str) -> None:
    text = message("lost", side=Side.LEFT, what=terms([message("rows", count=2), "model.norm.weight"]))
    assert rendered(text, language) == words


def test_one_and_many() -> None:
    counted = [message("rows", count=count) for count in (1, 2)]
    assert [rendered(text) for text in counted] == ["1 row", "2 rows"]
    assert [rendered(text, CHINESE) for text in counted] == ["1行", "2行"]


def test_the_template_says_how_a_number_is_written() -> None:
    text = message("error", error=0.000123, name="loss")
    assert rendered(text) == "error 1.23e-04 at loss"
    assert rendered(text, CHINESE) == "loss的误差1.23e-04"


def test_what_a_language_lacks_is_text_in_english() -> None:
    assert rendered(message("untranslated"), CHINESE) == "only in English"


def test_parts_that_are_none_are_left_out() -> None:
    assert rendered(sentences(message("untranslated"), None, message("rows", count=1))) == "only in English; 1 row"
    assert rendered(sentences(message("rows", count=1), None), CHINESE) == "1行"
    assert rendered(all_of("a", "b")) == "a and b"
    assert rendered(any_of("a", "b"), CHINESE) == "a或b"


def test_what_people_wrote_is_the_same_in_every_language_braces_and_all() -> None:
    text = message("lost", side="{what}", what="{0.__class__} rows")
    assert rendered(text) == "the {what} lost {0.__class__} rows"
    assert rendered(text, CHINESE) == "{what}丢失了{0.__class__} rows"
