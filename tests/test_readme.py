"""The README is one screen and a little more: what it answers, the picture, the commands, the two clusters, what is supported."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SIZE = 8000
"""Bytes of a README, in either language."""
SCREEN = 40
"""Lines of the first screen."""

each = pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@each
def test_the_first_screen_holds_what_a_newcomer_needs(name: str) -> None:
    first = text(name).splitlines()[:SCREEN]
    blocks = re.findall(r"^```sh\n(.*?)^```$", "\n".join(first), re.MULTILINE | re.DOTALL)
    starts = [line.split("#")[0].strip() for line in blocks[0].splitlines()]
    assert starts == ["pip install .", "align-hooks check train_megatron.sh llama.yaml", "make demo"]
    assert re.findall(r"(?:run|compare)\b", blocks[1]).count("compare") == 1
    assert blocks[1].replace("\\\n", "").count("\n") == 6
    assert any(line.startswith("![") for line in first)
    supported = [line for line in first if line.startswith("| ")][2:]
    assert len(supported) == 6


@each
def test_it_is_short_and_names_the_six_variables_that_are_used_most(name: str) -> None:
    assert (ROOT / name).stat().st_size <= SIZE
    assert len(re.findall(r"^\| `ALIGN_HOOKS_\w+` \|", text(name), re.MULTILINE)) == 6


@each
def test_it_leads_to_every_page_that_is_written_by_hand(name: str) -> None:
    """But for those that the home page and other pages lead to."""
    linked = {Path(link).name.partition(".")[0] for link in re.findall(r"\]\(docs/([\w.-]+\.md)", text(name))}
    pages = {path.name.partition(".")[0] for path in (ROOT / "docs").glob("*.md")}
    assert pages - linked <= {"index", "families", "report"}
