"""Processes, threads, Dask and MPI give one answer, and raise what a worker raises."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from align_hooks import open_run
from align_hooks.comparison.pipeline import compare
from align_hooks.errors import AlignHooksError, RecordError
from align_hooks.process.executors import executor_of
from align_hooks.process.work import WorkPool
from align_hooks.report.json import as_json
from chosen import slow
from synthetic import Synthetic

BIN = Path(sys.executable).parent
needs_dask = pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="distributed is not installed")
needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or not (BIN / "mpiexec").exists(), reason="mpi4py or an MPI is not installed"
)
ENGINES = ["processes:2", slow("threads:2"), pytest.param("dask:2", marks=(needs_dask, pytest.mark.slow))]


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A reference and a candidate, one of whose gradients is wrong."""
    candidate = Synthetic()
    candidate.gradients[0]["model.norm.weight"] *= 1.5
    return Synthetic().write(tmp_path / "reference"), candidate.write(tmp_path / "candidate")


def answer(pair: tuple[Path, Path], engine: str) -> object:
    with executor_of(engine) as executor:
        return as_json(compare(*map(open_run, pair), executor=executor))


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_gives_the_answer_of_one_process(pair: tuple[Path, Path], engine: str) -> None:
    assert str(answer(pair, engine)) == str(answer(pair, "none"))


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_worker_refuses_is_raised_here(pair: tuple[Path, Path], engine: str) -> None:
    path = pair[1] / "step_0/rank_0/gradients.safetensors"
    *content, last = path.read_bytes()
    path.write_bytes(bytes([*content, last ^ 1]))
    with pytest.raises(RecordError, match="was changed since it was recorded"):
        answer(pair, engine)


def test_a_worker_that_is_killed_is_a_line() -> None:
    ended = pytest.raises(AlignHooksError, match="--executor processes:1: a worker ended before its work was done")
    with ended, executor_of("processes:1") as one:
        list(WorkPool(executor=one).map(os._exit, [9], [1]))


@needs_mpi
@pytest.mark.slow
def test_ranks_of_mpi_do(pair: tuple[Path, Path], tmp_path: Path) -> None:
    command = ["-m", "align_hooks", "compare", *map(str, pair), "--json", str(tmp_path / "said.json")]
    start = [str(BIN / "mpiexec"), "-n", "3", sys.executable, "-m", "mpi4py.futures", *command, "--executor", "mpi"]
    done = subprocess.run(start, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, done.stderr
    alone = subprocess.run([sys.executable, *command[:-1], str(tmp_path / "alone.json")], capture_output=True, text=True, timeout=300)
    assert alone.returncode == 1, alone.stderr
    assert json.loads((tmp_path / "said.json").read_text()) == json.loads((tmp_path / "alone.json").read_text())


@needs_mpi
def test_mpi_without_ranks_is_refused() -> None:
    with pytest.raises(AlignHooksError, match="--executor mpi has no other rank to work with"), executor_of("mpi"):
        pass


@needs_dask
def test_a_scheduler_that_does_not_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("align_hooks.process.executors.PATIENCE", "1s")
    with pytest.raises(AlignHooksError, match=r"no scheduler answers at tcp://127\.0\.0\.1:9"), executor_of("dask:tcp://127.0.0.1:9"):
        pass


REFUSED = {
    **dict.fromkeys(("", "ray", "mpi:3", "none:1"), "is none of processes"),
    **dict.fromkeys(("processes:0", "processes:many", "threads:-1"), "is no number of workers"),
}


@pytest.mark.parametrize(("text", "why"), REFUSED.items())
def test_another_engine_and_no_number_of_workers_are_refused(text: str, why: str) -> None:
    with pytest.raises(AlignHooksError, match=why), executor_of(text):
        pass


def test_fewer_bytes_than_are_worth_it_stay_here() -> None:
    with executor_of("processes:1") as executor:
        work = WorkPool(executor=executor, least=100)
        assert set(work.map(_process, range(3), [33, 33, 33])) == {os.getpid()}
        assert os.getpid() not in set(work.map(_process, range(3), [33, 33, 34]))


def _process(piece: int) -> int:
    return os.getpid()


def test_pieces_go_to_a_worker_together() -> None:
    with executor_of("threads:1") as executor:
        work, sizes = WorkPool(executor=executor), [30 << 20, 30 << 20, 30 << 20, 1, 80 << 20]
        assert list(work.map(str, range(5), sizes)) == list("01234")
