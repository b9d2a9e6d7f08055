"""The tables of a device in docs/compatibility.md and docs/cost.md, made from committed results: ``python tests/gpu/table.py``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
DOCS = RESULTS.parents[2] / "docs"
PART = re.compile(r"(?s)(<!-- python tests/gpu/table.py (\w+) -->\n).*?(<!-- end -->)")
PAGES = tuple(DOCS / f"{page}{language}.md" for page in ("compatibility", "cost") for language in ("", ".zh-CN"))
STATE = {True: "yes", False: "**no**", None: "untried"}
Result = Mapping[str, Any]


def lines(heading: str, *rows: tuple[object, ...]) -> str:
    """Return a table in markdown."""
    separator = "| " + " | ".join("---" for _ in heading.split(" | ")) + " |"
    return "\n".join(
        [f"| {heading} |", separator, *(f"| {' | '.join(str(cell).replace('|', '&#124;') for cell in row)} |" for row in rows)]
    )


def on(result: Result) -> str:
    """Return what a result was made on."""
    machine = result["machine"]
    beside = f"torch {machine['torch']}, Megatron-LM {machine['megatron-core']}, Python {machine['python']}"
    return f"{machine['device']}, CUDA {machine['cuda']}, {beside}:\n\n"


def checks(result: Result) -> str:
    """Return the table of all checks of a device."""
    rows = [(name, each["case"], STATE[each["ok"]], each["words"]) for name, outcomes in result["checks"].items() for each in outcomes]
    return on(result) + lines("check | case | holds | measured", *rows) + "\n"


def costs(result: Result) -> str:
    """Return what each way costs there, in time and in what a selected step asks of the device."""
    timed = [each for each in result["costs"] if each["kind"] == "time"]
    profiled = [each for each in result["costs"] if each["kind"] == "profile"]
    rows = [
        (
            each["model"],
            each["way"],
            f"{1e3 * each['step']:.1f} ms",
            f"{each['selected']:.3f}" if each["selected"] else "",
            f"{each['of plain']:.3f}",
        )
        for each in timed
    ]
    counts = [(each["way"], *(f"{each[kind]:.0f}" for kind in ("operators", "kernels", "microseconds", "transfers"))) for each in profiled]
    made = on(result) + lines("model | way | a step, mean | a selected step to the one before | all steps to the plain run's", *rows)
    made += "\n\nWhat a selected step of the large model asks for beyond the step before it:\n\n"
    return made + lines("way | operators | kernels | microseconds of kernels | transfers to the host", *counts) + "\n"


TABLES: Mapping[str, Callable[[Result], str]] = {"checks": checks, "costs": costs}


def written(page: str) -> str:
    """Return a page with its tables made anew from all results."""
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))]
    return PART.sub(lambda part: part[1] + "\n".join(TABLES[part[2]](result) for result in results) + part[3], page)


def main() -> None:
    """Write the tables."""
    for page in PAGES:
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
