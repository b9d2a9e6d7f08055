"""The tables of docs/compatibility.md, made from the committed results of the matrix: ``python tests/matrix/table.py`` writes them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TypedDict

RESULTS = Path(__file__).resolve().parent / "results"
DOCS = RESULTS.parents[2] / "docs"
PAGES = (DOCS / "compatibility.md", DOCS / "compatibility.zh-CN.md")
PART = re.compile(r"(?s)(<!-- python tests/matrix/table.py -->\n).*?(<!-- end -->)")
SIDES = {"megatron": "Megatron-LM", "mindformers": "MindFormers", "mindspeed": "MindSpeed-LLM"}
BESIDE = ("torch", "mindspore")
"""The package whose version stands in the table; the result has all of them."""

HEADING = "| version | beside it | proven on the CPU | verdict | worst error | made by |\n| --- | --- | --- | --- | --- | --- |"


class Result(TypedDict):
    """One row: the fields of a file in ``results``."""

    side: str
    version: str
    python: str
    packages: dict[str, str]
    command: str
    proven: list[str]
    verdict: str | None
    worst: dict[str, float]
    gap: str | None


def table(folder: Path = RESULTS) -> str:
    """The whole table, what runs first, newest versions first on each side."""
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    results.sort(key=lambda result: [int(part) for part in result["version"].split(".")], reverse=True)
    results.sort(key=lambda result: (result["side"], bool(result["gap"])))
    return "\n".join([HEADING, *map(row, results)]) + "\n"


def row(result: Result) -> str:
    """One result as a row of the table."""
    beside = [f"{name} {result['packages'][name]}" for name in BESIDE if name in result["packages"]]
    cells = (
        f"{SIDES[result['side']]} {result['version']}" + script(result["command"]),
        ", ".join([f"Python {result['python']}", *beside]),
        ", ".join(result["proven"]) or "nothing",
        f"{result['verdict'] or 'none'}" + (f"; gap: {result['gap']}" if result["gap"] else ""),
        worst(result["worst"]),
        f"`{result['command']}`",
    )
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


OTHER_THAN_RELEASES = {"wheel": ", wheel", "main": ", main branch of August 2026"}
"""What a cell is of, by the end of its command, where it is not a checkout of a tag."""


def script(command: str) -> str:
    """Whose script was run (``1.6.0:1.9.0``: of 1.6.0 on 1.9.0), that it is a wheel, or its family and layout."""
    for kind, words in OTHER_THAN_RELEASES.items():
        if command.endswith(f"@{kind}"):
            return words
    pair = command.split()[-1].partition("@")[0].split(":")
    return f", script of {pair[0]}" if "/mindformers.py" in command else "".join(f", {part}" for part in pair[1:])


def worst(errors: dict[str, float]) -> str:
    """The largest error of all stages and its stage; 0 where everything is equal to the bit."""
    if not errors:
        return ""
    stage = max(errors, key=lambda name: errors[name])
    return f"{errors[stage]:.1e} ({stage})" if errors[stage] else "0"


def filled(page: str) -> str:
    """A page with the table as it is now."""
    return PART.sub(lambda found: found[1] + table() + found[2], page)


if __name__ == "__main__":
    for each in PAGES:
        each.write_text(filled(each.read_text(encoding="utf-8")), encoding="utf-8")
