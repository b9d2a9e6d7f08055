"""What pages hold that is made by the code is what the code makes now."""

import re
import subprocess
import sys
from pathlib import Path

from checklist.table import PAGE, page
from chosen import in_one
from docs import quoted, reference
from matrix import table as matrix

ROOT = Path(__file__).parents[2]
TEXT = re.compile(r"^```text$", re.MULTILINE)
DRAWN = {"docs/record.md": 1, "docs/ci.md": 1, "docs/ci.zh-CN.md": 1, "docs/prove.md": 1, "docs/prove.zh-CN.md": 1}
"""Blocks of text that are not printed anew, by their page: a list of files, what `distill` says of the records of `make demo`, and
what `prove` says on an idle machine."""


def test_the_table_of_variables_is_what_the_command_prints() -> None:
    printed = subprocess.run([sys.executable, "-m", "align_hooks", "env", "--markdown"], capture_output=True, text=True, check=True).stdout
    assert printed in reference.PAGE.read_text(encoding="utf-8")


def test_the_reference_is_made_from_the_code() -> None:
    """``python tests/docs/reference.py`` writes it."""
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page()


def test_the_table_of_the_checklist_is_made_from_the_rows() -> None:
    """``python tests/checklist/table.py`` writes it."""
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text


@in_one(matrix.PAGES)
def test_the_table_of_versions_is_made_from_the_committed_results(file: Path) -> None:
    """``python tests/matrix/table.py`` writes it."""
    text = file.read_text(encoding="utf-8")
    assert matrix.table() in text and matrix.filled(text) == text


@in_one(quoted.PAGES)
def test_quotations_are_what_is_printed_and_no_output_is_written_by_hand(file: Path) -> None:
    """``python tests/docs/quoted.py`` writes them, and gives a Chinese page the tables of the English one."""
    text = file.read_text(encoding="utf-8")
    assert quoted.filled(text, file) == text
    assert len(TEXT.findall(quoted.PART.sub("", text))) == DRAWN.get(str(file.relative_to(ROOT)), 0)
