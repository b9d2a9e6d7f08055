"""The commands of a page, one by one, as bash itself takes its blocks apart."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import tree_sitter_bash
from tree_sitter import Language, Parser

ROOT = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("launch/*.md"), *ROOT.glob("patches/*.md")])
}
"""Every page, by its path from the root."""
CHINESE = ".zh-CN.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ENDS = re.compile(r"# exits with (\d)")
"""What a page says of a command that does not end with 0."""


@dataclass(frozen=True)
class Command:
    """A command of a page, and the exit code that the page gives it."""

    text: str
    ends: int = 0


@cache
def parser() -> Parser:
    return Parser(Language(tree_sitter_bash.language()))


def blocks(page: str, *languages: str) -> list[tuple[str, str]]:
    """The fenced blocks of a page in some languages: language and content."""
    return [(found[1], found[2]) for found in FENCE.finditer(PAGES[page].read_text(encoding="utf-8")) if found[1] in languages]


def commands(page: str) -> Iterator[Command]:
    """Every command of a page, in its order. A block of Python is one."""
    for language, block in blocks(page, "sh", "python"):
        if language == "python":
            yield Command(f"python - <<'PYTHON'\n{block}PYTHON")
        else:
            yield from statements(block)


def statements(block: str) -> Iterator[Command]:
    """The statements of a block of bash."""
    source = block.encode()
    found = [node for node in parser().parse(source).root_node.children if node.is_named]
    for node, after in zip(found, [*found[1:], None], strict=True):
        if node.type != "comment":
            beside = after is not None and after.type == "comment" and after.start_point[0] == node.end_point[0]
            said = ENDS.match(source[after.start_byte : after.end_byte].decode()) if beside and after is not None else None
            yield Command(source[node.start_byte : node.end_byte].decode(), int(said[1]) if said else 0)
