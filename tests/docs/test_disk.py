"""The table of what a record takes on disk is the one that is counted."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def rows(text: str) -> list[list[str]]:
    """The cells of a table but those of its first column, which are words."""
    return [line.strip("|\n").split(" | ")[1:] for line in text.splitlines() if line.startswith("| ")]


def test_both_pages_have_the_counted_bytes() -> None:
    made = subprocess.run([sys.executable, "benchmarks/disk.py"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True).stdout
    assert [row[-1].split()[-1] for row in rows(made)[-2:]] == ["TB", "TB"]
    for page in ("cost.md", "cost.zh-CN.md"):
        _, _, behind = (ROOT / "docs" / page).read_text(encoding="utf-8").partition("<!-- python benchmarks/disk.py -->")
        assert rows(behind.partition("<!-- end -->")[0]) == rows(made)
