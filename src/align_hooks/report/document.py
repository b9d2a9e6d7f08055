"""A report before it is printed: a verdict and blocks, made once for a terminal, for Markdown and for a page.

``console.py``, ``markdown.py`` and ``html.py`` print a document each, and know nothing of what it reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, Flag, auto
from pathlib import Path
from typing import Any, TypeAlias

from align_hooks.data_file import sections
from align_hooks.messages import Argument, Joined, Message, Separator, message, sentences, with_commands

Data: TypeAlias = dict[str, Any]
"""Values for a page's macro or script, which become JSON."""
STEP = 2
"""Columns of a terminal by which a line below the verdict is indented."""
STYLES = {kind: dict(line.split(": ") for line in lines) for kind, lines in sections(Path(__file__).with_name("styles.txt")).items()}


class Medium(Flag):
    """What a document is printed on."""

    TERMINAL = auto()
    MARKDOWN = auto()
    PAGE = auto()


TEXT = Medium.TERMINAL | Medium.MARKDOWN
SCREEN = Medium.TERMINAL | Medium.PAGE
EVERYWHERE = TEXT | Medium.PAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A part of a document."""

    on: Medium = EVERYWHERE
    """Media that print the block."""


@dataclass(frozen=True, slots=True)
class Line(Block):
    """A paragraph, and below it the commands of its message, to be copied."""

    text: Argument
    style: str = ""
    """Style of a terminal, such as ``bold``."""
    indent: int = STEP
    """Columns on a terminal."""


@dataclass(frozen=True, slots=True)
class Labelled(Block):
    """A paragraph that begins with a word in its own style."""

    word: Argument
    text: Argument
    style: str
    between: str = ": "
    indent: int = 0


@dataclass(frozen=True, slots=True)
class Heading(Block):
    """A head within a section."""

    text: Argument
    id: str = ""
    """Address on the page; empty without one."""
    count: int | None = None
    """Number of the things below, which a page shows; None without one."""


@dataclass(frozen=True, slots=True)
class Items(Block):
    """Lines below one another."""

    lines: Sequence[Argument]
    head: Message | None = None
    most: int | None = None
    """The most lines on a terminal; None for all."""
    more: str = "check.more"
    """Id of the message with the number of lines that a terminal leaves out."""
    style: str = ""
    indent: int = STEP


@dataclass(frozen=True, slots=True)
class Item:
    """One of the things that a fact lists."""

    text: Argument
    tensor: str = ""
    """Canonical name of the tensor that the item names, whose rows a page shows; empty of anything else."""
    note: Message | None = None
    """What a page says beside the item."""


@dataclass(frozen=True, slots=True)
class Fact:
    """What is known under a label."""

    label: Argument
    items: Sequence[Item]
    look: str = ""
    """Class of a page's style sheet."""


@dataclass(frozen=True, slots=True)
class Facts(Block):
    """Facts in one line of a text."""

    facts: Sequence[Fact]

    @property
    def text(self) -> Joined:
        """The facts as a line."""
        lines = ((fact.label, sentences(*(item.text for item in fact.items))) for fact in self.facts if fact.items)
        return sentences(*(fact_text(label, text) for label, text in lines))


@dataclass(frozen=True, slots=True)
class Box(Block):
    """A framed advice, and its commands."""

    label: Message
    text: Argument
    id: str
    """Address on the page."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table, where it is more than a text."""

    text: Argument
    style: str = ""
    """Style of a terminal."""
    note: Argument = None
    """Small text below the cell's own."""
    aside: str = ""
    """Small text that a page alone shows."""


@dataclass(frozen=True, slots=True)
class Table(Block):
    """A table; its last column is wrapped on a terminal."""

    heads: Sequence[Argument | Cell]
    rows: Sequence[Sequence[Argument | Cell]]
    numbers: tuple[int, ...] = ()
    """Columns that are aligned to the right."""
    gap: int = 2
    """Blanks between two columns of a terminal."""
    is_fitted: bool = False
    """Whether a terminal wraps all columns, the widest first."""
    caption: Message | None = None
    """What a screen reader calls the table on a page."""
    look: str = ""
    """Class of a page's style sheet."""


@dataclass(frozen=True, slots=True)
class Code(Block):
    """Lines to be copied, which no printer breaks."""

    lines: Sequence[str]
    indent: int = 2 * STEP
    style: str = ""


@dataclass(frozen=True, slots=True)
class Fold(Block):
    """Blocks that a page folds away behind a line, which is a text's heading."""

    summary: Argument
    blocks: Sequence[Block]
    count: int | None = None
    """Number of the things below; None without one."""


@dataclass(frozen=True, slots=True)
class Section(Block):
    """Blocks with a head of their own on a page; a text prints them alone."""

    id: str
    """Address on the page."""
    nav: Message
    """Name in the page's navigation."""
    head: Message
    blocks: Sequence[Block]
    is_folded: bool = False
    look: str = ""
    """Further classes of a page's style sheet, where the section is folded."""


@dataclass(frozen=True, slots=True)
class Plots(Block):
    """Plots of a page, which its script draws."""

    make: Callable[[], Sequence[Data]]
    """Makes the plots (``curve_plots.py``): a document is printed on a terminal without them."""
    single: bool = False
    """Whether there is one run, and so no difference."""


@dataclass(frozen=True, slots=True)
class Special(Block):
    """A block of one report alone, with a macro of ``web/special.html``."""

    macro: str
    make: Callable[[], Data]
    """Makes the macro's values; ``script`` among them is data of the page's script."""


Blocks: TypeAlias = Sequence[Block]


@dataclass(frozen=True, slots=True)
class Identity:
    """One side in the head of a page; what is not on record is empty."""

    role: Argument
    look: str
    """The class of the side's swatch in the style sheet."""
    path: str
    framework: str = ""
    stands_on: str = ""
    precision: str = ""
    layout: Message | None = None
    steps: Message | None = None
    recorded: str = ""


@dataclass(frozen=True, slots=True)
class GlossaryEntry:
    """A word and its meaning."""

    slug: str
    name: Argument
    text: Message
    of: str = ""
    """The address of the stage that the word names, where that has its findings."""


@dataclass(frozen=True, slots=True)
class Document:
    """A report."""

    result: Enum | None
    """The verdict; None while there is none, as of a job that runs."""
    headline: Argument
    blocks: Blocks
    aside: Blocks = ()
    """Blocks beside the verdict on a page, and below it in a text."""
    sections: Blocks = ()
    title: Argument = None
    """Title of the page."""
    sides: Sequence[Identity] = ()
    """Runs or configurations that are reported on."""
    words: Sequence[GlossaryEntry] = ()
    """Words of this report that a page explains, beside those of the glossary."""
    chip: Argument = None
    """Word in the place of a verdict on a page; None where ``result`` is that word."""
    every: int = 0
    """Seconds after which a browser reloads the page; 0 for never."""

    @property
    def everything(self) -> Blocks:
        """All blocks in the order of a text."""
        return [*self.blocks, *self.aside, *self.sections]


def printed_on(medium: Medium, blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield the blocks that a medium prints; blocks of folds and sections in their place, but for a page."""
    for block in blocks:
        if medium not in block.on:
            continue
        if isinstance(block, Fold) and medium is not Medium.PAGE:
            yield from (Heading(block.summary), *printed_on(medium, block.blocks))
        elif isinstance(block, Section) and medium is not Medium.PAGE:
            yield from printed_on(medium, block.blocks)
        else:
            yield block


def style_of(result: Enum) -> str:
    """Return the style of a result."""
    return STYLES[type(result).__name__][result.name]


def parts_of(advice: Argument) -> Sequence[Argument]:
    """Return the words of an advice, and its commands."""
    return advice.parts if isinstance(advice, Joined) and advice.separator is Separator.LINES else (advice,)


def fact_text(label: Argument, text: Argument) -> Argument:
    """Return a text behind its label, with the commands of the text below."""
    words, *commands = parts_of(text)
    line = message("document.fact", label=label, text=words)
    return with_commands(line, *commands) if commands else line
