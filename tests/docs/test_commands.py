"""Every command of every page is run, or there is a reason why not; bash reads all of them, and their variables go together.

What trains is run by ``tests/real/test_pages.py``.
"""

import re
import subprocess
from pathlib import Path

import pytest

from align_hooks.settings import PREFIX, Settings
from chosen import every, in_one
from docs.blocks import CHINESE, PAGES, blocks, commands, statements
from docs.commands import EVERYWHERE, NOT_RUN, ROWS, Row, why_not
from docs.running import run

WITH_COMMANDS = [page for page in PAGES if not page.endswith(CHINESE) and any(commands(page))]
"""A Chinese page has the commands of the English one (``tests/test_docs.py``)."""
ASSIGNED = re.compile(rf"\b({PREFIX}\w+)=('[^']*'|\S+)")


def test_every_page_with_commands_has_a_row() -> None:
    assert [row.page for row in ROWS] == sorted(WITH_COMMANDS, key=[row.page for row in ROWS].index)
    assert {row.page for row in ROWS} == set(WITH_COMMANDS)


def test_every_exception_is_of_a_command_and_has_its_reason() -> None:
    everything = {page: [command.text for command in commands(page)] for page in WITH_COMMANDS}
    everything[EVERYWHERE] = [text for texts in everything.values() for text in texts]
    for page, listed in NOT_RUN.items():
        for begins, reason in listed.items():
            assert reason
            assert any(text.startswith(begins) for text in everything[page]), (page, begins)
    for row in ROWS:
        assert all(any(text.startswith(begins) for text in everything[row.page]) for begins in row.ends), row.page


@in_one([page for page in PAGES if blocks(page, "sh")])
def test_bash_reads_every_block(page: str) -> None:
    """No ellipsis stands where a word of a command does: what is to be filled in is a variable."""
    for _, block in blocks(page, "sh"):
        done = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        english = page.replace(CHINESE, ".md")
        assert not [each.text for each in statements(block) if "…" in each.text and not why_not(english, each.text)]


@in_one(WITH_COMMANDS)
def test_the_variables_of_every_command_go_together(page: str) -> None:
    exported: dict[str, str] = {}
    for command in commands(page):
        own = {name: re.sub(r"\$\w+", "1", value.strip("'")) for name, value in ASSIGNED.findall(command.text)}
        if command.text.startswith("export "):
            exported |= own
        elif own:
            Settings.from_environment(exported | own)


@pytest.mark.parametrize("row", every(4, [row for row in ROWS if not row.trains]), ids=lambda row: row.page)
def test_every_command_ends_as_its_page_says(row: Row, tmp_path: Path) -> None:
    wrong = run(row, tmp_path, {}, timeout=600)
    assert not wrong, "\n".join(wrong)
