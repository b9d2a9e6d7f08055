"""The README's tables are made from the code, and its commands come first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from matrix.table import table

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_table_of_variables_is_what_the_code_prints() -> None:
    printed = subprocess.run([sys.executable, "-m", "align_hooks", "env", "--markdown"], capture_output=True, text=True, check=True).stdout
    table = README.partition("<!-- align-hooks env --markdown -->\n")[2].partition("<!-- end -->")[0]
    assert table == printed


def test_the_table_of_versions_is_made_from_the_committed_results() -> None:
    """``python tests/matrix/table.py`` prints what belongs here."""
    assert README.partition("<!-- python tests/matrix/table.py -->\n")[2].partition("<!-- end -->")[0] == table()


def test_the_two_commands_come_first() -> None:
    first = README.partition("```sh\n")[2].partition("```")[0].splitlines()
    assert [line.split("#")[0].strip() for line in first] == ["make demo", "make test"]
