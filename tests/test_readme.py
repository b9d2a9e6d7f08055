"""The README's tables are made from the code, and its commands come first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from checklist.table import PAGE, page
from docs import reference
from matrix.table import table

README_FILE = Path(__file__).parents[1] / "README.md"
README = README_FILE.read_text(encoding="utf-8")


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


def test_the_table_of_the_checklist_is_made_from_the_rows() -> None:
    """``python tests/checklist/table.py`` writes it."""
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text


def test_the_reference_is_made_from_the_code() -> None:
    """``python tests/docs/reference.py`` writes it."""
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page()


def test_the_example_of_a_check_is_what_it_says(tmp_path: Path) -> None:
    launch = README_FILE.parent / "launch"
    other = tmp_path / "llama.yaml"
    other.write_text(
        (launch / "llama.yaml").read_text(encoding="utf-8").replace("rms_norm_eps: 1.e-5", "rms_norm_eps: 1.e-6"), encoding="utf-8"
    )
    said = subprocess.run(
        [sys.executable, "-m", "align_hooks", "check", str(launch / "llama.args"), str(other)], capture_output=True, text=True, check=False
    )
    shown = README.partition("differs: 1 setting")[2].partition("```")[0]
    lines = [line.strip() for line in ("differs: 1 setting" + shown).splitlines() if line.strip() and "…" not in line]
    assert said.returncode == 1
    assert [line for line in lines if line not in {one.strip() for one in said.stdout.splitlines()}] == []
