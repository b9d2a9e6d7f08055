"""A distilled run as a document: the file's contents, their sizes, and what was left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from align_hooks.messages import message, rendered
from align_hooks.record.inventory import OTHER, ranges
from align_hooks.report.blocks import Code, DocumentBlock, Paragraph, Table
from align_hooks.report.findings import size


def contents(
    place: str, total: int, kept: Mapping[str, Sequence[int]], sizes: Mapping[str, int], left_out: Mapping[str, str]
) -> Iterator[DocumentBlock]:
    """Yield the contents of the file ``place`` of ``total`` bytes, by quantity: steps ``kept``, ``sizes`` in bytes, steps ``left_out``."""
    yield Code([rendered(message("distill.written", place=place, size=size(total)))], indent=0)  # the path is copied
    heads = message("distill.holds"), message("distill.size"), message("distill.steps")
    rows = [(name, size(sizes.get(name, 0)), f"{ranges(tuple(steps))} ({len(steps)})") for name, steps in kept.items()]
    yield Table(heads, [*rows, (message("distill.facts"), size(sizes.get(OTHER, 0)), "")], numbers=(1,))
    for name, lost in left_out.items():
        yield Paragraph(message("distill.left_out", name=name, steps=lost, number=1 if lost.isdecimal() else 2))
