"""No code reads back what a person reads: words are made of data last, and nothing is made of words.

A message has no text, so the type checker refuses ``message.startswith``. This walk finds what types cannot see: text that was made of a
message, of an error or of an ending, and that is then searched, cut, matched or turned into a number.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import align_hooks
from chosen import in_one

SOURCE = Path(align_hooks.__file__).parent
WORDING = {"rendered", "template", "in_words"}
"""What makes words of a message."""
READ_BY_PEOPLE = {"summary", "common", "what", "ended", "message", "words", "title", "advice", "problem", "description", "sentence", "why"}
"""Attributes that hold what people read."""
READERS = {
    *("startswith", "endswith", "split", "rsplit", "partition", "rpartition", "find", "rfind", "index", "rindex", "count"),
    *("removeprefix", "removesuffix", "isdigit", "isdecimal", "isalnum", "isalpha", "match", "search", "fullmatch", "findall", "finditer"),
}
NUMBERS = {"int", "float", "literal_eval"}
APART = re.compile(r"isinstance\(.*\b(Message|Joined)\b|.*(?<!facts)\.arguments$|.*\.id\b.* (==|!=|in) .*'\w+\.\w+'")


def sentences(tree: ast.AST) -> set[str]:
    """Names that a module binds to words, or to an error that was caught."""
    names = {handler.name for handler in ast.walk(tree) if isinstance(handler, ast.ExceptHandler) and handler.name}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and called(node.value) in WORDING:
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def called(node: ast.AST) -> str:
    """What a call calls, without what it is an attribute of."""
    function = node.func if isinstance(node, ast.Call) else None
    return function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""


def is_read_by_people(node: ast.AST, names: set[str]) -> bool:
    """Whether an expression is words: made of a message, the text of an error, or an attribute that holds them."""
    if isinstance(node, ast.BoolOp):
        return any(is_read_by_people(value, names) for value in node.values)
    if isinstance(node, ast.Call):
        if called(node) in ("str", "plain", "lower", "strip") and (node.args or isinstance(node.func, ast.Attribute)):
            inner = node.args[0] if node.args else node.func.value  # type: ignore[attr-defined]
            return is_read_by_people(inner, names)
        return called(node) in WORDING
    if isinstance(node, ast.Attribute):
        return node.attr in READ_BY_PEOPLE
    return isinstance(node, ast.Name) and node.id in names


def readings(source: str) -> Iterator[tuple[int, str]]:
    """Line and code of each place that reads words back."""
    tree = ast.parse(source)
    names = sentences(tree)
    for node in ast.walk(tree):
        read: list[ast.AST] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in READERS:
            read = [node.func.value, *node.args]
        elif isinstance(node, ast.Call) and called(node) in NUMBERS:
            read = list(node.args)
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            read = [node.comparators[0]]
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq):
            constants = [side for side in (node.left, *node.comparators) if isinstance(side, ast.Constant) and isinstance(side.value, str)]
            read = [node.left, *node.comparators] if constants and constants[0].value else []
        if any(is_read_by_people(part, names) for part in read):
            yield node.lineno, ast.unparse(node)  # type: ignore[attr-defined]


@in_one(sorted(SOURCE.rglob("*.py")))
def test_nothing_reads_words_back(path: Path) -> None:
    assert [f"{line}: {code}" for line, code in readings(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    "code",
    [
        'finding.what.startswith("clip coefficient")',
        '(process.ended or "").startswith(("failed", "was ended by"))',
        're.search(r"layers (\\d+)", rendered(row.title))',
        'float(rendered(value).split(" ")[0])',
        '"NaN" in stage.summary',
        'stage.common == "all"',
        'words = rendered(problem)\nif words.endswith("loss"): pass',
        'try:\n    f()\nexcept ValueError as error:\n    raise if_("nan" in str(error))',
        'str(finding.what).partition(" at ")',
    ],
)
def test_the_walk_finds_what_reads_words_back(code: str) -> None:
    assert list(readings(code))


HAVE_IDS = re.compile(r"(.*\.)?(row|stage|segment|node|token)|self|entry\.value|(child|left|right|named)|neighbour|canonical|wanted|found")
"""What has an id of its own: rows, stages, segments, tokens, nodes of syntax trees, and hidden ids of tokens."""
OF_CALLS = re.compile(r"call|.*\.bind\(.*\)")
"""What has arguments of its own: the call of a function."""


def message_parts(source: str) -> Iterator[str]:
    """Places at which code reads the id or an argument of a message, which are wording."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr == "id" and not HAVE_IDS.fullmatch(ast.unparse(node.value)):
            yield ast.unparse(node)
        if isinstance(node, ast.Subscript | ast.Compare):
            read = [node.value] if isinstance(node, ast.Subscript) else node.comparators
            of = [each.value for each in read if isinstance(each, ast.Attribute) and each.attr == "arguments"]
            yield from (ast.unparse(node) for each in of if not OF_CALLS.fullmatch(ast.unparse(each)))


@in_one(path for path in sorted(SOURCE.rglob("*.py")) if path.parent.name != "messages")
def test_no_code_reads_the_id_or_an_argument_of_a_message(path: Path) -> None:
    assert list(message_parts(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("code", ['suspect.id in ("a",)', "note.id", "x = what.arguments['names']", "x = 'names' in what.arguments"])
def test_reading_an_id_or_an_argument_is_found(code: str) -> None:
    assert list(message_parts(code))


def takes_messages_apart(source: str) -> list[str]:
    """Code that decides by a message's class, id or arguments, where a type of its own should say it."""
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call | ast.Attribute | ast.Compare))
    return [code for code in map(ast.unparse, nodes) if APART.match(code)]


@in_one(sorted((SOURCE / "checklist").rglob("*.py")))
def test_the_checklist_decides_by_types(path: Path) -> None:
    assert takes_messages_apart(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("code", ['why.id == "why.untold"', 'note.arguments["script"]', "isinstance(note, str | Joined)"])
def test_the_walk_finds_what_takes_messages_apart(code: str) -> None:
    assert takes_messages_apart(code)
