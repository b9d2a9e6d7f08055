"""The table of SECURITY.md, from the results of ``run.py --results``: ``python tests/fuzz/table.py`` writes it there."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz.targets import TARGETS

PAGE, RESULTS = Path(__file__).parents[2] / "SECURITY.md", Path(__file__).parent / "results.json"
START, END = "<!-- python tests/fuzz/table.py -->\n", "<!-- end -->\n"
CODES = "01234"
"""Exit codes that a command may end with."""


def table() -> str:
    """A line a target, and all of them."""
    results = json.loads(RESULTS.read_text())
    lines = [
        f"| fed to | inputs | {' | '.join(f'exit {code}' for code in CODES)} | faults | slowest, seconds | memory, MiB |",
        f"| --- |{' ---: |' * (len(CODES) + 4)}",
    ]
    total = [0] * (len(CODES) + 2)
    for name, row in results["targets"].items():
        numbers = [row["inputs"], *(row["codes"].get(code, 0) for code in CODES), sum(row["faults"].values()) + row["awaited"]]
        total = [left + right for left, right in zip(total, numbers, strict=True)]
        lines.append(
            f"| {TARGETS[name].title} | {' | '.join(f'{number:,}' for number in numbers)} | {row['slowest']:.1f} | {row['largest']} |"
        )
    slowest, largest = (max(row[key] for row in results["targets"].values()) for key in ("slowest", "largest"))
    lines.append(f"| all | {' | '.join(f'{number:,}' for number in total)} | {slowest:.1f} | {largest} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    head, rest = page.split(START)
    PAGE.write_text(head + START + table() + END + rest.partition(END)[2], encoding="utf-8")
