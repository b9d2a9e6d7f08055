"""Results for programs, as versioned strict JSON; docs/json.md describes each key, and tests compare both.

Bump a ``FORMAT`` when the meaning of anything changes. NaN and the infinities are the strings that ``float()`` reads back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import reduce
from typing import Any, TypeAlias

from align_hooks.comparison.finding import Finding
from align_hooks.comparison.stage_result import StageResult
from align_hooks.comparison.verdict import Blame, ComparisonResult, Criterion, Curve, Judgement, RunSummary
from align_hooks.messages import Joined, Message, as_data, id_of_first, rendered
from align_hooks.record.format.schema import Table
from align_hooks.report.blocks import parts_of
from align_hooks.report.findings import shown

FORMAT = 1


class Shape:
    """The keys of a type's objects in JSON, each an attribute, or ``key=path`` of attributes of attributes.

    Of None an attribute is null, of a list it is that of each. A sign behind a key says what its value is: ``!`` text, empty where there
    is none; ``*`` text, and data under ``messages``; ``@`` a message as data; ``?`` empty text in the place of null. ``**name`` stands
    for the items of a table. ``made`` has functions of the keys that are no attributes.
    """

    def __init__(self, keys: str, **made: Callable[[Any], object]) -> None:
        self.keys, self.made = keys.split(), made

    def of(self, value: object, shapes: Shapes) -> Table:
        """Return an object of JSON."""
        table: dict[str, Any] = {}
        messages: dict[str, Any] = {}
        for word in self.keys:
            if word.startswith("**"):
                table |= encoded(getattr(value, word[2:]), shapes)
                continue
            key, _, path = word.rstrip("!*@?").partition("=")
            make = self.made.get(key)
            if key == "messages":
                table[key] = messages
                messages |= encoded(make(value), shapes) if make is not None else {}
                continue
            part: Any = reduce(attribute, (path or key).split("."), value) if make is None else make(value)
            if word.endswith("*"):
                messages[key] = [*map(as_data, part)] if isinstance(part, list | tuple) else as_data(part)
            if word.endswith(("!", "*")):
                table[key] = [*map(text, part)] if isinstance(part, list | tuple) else text(part)
            elif word.endswith("@"):
                table[key] = as_data(part)
            else:
                table[key] = "" if word.endswith("?") and part is None else encoded(part, shapes)
        return table


Shapes: TypeAlias = Mapping[type, Shape]


def attribute(value: Any, name: str) -> Any:
    """Return an attribute; of None, None; of a list, that of each."""
    if isinstance(value, list | tuple):
        return [getattr(each, name) for each in value]
    return None if value is None else getattr(value, name)


def text(value: Any) -> str:
    """Return a value in words."""
    return rendered(shown(value))


def encoded(value: Any, shapes: Shapes) -> Any:
    """Return a value as JSON holds it."""
    if shape := next((shapes[each] for each in type(value).__mro__ if each in shapes), None):
        return shape.of(value, shapes)
    if isinstance(value, Judgement):
        return value.text
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Message | Joined):
        return rendered(value)
    if isinstance(value, Mapping):
        return {encoded(key, shapes): encoded(item, shapes) for key, item in value.items()}
    return value if isinstance(value, str) or not hasattr(value, "__iter__") else [encoded(item, shapes) for item in value]


SHAPES: Shapes = {
    ComparisonResult: Shape(
        """verdict exit_code=verdict.exit_code first=first.title first_id=first.stage.id blame headline* next* commands! stages
        model_settings=settings acceptance notes* messages eps calibration runs=sides curves""",
        next=lambda result: parts_of(result.next)[0],
        commands=lambda result: parts_of(result.next)[1:],
    ),
    Blame: Shape(
        "place suspects=suspects.what! suspect_names=suspects.name suspect_ids causes=likely! cause_ids=causes",
        suspect_ids=lambda blame: [id_of_first(suspect.what) for suspect in blame.suspects],
    ),
    StageResult: Shape("id=stage.id name=title! status summary* told=common* messages findings"),
    Finding: Shape(
        """what* reference! candidate! error limit scale direction name step quantity? since rank unit term? by_digest
        messages limit_ratio"""
    ),
    Criterion: Shape("name what! passed value! reference_own=own"),
    RunSummary: Shape("path ranks layout steps"),
    Curve: Shape("name steps reference candidate limits noise"),
}


def as_json(result: object, shapes: Shapes = SHAPES, form: int = FORMAT, /, **about: str) -> Table:
    """Return everything of a result; ``about`` has the version, and what was named on the command line."""
    return {"format": form, **about, **encoded(result, shapes)}
