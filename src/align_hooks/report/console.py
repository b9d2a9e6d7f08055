"""The layout of a report on a terminal and in a pipe: its verdict, paragraphs, tables, and commands to copy.

A paragraph is wrapped between words; a word that is longer than a line, such as a path, stays in one piece.
No line ends with blanks. Numbers are not coloured: colour says what differs.
"""

from __future__ import annotations

import textwrap
from enum import Enum
from pathlib import Path

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from align_hooks.data_file import sections
from align_hooks.errors import printable
from align_hooks.messages import Argument, Joined, Separator, rendered

STEP = 2
"""Columns by which a paragraph is indented, and its later lines once more."""
plain = printable
STYLES = {kind: dict(line.split(": ") for line in lines) for kind, lines in sections(Path(__file__).with_name("styles.txt")).items()}


def style_of(result: Enum) -> str:
    """Return the style of a result."""
    return STYLES[type(result).__name__][result.name]


def verdict(console: Console, word: Argument, style: str, text: Argument, between: str = ": ", indent: int = 0) -> None:
    """Print a line that begins with a word in its colour, such as the verdict."""
    first = plain(rendered(word))
    lines = wrapped(f"{first}{between}{plain(rendered(text))}", console.width, indent)
    begun = Text(lines[0])
    begun.stylize(style, indent, indent + len(first))
    for line in (begun, *map(Text, lines[1:])):
        console.print(line, soft_wrap=True)


def paragraph(console: Console, text: Argument, indent: int = STEP, style: str = "") -> None:
    """Print a message, and the commands below it unwrapped."""
    words, *commands = text.parts if isinstance(text, Joined) and text.separator is Separator.LINES else [text]
    for line in wrapped(plain(rendered(words)), console.width, indent):
        console.print(Text(line, style=style), soft_wrap=True)
    for each in commands:
        command(console, rendered(each), indent + STEP)


def command(console: Console, text: str, indent: int = 2 * STEP) -> None:
    """Print a line to copy, without line breaks, which would be copied as well."""
    console.print(Text(" " * indent + plain(text)), soft_wrap=True)


def wrapped(text: str, width: int, indent: int = 0) -> list[str]:
    """Return a paragraph as lines, the later ones with more indentation."""
    first, later = " " * indent, " " * (indent + STEP)
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=later, break_long_words=False, break_on_hyphens=False)


def grid(*heads: Argument, numbers: tuple[int, ...] = (), gap: int = 2) -> Table:
    """Return an empty table; ``numbers`` are the right-aligned columns. Only the last column is wrapped."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, gap - 1, 0, 0), expand=False)
    for index, head in enumerate(heads):
        last = index == len(heads) - 1
        table.add_column(Text(rendered(head)), justify="right" if index in numbers else "left", no_wrap=not last, overflow="fold")
    return table


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
