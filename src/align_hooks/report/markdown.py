"""A document as Markdown, for a comment on a pull request: short, whatever there is to report."""

from __future__ import annotations

import re
from collections.abc import Iterator

from align_hooks.messages import Argument, rendered
from align_hooks.report.blocks import Cell, Code, Medium, Paragraph, Table, of_text, parts_of
from align_hooks.report.console import plain
from align_hooks.report.document import Document

CELL, LINE = 200, 1000
"""The most letters of a cell, and of a line, whose commands are to be copied."""
QUIET = ("", "green", "dim")
"""Styles of cells that need no attention, and so no bold type."""
MARKUP = re.compile(r"([\\`*\[\]<>|~]|(?<!\w)_|_(?!\w))")
MENTION = re.compile(r"([@#])(?=\w)")
"""A sign that a forge makes a mention or a link of."""


def markdown(document: Document) -> str:
    """Return the text."""
    lines = [f"### align-hooks: {escaped(document.result)}", "", escaped(document.headline, LINE)]
    above = ""
    for line in (line for block in of_text(Medium.MARKDOWN, document.everything) for line in lines_of(block)):
        # a list ends where a table or a paragraph begins
        if line.lstrip()[:1] != above:
            lines.append("")
        lines.append(line)
        above = line.lstrip()[:1]
    return "\n".join(lines) + "\n"


def lines_of(block: Paragraph | Code | Table) -> Iterator[str]:
    """Yield the lines of a block; a paragraph is an item of a list, with its commands below."""
    match block:
        case Paragraph():
            words, *commands = parts_of(block.full_text)
            yield f"- {escaped(words, LINE)}"
            yield from (f"  - {code(rendered(command))}" for command in commands)
        case Code():
            yield from map(code, block.lines)
        case Table():
            yield from table(block)


def table(block: Table) -> Iterator[str]:
    """Yield a table; a cell that needs attention is bold."""
    rule = ["---:" if column in block.numbers else "---" for column in range(len(block.heads))]
    for cells in (map(cell, block.heads), rule, *(map(cell, row) for row in block.rows)):
        yield f"| {' | '.join(cells)} |"


def cell(content: Argument | Cell) -> str:
    """Return a cell of a table."""
    made = Cell.of(content)
    return escaped(made.text) if made.style in QUIET else f"**{escaped(made.text)}**"


def escaped(text: Argument, longest: int = CELL) -> str:
    """Return a message or a record's text in one line, without markup, mentions and links."""
    words = plain(rendered(text))
    cut = words if len(words) <= longest else f"{words[:longest]}…"
    return MENTION.sub("\\1\u200b", MARKUP.sub(r"\\\1", cut.replace("&", "&amp;")))


def code(text: str) -> str:
    """Return a command as code, which has no markup."""
    return f"`{plain(text).replace('`', '')}`"
