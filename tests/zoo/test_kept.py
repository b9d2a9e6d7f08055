"""Rows of some cases are put into the results, and all others stay as they are."""

import json
from pathlib import Path

import pytest

from zoo.kept import keep

ORDER = ("first", "second", "third")


def grades(name: str, verdict: str) -> dict[str, dict[str, str]]:
    return {way: {"name": name, "verdict": verdict} for way in ("measured", "defaults")}


def place(name: str, line: str) -> dict[str, str]:
    return {"name": name, "line": line}


@pytest.mark.parametrize("row", [grades, place])
def test_a_row_takes_its_place(tmp_path: Path, row) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "results" / "float32.json"
    keep(path, {name: row(name, "old") for name in ("third", "first", "gone")}, (*ORDER, "gone"))
    assert json.loads(path.read_text()) == [row("first", "old"), row("third", "old"), row("gone", "old")]
    keep(path, {name: row(name, "new") for name in ("second", "third")}, ORDER)
    assert json.loads(path.read_text()) == [row("first", "old"), row("second", "new"), row("third", "new")]


def test_nothing_else_is_written(tmp_path: Path) -> None:
    path = tmp_path / "pages.json"
    keep(path, {"first": place("first", "“é”")}, ORDER)
    before = path.read_bytes()
    keep(path, {}, ORDER)
    assert path.read_bytes() == before
