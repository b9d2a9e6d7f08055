"""The guide's acceptance standard as a document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum

from align_hooks.comparison.verdict import Criterion
from align_hooks.messages import Argument, message
from align_hooks.report.blocks import Paragraph, fact_text
from align_hooks.report.document import Document

JUDGED = {None: ("dim", message("page.not_judged")), True: ("green", message("page.passed")), False: ("red", message("page.failed"))}


def document(outcome: Enum, headline: Argument, judged: Sequence[Criterion], notes: Sequence[Argument]) -> Document:
    """Return the outcome of ``accept``."""
    return Document(outcome, headline, [*criteria(judged), *(Paragraph(note, "dim") for note in notes)])


def criteria(acceptance: Sequence[Criterion]) -> Iterator[Paragraph]:
    """Yield the lines of the standard."""
    for criterion in acceptance:
        style, judged = JUDGED[criterion.passed]
        yield Paragraph(fact_text(criterion.what, criterion.found), style, word=judged, between="  ")
