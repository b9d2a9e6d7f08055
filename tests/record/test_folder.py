"""Nothing outside a run's directory is written, deleted or read; nothing in it is deleted that is not the run's."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from align_hooks import open_run
from align_hooks.errors import RecordError, RefusedRun
from align_hooks.record.format import folder, layout
from align_hooks.record.format.ending import HowEnded
from record.conftest import contents
from synthetic import EVERYTHING, Synthetic, begun, by_hand, described, row

SECRET = "of somebody else"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A directory outside, in which everything has a run's own names; it is the same when the test is over."""
    path = tmp_path / "elsewhere"
    for name in ("rank_0/tokens.npy", "rank_0/gradients.safetensors", "rank_0.jsonl", "rank_0.json"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(SECRET)
    before = contents(path)
    yield path
    assert contents(path) == before


def link(path: Path, target: Path) -> None:
    """Put a link in the place of a file or directory."""
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.symlink_to(target)


def read_all(path: Path) -> object:
    run = open_run(path)
    return run.scalars(), run.local_norms(1), run.gradients(1), run.batch(1)


@pytest.mark.parametrize("exists", ["replace", "continue"])
def test_what_is_not_the_runs_is_left(run: Path, elsewhere: Path, exists: str) -> None:
    (run / "step_77").symlink_to(elsewhere)
    names = ("step_backup/rank_0/x", "step_1_old/rank_0/tokens.npy", "step_/rank_0/x", "step_2/rank_0/mine", "notes")
    mine = [*(run / name for name in names), run / "step_500/rank_0/tokens.npy"]
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SECRET)
    synthetic = Synthetic(settings=EVERYTHING | {"run_exists": exists})
    synthetic.rows = synthetic.rows[:1]
    synthetic.write(run)
    assert all(path.read_text() == SECRET for path in mine)
    assert (run / "step_77").is_symlink() and open_run(run).steps == [0]
    assert sorted(path.name for path in (run / "step_2/rank_0").iterdir()) == ["mine"]


@pytest.mark.parametrize("name", ["scalars", "local_norms", "manifest", "run.json", "scalars/rank_0.jsonl", "manifest/rank_0.json"])
def test_a_start_does_not_write_through_a_link(run: Path, elsewhere: Path, name: str) -> None:
    link(run / name, elsewhere if "." not in name else elsewhere / f"rank_0{(run / name).suffix}")
    for exists in ("replace", "continue"):
        with pytest.raises(RefusedRun, match="is a link, and nothing is written through one"):
            begun(run, run_exists=exists)


@pytest.mark.parametrize("name", ["step_1", "step_1/rank_0", "step_1/rank_0/weights"])
def test_a_step_is_not_written_through_a_link(tmp_path: Path, elsewhere: Path, name: str) -> None:
    run = tmp_path / "run"
    writer = described(run, range(2))
    writer.scalars(row(0))
    (run / name).parent.mkdir(parents=True, exist_ok=True)
    (run / name).symlink_to(elsewhere)
    with pytest.raises(RecordError, match="is a link, and nothing is written through one"):
        writer.weights(1, {}, {})
    assert open_run(run).steps == [0]


@pytest.mark.parametrize("name", ["step_1", "step_1/rank_0", "step_1/rank_0/weights", "step_3"])
@pytest.mark.parametrize("exists", ["replace", "continue"])
def test_a_link_among_the_steps_to_come_is_refused_before_training_and_the_run_stays(
    run: Path, elsewhere: Path, exists: str, name: str
) -> None:
    link(run / name, elsewhere)
    before = contents(run)
    writer = begun(run, run_exists=exists, **EVERYTHING)
    with pytest.raises(RefusedRun, match=f"{name} is a link, and nothing is written through one"):
        writer.describe(place={"dp": 0, "tp": 0, "pp": 0}, shards=[], facts={}, steps=range(3))
    writer.finish(HowEnded("refused", error="no"), hooks={})
    assert contents(run) == before


@pytest.mark.parametrize("exists", ["replace", "continue"])
def test_a_snapshot_of_hard_links_stays_as_it_was(run: Path, tmp_path: Path, exists: str) -> None:
    snapshot = tmp_path / "snapshot"
    shutil.copytree(run, snapshot, copy_function=os.link)
    before = contents(snapshot)
    synthetic = Synthetic(settings=EVERYTHING | {"run_exists": exists})
    for scalars in synthetic.rows:
        scalars["loss"] += 1
    synthetic.write(run)
    assert contents(snapshot) == before and contents(run) != before
    assert open_run(snapshot).problems == open_run(run).problems == []
    assert [scalars["loss"] for scalars in open_run(run).scalars()] == [1 + scalars["loss"] for scalars in open_run(snapshot).scalars()]


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("run.json", "rank_0.json"),
        ("manifest/rank_0.json", "rank_0.json"),
        ("scalars/rank_0.jsonl", "rank_0.jsonl"),
        ("local_norms/rank_0.jsonl", "rank_0.jsonl"),
        ("step_1", ""),
        ("step_1/rank_0", "rank_0"),
        ("step_1/rank_0/tokens.npy", "rank_0/tokens.npy"),
        ("step_1/rank_0/gradients.safetensors", "rank_0/gradients.safetensors"),
        ("step_1/rank_0/batch.json", "rank_0.json"),
    ],
)
def test_what_lies_outside_is_not_read(run: Path, elsewhere: Path, name: str, target: str) -> None:
    link(run / name, elsewhere / target)
    with pytest.raises(RecordError, match="leads out of") as refused:
        read_all(run)
    assert SECRET not in str(refused.value)


def test_a_directory_that_another_rank_removes_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks share ``step_N``, and one may remove it, empty, while another is about to write into it."""
    make, races = Path.mkdir, iter([True, True])

    def racing(self: Path, *arguments: object, **more: object) -> None:
        if next(races, False):
            raise FileNotFoundError(2, "No such file or directory", str(self))
        make(self, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "mkdir", racing)
    assert folder.make(tmp_path, layout.step(tmp_path, 3, 1)).is_dir()


@pytest.mark.parametrize("exists", ["replace", "continue"])
def test_what_a_killed_start_was_writing_is_deleted(run: Path, exists: str) -> None:
    names = ["manifest/.rank_0.json.12.tmp", ".run.json.12.tmp", "step_2/rank_0/.tokens.npy.12.tmp", "step_2/rank_0/weights/.model.12.tmp"]
    others = ["manifest/.rank_1.json.12.tmp", "step_2/.mine.tmp", ".mine.12.tmp"]
    for name in (*names, *others):
        (run / name).write_text("half")
    Synthetic(settings=EVERYTHING | {"run_exists": exists}).write(run)
    assert [name for name in names if (run / name).exists()] == []
    assert [name for name in others if not (run / name).exists()] == []


def test_a_directory_outside_is_not_even_listed(tmp_path: Path) -> None:
    path = by_hand(tmp_path / "hand")
    (path / "step_1").rename(tmp_path / "outside")
    (path / "step_1").symlink_to(tmp_path / "outside")
    listed: set[Path] = set()
    watching = [True]

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if watching and event in ("os.listdir", "os.scandir") and isinstance(arguments[0], str | os.PathLike):
            listed.add(Path(arguments[0]))

    sys.addaudithook(watch)
    with pytest.raises(RecordError, match="leads out of"):
        open_run(path).batch(1)
    watching.clear()
    ours = {each for each in listed if each.is_relative_to(tmp_path)}  # the hook sees the whole process
    assert path in ours and all(each.resolve().is_relative_to(path) for each in ours)
