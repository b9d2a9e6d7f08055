"""The zoo of commits: its rows are whole and apply to what is installed, and its gates say what other tools would."""

import ast
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from align_hooks import open_run
from align_hooks.comparison.diagnosis.hypotheses.registry import BY_CAUSE
from align_hooks.comparison.stage_result import FaultLocation
from synthetic import Synthetic
from zoo.case import MEGATRON, Case
from zoo.commits import CASES, REFERENCES
from zoo.gates import GATES, HEAD
from zoo.trees import NotApplied, edited, installed, make, names

PLACES = {place.value for place in FaultLocation}
EDIT = {"file": "a.py", "find": "x = 1", "put": "x = 2"}


@pytest.mark.parametrize("name", CASES)
def test_a_row_is_whole(name: str) -> None:
    case = CASES[name]
    assert case.reference in REFERENCES
    assert bool(case.commit) == bool(case.repository)
    assert not case.commit or (len(case.commit) == 40 and int(case.commit, 16))
    assert case.wrong.endswith(".")
    assert {*case.causes} <= BY_CAUSE.keys()
    assert case.stage in PLACES if case.stage else not (case.culprit or case.causes)
    fragments = [edit[part] for edit in case.edits for part in ("find", "through", "within") if part in edit]
    assert not any("\n" in fragment for fragment in fragments)  # they say where, and quote no code


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.side == MEGATRON and case.edits])
def test_what_a_row_takes_back_stands_in_the_installed_package(name: str) -> None:
    made: dict[Path, str] = {}
    for edit in CASES[name].edits:
        file = installed(MEGATRON)[0].parent / edit["file"]
        before = made.get(file) or file.read_text(encoding="utf-8")
        made[file] = edited(before, edit)
        assert made[file] != before
    for text in made.values():
        ast.parse(text)


@pytest.mark.parametrize(
    ("text", "edit", "made"),
    [
        ("x = 1\n", EDIT, "x = 2\n"),
        ("x = 1\nx = 1\n", EDIT, None),
        ("y = 1\n", EDIT, None),
        ("x = 1\ndef f():\nx = 1\n", EDIT | {"within": "def f"}, "x = 1\ndef f():\nx = 2\n"),
        ("def f():\ny = 1\n", EDIT | {"within": "def f"}, None),
        ("x = 1\ny\nz\n", EDIT | {"through": "z"}, "x = 2\n"),
        ("x = 1\ny\n", EDIT | {"through": "z"}, None),
    ],
)
def test_an_edit_is_made_where_it_is_meant_or_not_at_all(text: str, edit: dict[str, str], made: str | None) -> None:
    if made is not None:
        assert edited(text, edit) == made
        return
    with pytest.raises(NotApplied, match=r"a\.py"):
        edited(text, edit)


def test_a_tree_is_a_copy_whose_package_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "installed" / "megatron"
    package.mkdir(parents=True)
    for name in ("a.py", "b.py"):
        (package / name).write_text("x = 1\n")
    monkeypatch.setattr("zoo.trees.installed", lambda side: [package])
    case = Case("row", "a row", "kind", edits=({**EDIT, "file": "megatron/a.py"},), repository="NVIDIA/Megatron-LM", commit="0" * 40)
    assert names("row", case) == ("", "row")
    make(case, "row", tmp_path)
    assert {path.name: path.read_text() for path in (tmp_path / "trees" / "row" / "megatron").iterdir()} == {
        "a.py": "x = 2\n",
        "b.py": "x = 1\n",
    }
    assert (package / "a.py").read_text() == "x = 1\n"


def test_without_a_clone_a_tree_of_a_commit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("row", "a row", "kind", repository="NVIDIA/Megatron-LM", commit="0" * 40)
    assert names("row", case) == ("0" * 40, "0" * 40 + "~1")
    monkeypatch.delenv("MEGATRON_LM_CLONE", raising=False)
    with pytest.raises(NotApplied, match="names no clone"):
        make(case, "0" * 40, tmp_path)
    monkeypatch.setenv("MEGATRON_LM_CLONE", str(tmp_path))
    with pytest.raises(NotApplied, match="has no commit"):
        make(case, "0" * 40, tmp_path)


def logits(by: Callable[[np.ndarray], np.ndarray]) -> Synthetic:
    """A run whose logits of the first step are kept whole."""
    run = Synthetic()
    run.settings |= {"activations": "0", "activations_tensors": HEAD}
    values = np.random.default_rng(0).standard_normal((2, 4, 8)).astype(np.float32)
    run.activations = {0: {HEAD: by(values)}}
    return run


def nearer(values: np.ndarray) -> np.ndarray:
    """The second best token of each position is the best."""
    best = np.sort(values, axis=-1)
    return np.where(values == best[..., -2:-1], best[..., -1:] + np.float32(0.01), values)


@pytest.mark.parametrize(("by", "passes"), [(lambda values: values * 1.5, True), (nearer, False), (lambda values: -values, False)])
def test_megatron_bridges_gate_asks_for_the_next_token_and_the_direction(
    tmp_path: Path, by: Callable[[np.ndarray], np.ndarray], passes: bool
) -> None:
    runs = [open_run(logits(each).write(tmp_path / name)) for name, each in (("reference", lambda values: values), ("candidate", by))]
    assert GATES["bridge"][1](*runs) is passes


@pytest.mark.parametrize(("by", "passes"), [(1.0, True), (1.049, True), (1.051, False), (0.949, False)])
def test_the_last_loss_may_be_off_by_a_twentieth(tmp_path: Path, by: float, passes: bool) -> None:
    candidate = Synthetic()
    candidate.rows[-1]["loss"] *= by
    runs = [open_run(run.write(tmp_path / name)) for name, run in (("reference", Synthetic()), ("candidate", candidate))]
    assert GATES["final_loss"][1](*runs) is passes


def test_a_gate_that_lacks_its_numbers_says_nothing(tmp_path: Path) -> None:
    runs = [open_run(Synthetic().write(tmp_path / name)) for name in ("reference", "candidate")]
    assert GATES["bridge"][1](*runs) is None
