"""The table of docs/record.md, made from the rules: ``python tests/docs/record.py``."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from docs.reference import table
from docs.rules import RULES

PAGE = Path(__file__).parents[2] / "docs" / "record.md"
PART = re.compile(r"(?s)(<!-- python tests/docs/record.py -->\n).*?(<!-- end -->)")


def made() -> str:
    """The table."""
    rows = [(f"`{one.path}`", one.when, one.holds, one.digest, one.absent) for one in RULES]
    return table(("file", "written", "holds", "its digest stands in", "where it is not there"), rows)


def filled(page: str) -> str:
    """The page with the table as it is now."""
    return PART.sub(lambda found: found[1] + made() + found[2], page)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
