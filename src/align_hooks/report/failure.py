"""The error of a test whose comparison has another verdict than it allows, for readers who have nothing but a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from align_hooks.comparison.verdict import ComparisonResult, Verdict
from align_hooks.messages import Argument, any_of, message, rendered
from align_hooks.report.blocks import Medium, Paragraph, of_text, parts_of
from align_hooks.report.comparison import conclusion
from align_hooks.report.console import plain


def failure(comparison: ComparisonResult, allowed: Sequence[Verdict], command: str, page: str | None) -> str:
    """Return the text of the error: ``command`` prints the report, ``page`` is its file, None where none was written."""
    return "\n  ".join(plain(rendered(line)) for line in _lines(comparison, allowed, command, page))


def _lines(comparison: ComparisonResult, allowed: Sequence[Verdict], command: str, page: str | None) -> Iterator[Argument]:
    yield message("failure.verdict", verdict=comparison.verdict, headline=comparison.headline)
    if [*allowed] != [Verdict.ALIGNED]:
        yield message("failure.allowed", allowed=any_of(*allowed))
    for block in of_text(Medium.MARKDOWN, conclusion(comparison)):
        yield from parts_of(block.full_text) if isinstance(block, Paragraph) else ()
    yield message("failure.command", command=command)
    if page is not None:
        yield message("failure.page", path=page)
