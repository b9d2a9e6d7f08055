"""A report before it is printed: a verdict and blocks, made once for a terminal, for Markdown and for a page.

``console.py``, ``markdown.py`` and ``html.py`` print a document each.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from msgspec import Struct

from align_hooks.data_file import sections
from align_hooks.messages import Argument, Message
from align_hooks.report.blocks import Blocks

STYLES = {kind: dict(line.split(": ") for line in lines) for kind, lines in sections(Path(__file__).with_name("styles.txt")).items()}


class Identity(Struct, frozen=True):
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


class GlossaryEntry(Struct, frozen=True):
    """A word and its meaning."""

    slug: str
    name: Argument
    text: Message
    of: str = ""
    """The address of the stage that the word names, where that has its findings."""


class Document(Struct, frozen=True):
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


def style_of(result: Enum) -> str:
    """Return the style of a result."""
    return STYLES[type(result).__name__][result.name]
