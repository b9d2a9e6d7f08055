"""What messages and reports say, for tests."""

import io
from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Console

from align_hooks.comparison.finding import Finding
from align_hooks.comparison.stage_result import StageResult, Status
from align_hooks.comparison.stages.registry import LADDER
from align_hooks.messages import Argument, Joined, Message, message, rendered
from align_hooks.report.blocks import DocumentBlock
from align_hooks.report.console import print_blocks, print_document
from align_hooks.report.document import Document


def messages(*values: object) -> Iterator[Message]:
    """Messages, and those within them, from the outside in."""
    for value in values:
        if isinstance(value, Message):
            yield value
            yield from messages(*value.arguments.values())
        elif isinstance(value, Joined):
            yield from messages(*value.parts)
        elif isinstance(value, tuple | list):
            yield from messages(*value)


def ids(*values: object) -> list[str]:
    """Ids of the same."""
    return [message.id for message in messages(*values)]


def arguments(id: str, *values: object) -> dict[str, object]:
    """The arguments of the first message with an id."""
    return dict(next(message for message in messages(*values) if message.id == id).arguments)


def words(id: str, **arguments: Argument) -> str:
    """The English of a message, for what reaches a test as text alone."""
    return rendered(message(id, **arguments))


def result(name: str, status: Status, summary: str = "", findings: tuple[Finding, ...] = ()) -> StageResult:
    """How the stage of a name came out."""
    return StageResult(next(stage for stage in LADDER if stage.name == name), status, summary, findings)


def on_terminal(report: Document | Iterable[DocumentBlock], width: int = 80, **options: Any) -> str:
    """What a terminal shows of a report."""
    console = Console(file=(text := io.StringIO()), width=width, **options)
    print_document(report, console) if isinstance(report, Document) else print_blocks(report, console)
    return text.getvalue()
