"""Which side is right, on a terminal: who, where first and by how many roundings, and the points that say so. Fits 80 columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from align_hooks.comparison.arbitration import SIDES, Arbitration, JudgedPoint, PointKind, Ruling, TruthDistance
from align_hooks.comparison.finding import when
from align_hooks.messages import Argument, Message, Side, message, rendered, sentences, terms
from align_hooks.report.console import Trimmed, grid, paragraph, plain, style_of, verdict
from align_hooks.report.text import settings

SHOWN = 12
"""The most points that are listed."""


def render_arbitration(arbitration: Arbitration, console: Console) -> None:
    """Print who is right."""
    verdict(console, arbitration.ruling, style_of(arbitration.ruling), headline(arbitration))
    for line in (*said_of_sides(arbitration), *arbitration.doubts):
        paragraph(console, line)
    if arbitration.settings:
        paragraph(console, sentences(settings(arbitration.settings), message("arbitrate.by_reference")))
    listed = shown(arbitration)
    if listed:
        console.print(Trimmed(table(listed)))
    if len(listed) < len(arbitration.points):
        paragraph(console, message("arbitrate.points_not_shown", count=len(arbitration.points) - len(listed)))
    for note in arbitration.notes:
        paragraph(console, note, style="dim")


def headline(arbitration: Arbitration) -> Argument:
    """What follows the ruling on its line."""
    first, step = arbitration.first_wrong, when(arbitration.step)
    if first is None:
        return message("arbitrate.within", count=len(arbitration.points), step=step)
    return message("arbitrate.first", point=named(first), step=step, distances=terms(away(first)))


def away(judged: JudgedPoint) -> list[Message]:
    """How far each side is from the truth at a point."""
    if judged.kind is PointKind.CHOICE:
        return [message("arbitrate.given_otherwise", side=side, count=round(each.roundings)) for side, each in judged.distances.items()]
    return [message("arbitrate.away", side=side, roundings=each.roundings) for side, each in judged.distances.items()]


def said_of_sides(arbitration: Arbitration) -> list[Argument]:
    """Where each side leaves the truth, if both do; that they agree with each other, if they do; who is closer, if both are right."""
    firsts = {side: arbitration.first(side) for side in SIDES}
    lines: list[Argument] = []
    if all(firsts.values()):
        lines += [message("arbitrate.side_first", side=side, point=named(first)) for side, first in firsts.items() if first is not None]
    healed = {side: arbitration.healed(side) for side in SIDES if arbitration.right(side)}
    lines += [
        message("arbitrate.healed", side=side, point=named(points[-1]), count=len(points)) for side, points in healed.items() if points
    ]
    if arbitration.agreed:
        lines.append(message("arbitrate.agreed"))
    closer = Counter(judged.closer for judged in arbitration.points)
    pair = len([judged for judged in arbitration.points if len(judged.distances) == len(SIDES)])
    if arbitration.first_wrong is None and pair:
        lines.append(message("arbitrate.closer", reference=closer[Side.REFERENCE], candidate=closer[Side.CANDIDATE], count=pair))
    return lines


def shown(arbitration: Arbitration) -> Sequence[JudgedPoint]:
    """The points that are listed, in the order of execution: those where a side leaves the truth, the first of many; else the furthest."""
    wrong = [judged for judged in arbitration.points if judged.ruling is not Ruling.BOTH_RIGHT]
    if wrong:
        return wrong[:SHOWN]
    furthest = {id(judged) for judged in sorted(arbitration.points, key=lambda judged: -judged.worst)[:SHOWN]}
    return [judged for judged in arbitration.points if id(judged) in furthest]


def table(points: Sequence[JudgedPoint]) -> Table:
    """Points with both sides' roundings, those that an honest run has, and who is right."""
    heads = (message("page.result"), *SIDES, message("arbitrate.honest_column"), message("arbitrate.point_column"))
    made = grid(*heads, numbers=(1, 2, 3), gap=1)
    for judged in points:
        cells = [rendered(numbered(judged.distances.get(side))) for side in SIDES]
        any_side = next(iter(judged.distances.values()))
        honest = rendered(message("arbitrate.roundings", roundings=any_side.honest / any_side.eps))
        ruling = Text(rendered(judged.ruling), style_of(judged.ruling))
        made.add_row(ruling, *map(Text, cells), Text(honest), Text(plain(rendered(named(judged)))))
    return made


def named(judged: JudgedPoint) -> Message:
    """A point by its name and what of it is meant."""
    return message(f"arbitrate.at_{judged.kind.name.lower()}", point=judged.point)


def numbered(distance: TruthDistance | None) -> Argument:
    """A side's roundings; a stroke where it did not record the point, a mark where they are estimated from sketches."""
    if distance is None:
        return "-"
    return message("arbitrate.estimated" if distance.estimated else "arbitrate.roundings", roundings=distance.roundings)
