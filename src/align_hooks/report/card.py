"""A card as a document, and as a page for a model hub; and what a check of one found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from align_hooks.comparison.verdict import Verdict
from align_hooks.messages import Argument, message
from align_hooks.report.blocks import Code, DocumentBlock, Heading, Medium, Paragraph, Table
from align_hooks.report.document import Document
from align_hooks.report.json import Shape, Shapes
from align_hooks.report.markdown import escaped, markdown
from align_hooks.scenarios.card import Card, ItemCard, RunCard, hub_metadata
from align_hooks.scenarios.recheck import Departure, Held


def document(card: Card) -> Document:
    """Return a card as a document: each item with its sides, its stages and its commands."""
    blocks = [block for name, item in card.items.items() for block in of_item(name, item)]
    return Document(Verdict.ALIGNED, card.summary, blocks, title=card.title)


def of_item(name: str, item: ItemCard) -> Iterator[DocumentBlock]:
    """Yield an item."""
    yield Heading(f"{name}: {item.expected_result}")
    for role, run in (("side.reference", item.reference), ("side.candidate", item.candidate)):
        yield Paragraph(described(run), word=message(role))
    heads = [message(f"card.{head}") for head in ("stage", "result", "error", "limit", "noise")]
    rows = [
        [message(f"stage.{id_}"), stage.status, *map(number, (stage.error, stage.limit, stage.noise))] for id_, stage in item.stages.items()
    ]
    yield Table(heads, rows, numbers=(2, 3, 4))
    yield from (Paragraph(note, "dim") for note in item.notes)
    yield Code(item.commands, on=Medium.MARKDOWN)


def described(run: RunCard) -> Argument:
    """Return what trained a run, in a line."""
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    commits = "".join(f", {name} at {str(commit)[:12]}" for name, commit in run.commits.items())
    layout = " ".join(f"{axis.upper()}{size}" for axis, size in run.layout.items())
    return message(
        "card.run",
        path=run.path,
        versions=versions + commits,
        device=run.device or message("card.nothing"),
        precision=run.precision,
        ranks=run.ranks,
        layout=f" {layout}" if layout else "",
        steps=run.steps,
    )


def number(value: float | None) -> Argument:
    """Return a number of a stage; nothing where there is none."""
    return "" if value is None else f"{value:.2e}"


def hub_page(card: Card) -> str:
    """Return the card as Markdown, with the metadata that model hubs read in front of it."""
    return f"---\n{hub_metadata(card)}---\n\n# {escaped(card.title)}\n\n{markdown(document(card))}"


def checked(title: str, items: int, found: Sequence[Departure]) -> Document:
    """Return what a check of a card found."""
    if not found:
        return Document(Held.HOLDS, message("card.holds", items=items), [], title=title)
    heads = [message(f"card.{head}") for head in ("place", "was", "now")]
    table = Table(heads, [[each.place, each.was, each.now] for each in found], is_fitted=True)
    return Document(Held.BROKEN, message("card.broken", count=len(found)), [table], title=title)


JSON: Shapes = {Departure: Shape("place was! now!")}
