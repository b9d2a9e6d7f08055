"""Both catalogues have every message that the source makes, with the same slots, and no other."""

import ast
import re
import string
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path

from jinja2 import Environment, nodes

import align_hooks
from align_hooks.checklist.tables import ROWS
from align_hooks.messages import CAPITAL, id_of
from align_hooks.messages.catalogue import CATALOGUES, CHINESE, ENGLISH, catalogue

SOURCE = Path(align_hooks.__file__).parent
SCRIPT = re.compile(r'\bsay\((?:"([^"]*)"(?:, {([^}]*)})?\))?')
"""How the page's script says a message: a literal id and an object of its values, which hold no braces."""
KEY = re.compile(r"(?:^|, )(\w+)(?=:|,|$)")


def slots(template: str) -> dict[str, str]:
    """Names of the slots and how each is written; a word for one or for many is a language's own."""
    return {name: form or "" for _, name, form, _ in string.Formatter().parse(template) if name is not None and "|" not in (form or "")}


ENGLISH_ENTRIES, CHINESE_ENTRIES = (
    {id: words.split(" || ") for id, words in catalogue(language).items()} for language in (ENGLISH, CHINESE)
)
"""The templates of each id: for one, and for many where that is another."""


def made() -> Iterator[tuple[str, str, set[str] | None]]:
    """Where a message is made in the source, its id, and the names of its arguments; None where these are handed on."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "message" and node.args:
                open_ended = isinstance(node.args[0], ast.JoinedStr) or any(keyword.arg is None for keyword in node.keywords)
                names = None if open_ended else {str(keyword.arg) for keyword in node.keywords}
                for id in ids_of(node.args[0]):
                    yield f"{path.relative_to(SOURCE)}:{node.lineno}", id, names
    for path in sorted(SOURCE.rglob("*.html")):
        for call in Environment().parse(path.read_text(encoding="utf-8")).find_all(nodes.Call):
            if isinstance(call.node, nodes.Name) and call.node.name in ("say", "m"):
                for literal in [call.args[0]] if isinstance(call.args[0], nodes.Const) else call.args[0].find_all(nodes.Const):
                    yield f"{path.relative_to(SOURCE)}:{call.lineno}", literal.value, {argument.key for argument in call.kwargs}
    for place, id, keys in said_by_scripts():
        yield place, id, set(KEY.findall((keys or "").strip()))
    for row in ROWS:
        for said in filter(None, (row.way_out, row.by_hand)):
            yield f"checklist/rows.txt: {row.id}", said.id, set(said.arguments)


def ids_of(expression: ast.expr) -> Iterator[str]:
    """The ids that an expression may be; of one that is put together all that begin like it."""
    if isinstance(expression, ast.JoinedStr) and isinstance(expression.values[0], ast.Constant):
        yield from (id for id in ENGLISH_ENTRIES if id.startswith(str(expression.values[0].value)))
    else:
        yield from (node.value for node in ast.walk(expression) if isinstance(node, ast.Constant) and isinstance(node.value, str))


def said_by_scripts() -> Iterator[tuple[str, str, str]]:
    """Where a script of the pages says a message, its id, and what stands in the object of its values."""
    for path in sorted(SOURCE.rglob("*.js")):
        for match in SCRIPT.finditer(path.read_text(encoding="utf-8")):
            yield str(path.relative_to(SOURCE)), match[1] or match[0], match[2]


def enumerations() -> Iterator[type[Enum]]:
    """Classes whose members the catalogues word."""
    worded = {id.partition(".")[0] for id in ENGLISH_ENTRIES}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.bases and CAPITAL.sub("_", node.name).lower() in worded:
                module = ".".join(("align_hooks", *path.relative_to(SOURCE).with_suffix("").parts))
                member = getattr(import_module(module), node.name)
                if issubclass(member, Enum):
                    yield member


def test_every_message_of_the_source_has_words_and_its_own_slots() -> None:
    messages = list(made())
    assert len(messages) > 20
    for place, id, names in messages:
        assert id in ENGLISH_ENTRIES, f"{place}: no catalogue has {id}"
        if names is not None:
            parts = [part for template in ENGLISH_ENTRIES[id] for part in string.Formatter().parse(template)]
            worded = {name for _, name, _, _ in parts if name is not None}
            assert worded == names, f"{place}: {id} has {sorted(worded ^ names)} on one side only"


def test_no_words_are_left_that_nothing_says() -> None:
    ids = {id for _, id, _ in made()} | {id_of(member) for enumeration in enumerations() for member in enumeration}
    literals = {
        node.value
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert sorted(ENGLISH_ENTRIES.keys() - ids - literals) == []


def test_scripts_are_handed_words_without_forms_of_numbers() -> None:
    """They write numbers themselves, and know one form of a message."""
    spoken = {id for _, id, _ in said_by_scripts()}
    assert len(spoken) > 20
    for id in spoken:
        [template] = ENGLISH_ENTRIES[id]
        assert not any(slots(template).values()), id


def test_every_member_of_a_worded_enumeration_has_words() -> None:
    worded = list(enumerations())
    assert {enumeration.__name__ for enumeration in worded} >= {"Status", "Verdict", "Side", "Metric", "Separator"}
    assert sorted({id_of(member) for enumeration in worded for member in enumeration} - ENGLISH_ENTRIES.keys()) == []


def test_every_message_has_the_same_slots_in_both_languages() -> None:
    for id, english in ENGLISH_ENTRIES.items():
        chinese = CHINESE_ENTRIES[id]
        allowed = {name: form for template in english for name, form in slots(template).items()}
        for template in (*english, *chinese):
            assert template.strip() or id.startswith("separator."), id
            assert slots(template).items() <= allowed.items(), id
        assert {name for template in chinese for name in slots(template)} == allowed.keys(), id
        assert len(english) == 1 or "count" in allowed, id


def ids_said(language: str) -> list[str]:
    lines = (line for path in (CATALOGUES / language).glob("*.txt") for line in path.read_text(encoding="utf-8").splitlines())
    return sorted(line.partition(": ")[0] for line in lines if line and not line.startswith("#"))


def test_both_languages_say_each_message_once() -> None:
    assert ids_said(ENGLISH) == ids_said(CHINESE) == sorted(ENGLISH_ENTRIES)
