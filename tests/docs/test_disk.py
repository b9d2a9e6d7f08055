"""The table of what a record takes on disk is the one that is counted."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_has_the_counted_bytes() -> None:
    made = subprocess.run([sys.executable, "benchmarks/disk.py"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True).stdout
    page = (ROOT / "docs" / "cost.md").read_text(encoding="utf-8")
    assert page.partition("<!-- python benchmarks/disk.py -->\n")[2].partition("<!-- end -->")[0] == made.partition("\n\n")[2]
