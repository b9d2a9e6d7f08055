"""How a report is laid out on a terminal and in a pipe: its verdict, paragraphs, tables, and commands to copy.

A paragraph is wrapped between words, and a word that is longer than a line, such as a path, is left whole. A command is not wrapped at all,
for a line break that the report made would be copied with it. No line ends with blanks. Numbers are not coloured: colour says what differs.
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
"""Columns by which a paragraph, and below it its later lines, are moved in."""
plain = printable
STYLES = {kind: dict(line.split(": ") for line in lines) for kind, lines in sections(Path(__file__).with_name("styles.txt")).items()}


def style_of(result: Enum) -> str:
    """Return the style of a result."""
    return STYLES[type(result).__name__][result.name]


def verdict(console: Console, word: Argument, style: str, text: Argument, between: str = ": ", indent: int = 0) -> None:
    """Print a line that begins with a word in its colour: the verdict, and what it is of."""
    first = plain(rendered(word))
    lines = wrapped(f"{first}{between}{plain(rendered(text))}", console.width, indent)
    begun = Text(lines[0])
    begun.stylize(style, indent, indent + len(first))
    for line in (begun, *map(Text, lines[1:])):
        console.print(line, soft_wrap=True)


def paragraph(console: Console, text: Argument, indent: int = STEP, style: str = "") -> None:
    """Print a message, the commands below it as they are."""
    words, *commands = text.parts if isinstance(text, Joined) and text.separator is Separator.LINES else [text]
    for line in wrapped(plain(rendered(words)), console.width, indent):
        console.print(Text(line, style=style), soft_wrap=True)
    for each in commands:
        command(console, rendered(each), indent + STEP)


def command(console: Console, text: str, indent: int = 2 * STEP) -> None:
    """Print a line that is to be copied."""
    console.print(Text(" " * indent + plain(text)), soft_wrap=True)


def wrapped(text: str, width: int, indent: int = 0) -> list[str]:
    """A paragraph as lines; its later ones are moved in further."""
    first, later = " " * indent, " " * (indent + STEP)
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=later, break_long_words=False, break_on_hyphens=False)


def grid(*heads: Argument, numbers: tuple[int, ...] = (), gap: int = 2) -> Table:
    """An empty table with these heads; the columns of ``numbers`` are set to the right. The last one goes on in the next line."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, gap - 1, 0, 0), expand=False)
    for index, head in enumerate(heads):
        last = index == len(heads) - 1
        table.add_column(Text(rendered(head)), justify="right" if index in numbers else "left", no_wrap=not last, overflow="fold")
    return table


class Trimmed:
    """Something to print without the blanks at the ends of its lines."""

    def __init__(self, whole: RenderableType) -> None:
        self.whole = whole

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in console.render_lines(self.whole, options, pad=False):
            while line and not line[-1].text.strip():
                line.pop()
            if line:
                line[-1] = Segment(line[-1].text.rstrip(), line[-1].style)
            yield from line
            yield Segment.line()
