"""Names are the field's words: none of the everyday words that once had a meaning of their own here."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import align_hooks

SOURCE = Path(align_hooks.__file__).parent
PRIVATE = {
    *("belongs", "frontier", "handed", "holdings", "house", "ledger", "lifted", "parted", "room", "seam", "seams"),
    *("taught", "telling", "told", "traps", "tries", "unlike"),
}
"""Words that a name may not have: what each stood for has the field's own word."""


def words_of(name: str) -> list[str]:
    return re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())


def names_in(tree: ast.AST) -> Iterator[str]:
    """All names that a module gives: to classes, functions, arguments, variables and attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def test_a_class_name_stands_for_one_class() -> None:
    names = Counter(
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in names.items() if count > 1} == set()


def test_no_name_has_a_private_word() -> None:
    found = {
        f"{path.relative_to(SOURCE)}: {name}"
        for path in SOURCE.rglob("*.py")
        for name in (path.stem, *names_in(ast.parse(path.read_text(encoding="utf-8"))))
        if PRIVATE & set(words_of(name))
    }
    assert found == set()
