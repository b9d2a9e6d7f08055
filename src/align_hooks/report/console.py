"""A document on a terminal and in a pipe.

A paragraph is wrapped between words; a word that is longer than a line, such as a path, stays in one piece.
No line ends with blanks. Numbers are not coloured: colour says what differs.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table as Grid
from rich.text import Text

from align_hooks.errors import printable
from align_hooks.messages import Argument, rendered
from align_hooks.report.blocks import STEP, Cell, Code, DocumentBlock, Medium, Paragraph, Table, of_text, parts_of
from align_hooks.report.document import Document, style_of

plain = printable
BETWEEN, NARROWEST, WORD = 9, 12, 20
"""Letters: around and between the columns of a fitted table; of its narrowest column; of a word that is not broken."""
JOINTS = re.compile(r"[^._/,-]*[._/,-]|[^._/,-]+$")
"""A part of a long name, with the joint behind it."""


def print_document(document: Document, console: Console) -> None:
    """Print a document; its verdict once more where that has left the screen."""

    def report() -> None:
        head(document, console)
        print_blocks(document.everything, console)

    report()
    if console.is_terminal:
        with console.capture() as printed:
            report()
        if printed.get().count("\n") >= console.height:
            head(document, console)


def head(document: Document, console: Console) -> None:
    """Print the verdict."""
    if document.result is not None:
        line(console, Paragraph(document.headline, style_of(document.result), 0, document.result))


def print_blocks(blocks: Iterable[DocumentBlock], console: Console) -> None:
    """Print blocks of a document."""
    for block in of_text(Medium.TERMINAL, blocks):
        match block:
            case Paragraph():
                line(console, block)
            case Code():
                for each in block.lines:
                    command(console, each, block.indent, block.style)
            case Table():
                console.print(Trimmed(fitted(block, console.width - BETWEEN) if block.is_fitted else grid(block)))


def live(blocks: Sequence[Paragraph | Table]) -> Group:
    """Return lines and tables as one view, which rich shows again and again."""
    return Group(*(grid(block) if isinstance(block, Table) else Text(plain(rendered(block.text)), block.style) for block in blocks))


# ---- paragraphs


def line(console: Console, block: Paragraph) -> None:
    """Print a paragraph, its first word in that word's colour."""
    if block.word is None:
        paragraph(console, block.text, block.indent, block.style)
        return
    first = plain(rendered(block.word))
    lines = wrapped(f"{first}{block.between}{plain(rendered(block.text))}", console.width, block.indent)
    begun = Text(lines[0])
    begun.stylize(block.style, block.indent, block.indent + len(first))
    for each in (begun, *map(Text, lines[1:])):
        console.print(each, soft_wrap=True)


def paragraph(console: Console, text: Argument, indent: int = STEP, style: str = "") -> None:
    """Print a message, and the commands below it unwrapped."""
    words, *commands = parts_of(text)
    for line in wrapped(plain(rendered(words)), console.width, indent):
        console.print(Text(line, style=style), soft_wrap=True)
    for each in commands:
        command(console, rendered(each), indent + STEP)


def command(console: Console, text: str, indent: int = 2 * STEP, style: str = "") -> None:
    """Print a line to copy, without line breaks, which would be copied as well."""
    console.print(Text(" " * indent + plain(text), style), soft_wrap=True)


def wrapped(text: str, width: int, indent: int = 0) -> list[str]:
    """Return a paragraph as lines, the later ones with more indentation."""
    return textwrap.wrap(
        text, width, initial_indent=" " * indent, subsequent_indent=" " * (indent + STEP), break_long_words=False, break_on_hyphens=False
    )


# ---- tables


def grid(table: Table) -> Grid:
    """Return a table of which only the last column is wrapped."""
    made = Grid(box=box.SIMPLE_HEAD, padding=(0, table.gap - 1, 0, 0), expand=False)
    for index, name in enumerate(table.heads):
        made.add_column(
            shown(name), justify="right" if index in table.numbers else "left", no_wrap=index < len(table.heads) - 1, overflow="fold"
        )
    for row in table.rows:
        made.add_row(*map(shown, row))
    return made


def fitted(table: Table, width: int) -> Grid:
    """Return a table as wide as its texts or as ``width``, of which no text is cut; notes stand below their texts."""
    made = Grid(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    rows = [[*map(Cell.of, row)] for row in table.rows]
    heads = [text_of(Cell.of(name)) for name in table.heads]
    texts = [[text_of(cell) + ("" if cell.note is None else f"\n{rendered(cell.note)}") for cell in row] for row in rows]
    sizes = widths([heads, *texts], width)
    for name, size in zip(heads, sizes, strict=True):
        made.add_column(Text(name), overflow="fold", width=size)
    for row in rows:
        parts = [Text(broken(text_of(cell), size) if cell.note is None else text_of(cell)) for cell, size in zip(row, sizes, strict=True)]
        for part, cell in zip(parts, row, strict=True):
            if cell.note is not None:
                part.append("\n").append(plain(rendered(cell.note)), "dim")
        made.add_row(*parts)
    return made


def text_of(cell: Cell) -> str:
    """Return the text of a cell."""
    return plain(rendered(cell.text))


def shown(content: Argument | Cell) -> Text:
    """Return a cell of a terminal."""
    cell = Cell.of(content)
    return Text(text_of(cell), cell.style)


def broken(text: str, size: int) -> str:
    """Return a text whose words of more than ``size`` letters are broken behind a joint, such as a dot."""
    words = []
    for word in text.split(" "):
        lines = [""]
        for part in JOINTS.findall(word):
            if lines[-1] and len(lines[-1] + part) > size:
                lines.append("")
            lines[-1] += part
        words.append("\n".join(lines) if len(word) > size else word)
    return " ".join(words)


def widths(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the letters of each column: its longest line, or where all exceed ``width``, less for the widest columns."""
    sizes = [max(len(line) for row in rows for line in row[column].splitlines() or [""]) for column in range(len(rows[0]))]
    least = [*(min(size, NARROWEST) for size in sizes[:-1]), min(sizes[-1], 2 * NARROWEST)]
    least[0] = max([least[0], *(len(word) for row in rows for word in row[0].split() if len(word) <= WORD)])
    last = len(sizes) - 1
    # the last column, which has most to say, has twice as much space as another
    while sum(sizes) > width and any(size > low for size, low in zip(sizes, least, strict=True)):
        sizes[max(range(len(sizes)), key=lambda column: (sizes[column] - least[column]) / (1 + (column == last)))] -= 1
    return sizes


class Trimmed:
    """A renderable without the blanks at the ends of its lines."""

    def __init__(self, content: RenderableType) -> None:
        self.content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in console.render_lines(self.content, options, pad=False):
            while line and not line[-1].text.strip():
                line.pop()
            if line:
                line[-1] = Segment(line[-1].text.rstrip(), line[-1].style)
            yield from line
            yield Segment.line()
