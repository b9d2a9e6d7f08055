"""docs/schemas/, made of the tables of docs/json.md: ``python tests/docs/schemas.py``."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
PAGE, FOLDER = DOCS / "json.md", DOCS / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
DOCUMENTS = {
    "compare": "ComparisonJson",
    "check": "CheckJson",
    "show": "RunJson",
    "watch": "WatchJson",
    "accept": "AcceptanceJson",
    "prove": "ProofJson",
    "solve": "SolveJson",
    "certify": "CheckedCardJson",
}
"""Name of a command, whose section has its name, to the title of the object that its ``--json`` writes."""
HEADING = re.compile(r"##+ (?P<name>.+)")
ROW = re.compile(r"\| `(?P<key>\w+)` \| (?P<holds>.+?) \| (?P<what>.+) \|")
REFERENCE = re.compile(r"\[(?P<name>[\w ]+)\]\(#[\w-]+\)")

NUMBER = {"anyOf": [{"type": "number"}, {"enum": ["-inf", "inf", "nan"]}]}
DATA = {
    "title": "message as data",
    "description": "An object with an `id` and `arguments`, or with the `id` of what joins it and its `parts`; the `id` alone of a member "
    "of an enumeration; null where there is none; or a text or a number as it is.",
}
PLAIN: Mapping[str, Mapping[str, Any]] = {
    "text": {"type": "string"},
    "whole number": {"type": "integer"},
    "true or false": {"type": "boolean"},
    "number": {"description": "A number. NaN and the infinities are texts that float() reads.", **NUMBER},
    "message as data": DATA,
    "table": {"type": "object"},
}
"""What the page calls a value, to its schema."""
COUNTS = ("special",)
"""Keys whose lists of a fixed length hold whole numbers; those of all others hold texts."""


@dataclass
class Section:
    """An object of the page: what it is, and its keys with what they hold and what they are."""

    description: str = ""
    rows: dict[str, tuple[str, str]] = field(default_factory=dict)


def sections() -> dict[str, Section]:
    """The objects of the page by their titles, in its order."""
    found: dict[str, Section] = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if heading := HEADING.fullmatch(line):
            name = heading["name"]
            section = found[DOCUMENTS.get(name) or title(name)] = Section()
        elif row := ROW.fullmatch(line):
            section.rows[row["key"]] = row["holds"], row["what"]
        elif found and line and not line.startswith("|"):
            section.description = line.partition(" Schema: [")[0]
    return found


def title(name: str) -> str:
    """The title of an object that the page calls ``compared run``: ``ComparedRunJson``."""
    return "".join(word.capitalize() for word in name.split()) + "Json"


def schema(name: str) -> dict[str, Any]:
    """The schema of what a command writes."""
    page, first = sections(), DOCUMENTS[name]
    return {
        "$schema": DIALECT,
        "title": f"align-hooks {name} --json",
        "$ref": f"#/$defs/{first}",
        "$defs": {kind: definition(kind, page) for kind in reached(page, first)},
    }


def reached(page: Mapping[str, Section], kind: str, met: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The objects that were met and those that an object is made of, itself among them, by its keys in the order of the alphabet."""
    if kind in met:
        return met
    met = (*met, kind)
    for _, (holds, _) in sorted(page[kind].rows.items()):
        for name in REFERENCE.findall(holds):
            met = reached(page, title(name), met)
    return met


def definition(kind: str, page: Mapping[str, Section]) -> dict[str, Any]:
    """The schema of an object. A key is required, and has a description where that is not the object's that it holds."""
    properties = {}
    for key, (holds, what) in page[kind].rows.items():
        held = shape(key, holds)
        reference = held.get("$ref", "").rpartition("/")[2]
        if not reference or page[reference].description != what:
            held = (held if "title" in held else {"description": what} | held) | {"description": what}
        properties[key] = held
    return {"title": kind, "description": page[kind].description, "type": "object", "properties": properties, "required": list(properties)}


def shape(key: str, holds: str) -> dict[str, Any]:
    """The schema of what the page says that a key holds."""
    if holds.startswith('"'):
        return {"enum": json.loads(f"[{holds}]"), "type": "string"}
    if holds in PLAIN:
        return dict(PLAIN[holds])
    if reference := REFERENCE.fullmatch(holds):
        return {"$ref": f"#/$defs/{title(reference['name'])}"}
    if length := re.fullmatch(r"list of (\d)", holds):
        item, count = PLAIN["whole number" if key in COUNTS else "text"], int(length[1])
        return {"type": "array", "minItems": count, "maxItems": count, "prefixItems": [item] * count, "items": False}
    if holds.startswith("list of "):
        return {"type": "array", "items": shape(key, holds.removeprefix("list of "))}
    if holds.startswith("table of "):
        return {"type": "object", "additionalProperties": shape(key, holds.removeprefix("table of "))}
    assert holds.endswith(" or null"), f"docs/json.md: {key} holds {holds!r}"
    return {"anyOf": [shape(key, holds.removesuffix(" or null")), {"type": "null"}]}


def text(name: str) -> str:
    """The file of a schema."""
    return json.dumps(schema(name), indent=1, ensure_ascii=False) + "\n"


def enumerations() -> Iterator[tuple[str, str, list[str]]]:
    """Every key that holds one of some texts: the title of its object, the key, and the texts."""
    for kind, section in sections().items():
        for key, (holds, _) in section.rows.items():
            if holds.startswith('"'):
                yield kind, key, json.loads(f"[{holds}]")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in DOCUMENTS:
        (FOLDER / f"{name}.json").write_text(text(name), encoding="utf-8")
