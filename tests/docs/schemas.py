"""docs/schemas/ and docs/json.md, made from the types of the JSON that commands write: ``python tests/docs/schemas.py``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))

from align_hooks.report import check_json_types, json_types
from align_hooks.report.check_json_types import CheckJson
from align_hooks.report.json_types import AcceptanceJson, ComparisonJson, RunJson, WatchJson
from docs.reference import table

DOCS = Path(__file__).parents[2] / "docs"
PAGE, FOLDER = DOCS / "json.md", DOCS / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
DOCUMENTS: dict[str, Any] = {
    "compare": ComparisonJson,
    "check": CheckJson,
    "show": RunJson,
    "watch": WatchJson,
    "accept": AcceptanceJson,
}
"""Name of a command to the type of what its ``--json`` writes."""
TYPES = vars(json_types) | vars(check_json_types)
HEAD = """# The JSON that commands write

`compare`, `check`, `show`, `watch` and `accept` write everything that they print, and more, to the file that `--json` names. Each has a
JSON Schema (draft 2020-12) in [schemas](schemas). Schemas and this page are made from the code by `python tests/docs/schemas.py`. A test
holds them current, and holds real output against them: no key is written that is not here.

```sh
align-hooks compare runs/megatron runs/mindformers --json comparison.json
align-hooks show runs/megatron --json megatron.json
```

From Python, `align_hooks.compare(…).to_dict()` is the same as the first ([python.md](python.md)). What holds for all of them:

- `format` goes up when the meaning of a key changes. A new key may come at any time: a reader passes over what it does not know.
- What people read is English text. Beside it, under `messages`, stands the same as data: the id of the message and its arguments. Ids stay;
  words may be reworded. Do not read words: `verdict`, `status`, ids and numbers say all that they say.
- The file is strict JSON. NaN and the infinities are the texts `"nan"`, `"inf"` and `"-inf"`, which Python's `float()` reads.
- Step N is the iteration that Megatron-LM and MindFormers print as N+1.
- The exit code of the command stands in the file.
"""


def schema(name: str) -> dict[str, Any]:
    """The schema of what a command writes."""
    made = msgspec.json.schema(DOCUMENTS[name])
    for kind, properties in made["$defs"].items():
        order = list(get_type_hints(TYPES[kind]))
        properties["properties"] = {key: properties["properties"][key] for key in order}
        properties["required"] = sorted(properties["required"], key=order.index)
    return {"$schema": DIALECT, "title": f"align-hooks {name} --json", **made}


def text(name: str) -> str:
    """The file of a schema."""
    return json.dumps(schema(name), indent=1, ensure_ascii=False) + "\n"


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *sections()])


def sections() -> Iterator[str]:
    """A section a command; what several have is told once."""
    told: set[str] = set()
    for name in DOCUMENTS:
        made = schema(name)
        yield f"## {name}\n\n{DOCUMENTS[name].__doc__} Schema: [{name}.json](schemas/{name}.json).\n"
        first = made["$ref"].rpartition("/")[2]
        for kind in reached(made["$defs"], first):
            if kind not in told:
                yield from section(made["$defs"], kind, "" if kind == first else called(kind))
            told.add(kind)


def reached(kinds: dict[str, Any], first: str) -> list[str]:
    """The objects that a document is made of, in the order in which they are met."""
    order = [first]
    for kind in order:
        order += [other for other in referred(kinds[kind]) if other not in order]
    return order


def referred(value: Any) -> Iterator[str]:
    """The objects that a part of a schema refers to."""
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"].rpartition("/")[2]
        value = value.values()
    if not isinstance(value, str | int | float | None):
        for part in value:
            yield from referred(part)


def section(kinds: dict[str, Any], kind: str, title: str) -> Iterator[str]:
    """The keys of one object."""
    if title:
        yield f"### {title}\n\n{kinds[kind]['description']}\n"
    rows = [(f"`{key}`", shape(value), described(value, kinds)) for key, value in kinds[kind]["properties"].items()]
    yield table(("key", "holds", "what it is"), rows)


def described(value: dict[str, Any], kinds: dict[str, Any]) -> str:
    """What a key is; of an object what that is, where nothing more is said."""
    return str(value["description"] if "description" in value else kinds[value["$ref"].rpartition("/")[2]]["description"])


def called(kind: str) -> str:
    """An object's name as the page has it, ``a finding``."""
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in kind.removesuffix("Json")).strip()
    return words[:1].upper() + words[1:]


PLAIN = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false", "null": "null"}


def shape(value: dict[str, Any]) -> str:
    """What a value is, in words."""
    if "$ref" in value:
        name = called(value["$ref"].rpartition("/")[2])
        return f"[{name.lower()}](#{name.lower().replace(' ', '-')})"
    if "anyOf" in value:
        parts = [shape(part) for part in value["anyOf"]]
        kept = [part for part in parts if part != '"-inf", "inf", "nan"']
        return " or ".join(dict.fromkeys(kept))
    if "enum" in value:
        return ", ".join(f'"{member}"' for member in value["enum"])
    kind = value.get("type")
    if kind == "array":
        items = value.get("prefixItems")
        return f"list of {len(items)}" if items else f"list of {shape(value['items'])}"
    if kind == "object":
        return f"table of {shape(value['additionalProperties'])}" if isinstance(value.get("additionalProperties"), dict) else "table"
    return PLAIN.get(str(kind)) or value.get("title") or "anything"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in DOCUMENTS:
        (FOLDER / f"{name}.json").write_text(text(name), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
