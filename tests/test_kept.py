"""What keeps trainings for tests that only read them: nothing stale, half-written or changed is ever given."""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

from real import kept as keeping
from real.kept import CHECKOUT, Kept, canonical, kept, prune, whole

ASKED = {"train": "megatron", "change": {"--train-iters": "2"}}


@pytest.fixture(autouse=True)
def unmarked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "_marked", set())


class Trainer:
    """A training that takes no time, and counts how often it is made."""

    def __init__(self, code: int = 0) -> None:
        self.times, self.code = 0, code

    def __call__(self, where: Path) -> tuple[int, str]:
        self.times += 1
        (where / "run").mkdir(parents=True)
        (where / "run" / "scalars").write_text(f"of training {self.times}")
        return self.code, f"trained {self.times}"


def test_a_training_is_made_once_and_says_what_it_said(tmp_path: Path) -> None:
    train = Trainer()
    first, again = (kept(tmp_path, train, ASKED) for _ in range(2))
    assert (train.times, first.run, again.output, again.run.name) == (1, again.run, "trained 1", "run")
    assert kept(tmp_path, train, ASKED | {"family": "qwen3"}).run != first.run
    assert train.times == 2


def test_two_jobs_at_once_train_once(tmp_path: Path) -> None:
    train, both = Trainer(), threading.Barrier(2)

    def job(_: int) -> Kept:
        both.wait()
        return kept(tmp_path, train, ASKED)

    with ThreadPoolExecutor(2) as pool:
        assert len({one.where for one in pool.map(job, range(2))}) == 1
    assert train.times == 1


Spoil = Callable[[Path], object]
SPOILT: dict[str, Spoil] = {
    "not marked": lambda where: (where / keeping.WHOLE).unlink(),
    "torn mark": lambda where: (where / keeping.WHOLE).write_text('{"log": ['),
    "a file changed": lambda where: (where / "run" / "scalars").write_text("other"),
    "a file more": lambda where: (where / "run" / "more").write_text(""),
    "a file less": lambda where: (where / "run" / "scalars").unlink(),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_what_is_not_whole_is_made_again(tmp_path: Path, spoil: Spoil) -> None:
    train = Trainer()
    spoil(kept(tmp_path, train, ASKED).where)
    again = kept(tmp_path, train, ASKED)
    assert (train.times, (again.run / "scalars").read_text()) == (2, "of training 2")
    assert whole(again.where) is not None


def test_a_test_that_writes_into_a_run_is_found_out(tmp_path: Path) -> None:
    where = kept(tmp_path, Trainer(), ASKED).where
    assert keeping.changed() == []
    SPOILT["a file more"](where)
    assert keeping.changed() == [where]


def test_other_sources_are_other_runs_and_what_changed_in_between_is_kept_for_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = Trainer()
    names: Iterator[str] = iter(["before", "after", "after", "after", "before", "before"])
    monkeypatch.setattr(keeping, "digest_of_sources", lambda: next(names))
    in_between = kept(tmp_path, train, ASKED)
    assert whole(in_between.where) is None
    assert kept(tmp_path, train, ASKED).where.parent.name == "after"
    assert kept(tmp_path, train, ASKED).output == "trained 3"


@pytest.mark.parametrize("part", [*keeping.INPUTS, keeping.SOURCE / "settings.py", keeping.SOURCE / "torch_side" / "model.py"], ids=str)
def test_every_source_of_a_training_is_in_its_name(part: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, read = keeping.digest_of_sources(), Path.read_bytes
    changed = next(part.rglob("*.py"), part)
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + b" " if path == changed else read(path))
    assert keeping.digest_of_sources() != before


def test_another_checkout_or_another_framework_is_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [keeping.digest_of_sources()]
    with monkeypatch.context() as patched:
        patched.setattr(keeping, "CHECKOUT", Path("/elsewhere"))
        names.append(keeping.digest_of_sources())
    monkeypatch.setattr(keeping, "_installed", lambda: ["torch 9.9"])
    assert len({*names, keeping.digest_of_sources()}) == 3


def test_a_training_that_ends_otherwise_is_an_error_and_not_kept(tmp_path: Path) -> None:
    train = Trainer(code=1)
    with pytest.raises(AssertionError, match="exit code 1\ntrained 1"):
        kept(tmp_path, train, ASKED)
    assert kept(tmp_path, train, ASKED, [0, 1]).output == "trained 2"


def test_a_place_that_takes_nothing_is_said_and_what_is_whole_there_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RuntimeError, match=r"file: runs cannot be kept there .* FRESH=1 keeps none"):
        kept(tmp_path / "file", Trainer(), ASKED)
    there = kept(tmp_path, train := Trainer(), ASKED)
    monkeypatch.setattr(keeping.FileLock, "acquire", Mock(side_effect=OSError(errno.EACCES, os.strerror(errno.EACCES))))
    assert (kept(tmp_path, train, ASKED).run, train.times) == (there.run, 1)
    with pytest.raises(RuntimeError, match="Permission denied"):
        kept(tmp_path, train, ASKED | {"family": "qwen3"})


def test_a_disk_that_is_full_ends_the_test_and_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = Trainer()
    with monkeypatch.context() as patched:
        patched.setattr(keeping, "mark", Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
        with pytest.raises(OSError, match="No space left"):
            kept(tmp_path, train, ASKED)
    assert kept(tmp_path, train, ASKED).output == "trained 2"


def test_a_question_is_the_same_whatever_asks_it(tmp_path: Path) -> None:
    folder, script = tmp_path / "runs", tmp_path / "train.py"
    script.write_text("one")
    first = canonical(script, folder)
    assert canonical(folder / "a" / "b" / "run", folder) == "a/b/run" and canonical(f"{folder}/a/b/run@0", folder) == "a/b/run@0"
    assert canonical("run", folder) == "run" and canonical("/nowhere", folder) == "/nowhere"
    assert canonical(kept, folder) == "real.kept.kept"
    (one, other), name = canonical(f"{CHECKOUT}/launch:{CHECKOUT}/patches", folder), str(CHECKOUT / "launch")  # type: ignore[misc]
    assert one == canonical(name, folder) and one != other
    script.write_text("other")
    assert canonical(script, folder) != first
    with pytest.raises(ValueError, match="a run that is kept cannot hang on a folder that is not"):
        canonical({"RUN": tmp_path / "run"}, folder)


def test_sources_that_are_long_gone_are_deleted(tmp_path: Path) -> None:
    for age, name in enumerate("abcde"):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (age, age))
    prune(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "d", "e"]
    prune(tmp_path / "nowhere")
