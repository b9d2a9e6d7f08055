"""The diffs of patches/ on the frameworks that are installed; ``make patches`` tries every version that they are for."""

import importlib.metadata
import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from align_hooks import patched
from align_hooks.errors import SettingsError
from align_hooks.patched import StepDestination, asked, wanted

PATCHES = Path(__file__).parents[1] / "patches"
specification = importlib.util.spec_from_file_location("check", PATCHES / "check.py")
assert specification is not None and specification.loader is not None
check = importlib.util.module_from_spec(specification)
specification.loader.exec_module(check)


@pytest.fixture(params=[("megatron-core", "megatron.diff"), ("mindformers", "mindformers.diff")], ids=lambda pair: pair[0])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path]:
    """A diff, and a copy of the installed files that it changes."""
    distribution, name = request.param
    try:
        installed = importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{distribution} is not installed")
    for file in check.changed_files(PATCHES / name):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(str(installed.locate_file(file)), tmp_path / file)
    return PATCHES / name, tmp_path


def test_a_patch_applies_compiles_and_comes_off_again(pair: tuple[Path, Path]) -> None:
    diff, copy = pair
    assert len(check.changed_files(diff)) == 3
    assert check.try_patch(diff, copy) == []


@pytest.mark.parametrize(
    ("change", "said"), [(lambda text: text.replace("(", "( "), "0 places fit"), (lambda text: text * 2, "2 places fit")]
)
def test_a_version_that_moved_on_and_a_place_that_is_there_twice_are_noticed(
    pair: tuple[Path, Path], change: Callable[[str], str], said: str
) -> None:
    diff, copy = pair
    file = copy / check.changed_files(diff)[0]
    file.write_text(change(file.read_text()))
    problems = check.try_patch(diff, copy)
    assert problems and all(said in problem for problem in problems)


def test_no_more_of_the_framework_than_a_line_around_a_change_is_kept(pair: tuple[Path, Path]) -> None:
    diff, copy = pair
    for name, place, count in check.places(diff, {file: (copy / file).read_text() for file in check.changed_files(diff)}):
        assert count == 1
        assert place.count("\n") == 1, (name, place)


def test_what_a_patch_may_import_exists() -> None:
    assert [name for name in patched.__all__ if not hasattr(patched, name)] == []


def test_a_patched_framework_is_asked_by_two_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ALIGN_PATCH_RUN", raising=False)
    assert not wanted() and asked(0) is None
    monkeypatch.setenv("ALIGN_PATCH_RUN", str(tmp_path))
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert wanted() and asked(0) == StepDestination(tmp_path.resolve(), 0, 3) and asked(1) is None
    monkeypatch.setenv("ALIGN_PATCH_STEPS", "1-3/2")
    assert [step for step in range(5) if asked(step)] == [1, 3]
    monkeypatch.setenv("ALIGN_PATCH_STEPS", "first")
    with pytest.raises(SettingsError, match="ALIGN_PATCH_STEPS"):
        asked(0)
