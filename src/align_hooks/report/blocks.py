"""The blocks that documents are made of. A printer knows each kind, and nothing of what is reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Flag, auto
from typing import Any, TypeAlias

from msgspec import Struct

from align_hooks.messages import Argument, Joined, Message, Separator, message, sentences, with_commands

Data: TypeAlias = dict[str, Any]
"""Values for a page's macro or script, which become JSON."""
STEP = 2
"""Columns of a terminal by which a line below the verdict is indented."""


class Medium(Flag):
    """What a document is printed on."""

    TERMINAL = auto()
    MARKDOWN = auto()
    PAGE = auto()


TEXT = Medium.TERMINAL | Medium.MARKDOWN
SCREEN = Medium.TERMINAL | Medium.PAGE
EVERYWHERE = TEXT | Medium.PAGE


class DocumentBlock(Struct, frozen=True, kw_only=True):
    """A part of a document."""

    on: Medium = EVERYWHERE
    """Media that print the block."""


class Paragraph(DocumentBlock, frozen=True):
    """A paragraph, and below it the commands of its message, to be copied."""

    text: Argument
    style: str = ""
    """Style on a terminal, such as ``bold``: of ``word``, or of the paragraph where there is none."""
    indent: int = STEP
    """Columns on a terminal."""
    word: Argument = None
    """What the paragraph begins with, such as a verdict; None without one."""
    between: str = ": "
    """What a terminal prints between ``word`` and ``text``."""

    @property
    def full_text(self) -> Argument:
        """The paragraph with its first word."""
        return self.text if self.word is None else fact_text(self.word, self.text)


class Heading(DocumentBlock, frozen=True):
    """A head within a section."""

    text: Argument
    id: str = ""
    """Address on the page; empty without one."""
    count: int | None = None
    """Number of the things below, which a page shows; None without one."""


class Items(DocumentBlock, frozen=True):
    """Lines below one another."""

    lines: Sequence[Argument]
    head: Message | None = None
    most: int | None = None
    """The most lines on a terminal; None for all."""
    more: str = "check.more"
    """Id of the message with the number of lines that a terminal leaves out."""
    style: str = ""
    indent: int = STEP


class Item(Struct, frozen=True):
    """One of the things that a fact lists."""

    text: Argument
    tensor: str = ""
    """Canonical name of the tensor that the item names, whose rows a page shows; empty of anything else."""
    note: Message | None = None
    """What a page says beside the item."""


class KeyValues(DocumentBlock, frozen=True):
    """Labels with what is known under each, in one line of a text."""

    facts: Sequence[tuple[Argument, Sequence[Item]]]

    @property
    def text(self) -> Joined:
        """The facts as a line."""
        return sentences(*(fact_text(label, sentences(*(item.text for item in items))) for label, items in self.facts if items))


class Box(DocumentBlock, frozen=True):
    """A framed advice: a text with its commands, and what a page shows below."""

    label: Message
    id: str
    """Address on the page."""
    text: Argument = None
    blocks: Sequence[DocumentBlock] = ()


class Cell(Struct, frozen=True):
    """A cell of a table, where it is more than a text."""

    text: Argument
    style: str = ""
    """Style of a terminal."""
    note: Argument = None
    """Small text below the cell's own."""
    aside: str = ""
    """Small text on a page; no text has it."""

    @classmethod
    def of(cls, content: Argument | Cell) -> Cell:
        """Return a cell of a table as one that may have more than a text."""
        return content if isinstance(content, Cell) else cls(content)


class Table(DocumentBlock, frozen=True):
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


class Code(DocumentBlock, frozen=True):
    """Lines to be copied, which no printer breaks."""

    lines: Sequence[str]
    indent: int = 2 * STEP
    style: str = ""


class Fold(DocumentBlock, frozen=True):
    """Blocks that a page folds away behind a line, which is a text's heading."""

    summary: Argument
    blocks: Sequence[DocumentBlock]
    count: int | None = None
    """Number of the things below; None without one."""


class Section(DocumentBlock, frozen=True):
    """Blocks with a head of their own on a page; a text leaves the head out."""

    id: str
    """Address on the page."""
    nav: Message
    """Name in the page's navigation."""
    head: Message
    blocks: Sequence[DocumentBlock]
    is_folded: bool = False
    look: str = ""
    """Further classes of a page's style sheet, where the section is folded."""


class Plots(DocumentBlock, frozen=True):
    """Plots of a page, which its script draws."""

    make: Callable[[], Sequence[Data]]
    """Makes the plots (``curve_plots.py``): a document is printed on a terminal without them."""
    single: bool = False
    """Whether there is one run, and so no difference."""


class Special(DocumentBlock, frozen=True):
    """A block of one report, with a macro of ``web/special.html``."""

    macro: str
    make: Callable[[], Data]
    """Makes the macro's values; ``script`` among them is data of the page's script."""


Blocks: TypeAlias = Sequence[DocumentBlock]


def of_page(blocks: Iterable[DocumentBlock]) -> list[DocumentBlock]:
    """Return the blocks that a page shows."""
    return [block for block in blocks if Medium.PAGE in block.on]


def of_text(medium: Medium, blocks: Iterable[DocumentBlock]) -> Iterator[Paragraph | Code | Table]:
    """Yield what a medium of text prints: every other block as lines."""
    for block in blocks:
        if medium not in block.on:
            continue
        match block:
            case Paragraph() | Code() | Table():
                yield block
            case Heading():
                yield Paragraph(block.text, "bold", 0)
            case KeyValues():
                yield Paragraph(block.text)
            case Box():
                yield Paragraph(fact_text(block.label, block.text))
            case Fold():
                yield from (Paragraph(block.summary, "bold", 0), *of_text(medium, block.blocks))
            case Section():
                yield from of_text(medium, block.blocks)
            case Items():
                yield from lines_of(block)
            case _:
                raise TypeError(f"{type(block).__name__} is of pages")


def lines_of(items: Items) -> Iterator[Paragraph]:
    """Yield the first lines under their head, and the number of the others."""
    if items.lines and items.head is not None:
        yield Paragraph(items.head, "bold", 0)
    yield from (Paragraph(each, items.style, items.indent) for each in items.lines[: items.most])
    if items.most is not None and len(items.lines) > items.most:
        yield Paragraph(message(items.more, count=len(items.lines) - items.most), indent=items.indent)


def parts_of(advice: Argument) -> Sequence[Argument]:
    """Return the words of an advice, and its commands."""
    return advice.parts if isinstance(advice, Joined) and advice.separator is Separator.LINES else (advice,)


def fact_text(label: Argument, text: Argument) -> Argument:
    """Return a text behind its label, with the commands of the text below."""
    words, *commands = parts_of(text)
    line = message("document.fact", label=label, text=words)
    return with_commands(line, *commands) if commands else line
