"""An arbitration as a document: who is right, the first error in roundings, and the points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from align_hooks.comparison.arbitration import SIDES, Arbitration, JudgedPoint, PointKind, Ruling, TruthDistance
from align_hooks.comparison.finding import Finding, when
from align_hooks.messages import Argument, Message, Side, message, sentences, terms
from align_hooks.report.blocks import Cell, DocumentBlock, Items, Paragraph, Table
from align_hooks.report.comparison import settings
from align_hooks.report.document import Document, style_of
from align_hooks.report.json import Shape, Shapes

SHOWN = 12
"""The most points that are listed."""


def document(arbitration: Arbitration) -> Document:
    """Return which side is right, and the points that show it."""
    return Document(arbitration.ruling, headline(arbitration), [*grounds(arbitration)])


def grounds(arbitration: Arbitration) -> Iterator[DocumentBlock]:
    """Yield remarks and doubts, settings that differ, points and notes."""
    yield Items([*remarks(arbitration), *arbitration.doubts])
    if arbitration.settings:
        yield Paragraph(sentences(settings(arbitration.settings), message("arbitrate.by_reference")))
    listed = shown(arbitration)
    if listed:
        yield table(listed)
    if len(listed) < len(arbitration.points):
        yield Paragraph(message("arbitrate.points_not_shown", count=len(arbitration.points) - len(listed)))
    yield Items(arbitration.notes, style="dim")


def headline(arbitration: Arbitration) -> Argument:
    """Return the text behind the ruling: the first wrong point, or the number of points within limits."""
    first, step = arbitration.first_wrong, when(arbitration.step)
    if first is None:
        return message("arbitrate.within", count=len(arbitration.points), step=step)
    return message("arbitrate.first", point=named(first), step=step, distances=terms(distances(first)))


def distances(judged: JudgedPoint) -> list[Message]:
    """Return each side's distance from the truth at a point."""
    if judged.kind is PointKind.CHOICE:
        return [message("arbitrate.given_otherwise", side=side, count=round(each.roundings)) for side, each in judged.distances.items()]
    return [message("arbitrate.away", side=side, roundings=each.roundings) for side, each in judged.distances.items()]


def remarks(arbitration: Arbitration) -> list[Argument]:
    """Return the first wrong point of each side where both are wrong, errors without consequence, agreement, and the closer side."""
    firsts = {side: arbitration.first(side) for side in SIDES}
    lines: list[Argument] = []
    if all(firsts.values()):
        lines += [message("arbitrate.side_first", side=side, point=named(first)) for side, first in firsts.items() if first is not None]
    for side in filter(arbitration.right, SIDES):
        if points := arbitration.healed(side):
            lines.append(message("arbitrate.healed", side=side, point=named(points[-1]), count=len(points)))
    if arbitration.agreed:
        lines.append(message("arbitrate.agreed"))
    closer = Counter(judged.closer for judged in arbitration.points)
    on_both = sum(len(judged.distances) == len(SIDES) for judged in arbitration.points)
    if arbitration.first_wrong is None and on_both:
        lines.append(message("arbitrate.closer", reference=closer[Side.REFERENCE], candidate=closer[Side.CANDIDATE], count=on_both))
    return lines


def shown(arbitration: Arbitration) -> Sequence[JudgedPoint]:
    """Return the points to list, in the order of execution: the first wrong ones, or where none is wrong the furthest."""
    if wrong := [judged for judged in arbitration.points if judged.ruling is not Ruling.BOTH_RIGHT]:
        return wrong[:SHOWN]
    furthest = {id(judged) for judged in sorted(arbitration.points, key=lambda judged: -judged.worst)[:SHOWN]}
    return [judged for judged in arbitration.points if id(judged) in furthest]


def table(points: Sequence[JudgedPoint]) -> Table:
    """Return a table of points: the ruling, both sides' roundings, the roundings of an honest run, the name."""
    heads = (message("page.result"), *SIDES, message("arbitrate.honest_column"), message("arbitrate.point_column"))
    return Table(heads, [*map(row, points)], numbers=(1, 2, 3), gap=1)


def row(judged: JudgedPoint) -> Sequence[Argument | Cell]:
    """Return the row of a point."""
    any_side = next(iter(judged.distances.values()))
    honest = message("arbitrate.roundings", roundings=any_side.honest / any_side.eps)
    sides = (numbered(judged.distances.get(side)) for side in SIDES)
    return (Cell(judged.ruling, style_of(judged.ruling)), *sides, honest, named(judged))


def named(judged: JudgedPoint) -> Message:
    """Return the name of a point, and whether its value, gradient or choice of experts is meant."""
    return message(f"arbitrate.at_{judged.kind.name.lower()}", point=judged.point)


def numbered(distance: TruthDistance | None) -> Argument:
    """Return a side's roundings, marked where estimated from sketches; a stroke where the side did not record the point."""
    if distance is None:
        return "-"
    return message("arbitrate.estimated" if distance.estimated else "arbitrate.roundings", roundings=distance.roundings)


def place(judged: JudgedPoint | None) -> dict[str, object] | None:
    """Return a point's name, and whether its value or gradient is meant."""
    return None if judged is None else {"point": judged.point, "of": judged.kind}


JSON: Shapes = {
    Arbitration: Shape(
        """ruling exit_code=ruling.exit_code step same_inputs=alike agree_with_each_other=agreed compute_types first
        without_consequence points model_settings=settings doubts* notes* messages""",
        first=lambda arbitration: {side: place(arbitration.first(side)) for side in SIDES},
        without_consequence=lambda arbitration: {side: [*map(place, arbitration.healed(side))] for side in SIDES},
    ),
    Finding: Shape("name reference! candidate!"),
    JudgedPoint: Shape("point of=kind ruling closer apart **distances"),
    TruthDistance: Shape("error roundings limit honest norm eps estimated right"),
}
"""The keys of an arbitration in JSON."""
