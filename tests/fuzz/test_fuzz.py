"""The corpus and a thousand fresh inputs pass; a fault of every kind would be seen; the table of SECURITY.md is that of the results."""

import dataclasses
import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from chosen import in_one, slow, slow_but
from fuzz import run, watch
from fuzz.inputs import CORPUS, Input, apply, differences, drawn, kept, swept
from fuzz.seeds import RECORDS, SEEDS, linked
from fuzz.table import END, PAGE, START, table
from fuzz.targets import TARGETS, Place

FUZZ = Path(run.__file__)


def fuzzed(*arguments: str) -> dict[str, dict[str, object]]:
    """What ``run.py`` says of these inputs, which must be without a fault."""
    done = subprocess.run([sys.executable, str(FUZZ), "--workers", "1", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout[done.stdout.index("{") :])


@pytest.mark.parametrize(("inputs", "seed"), [(30, 17232), slow((1000, 18))])
def test_inputs_are_without_a_fault(inputs: int, seed: int) -> None:
    """Of a seed that draws every target."""
    tallies = fuzzed("--inputs", str(inputs), "--seed", str(seed))
    assert tallies.keys() == {name for name, target in TARGETS.items() if target.weight}
    assert sum(tally["inputs"] for tally in tallies.values()) == inputs


@pytest.mark.slow
def test_what_was_once_found_is_without_a_fault() -> None:
    tallies = fuzzed("--corpus")
    assert sum(tally["inputs"] for tally in tallies.values()) == len(list(CORPUS.glob("*.json"))) > 0


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return SEEDS["sketched"].write(tmp_path_factory.mktemp("seed") / "sketched")


def made(sample: Input, built: Path, place: Path) -> dict[str, object]:
    """What an input changes of its seed."""
    (place / "outside").mkdir(parents=True)
    (place / "outside" / "canary.txt").write_text("x")
    sample.write(built, place / "scene", place / "outside")
    changes = differences(built, place / "scene", place / "outside")
    swept(place / "scene")
    return changes


@pytest.mark.parametrize("number", range(40))
def test_an_input_is_made_of_two_numbers_alone(number: int, built: Path, tmp_path: Path) -> None:
    inputs = [dataclasses.replace(drawn(1, number, "show"), seed="sketched") for _ in range(2)]
    first, second = (made(sample, built, tmp_path / name) for sample, name in zip(inputs, "ab", strict=True))
    assert first == second


@pytest.mark.parametrize("number", range(40, 60))
def test_what_is_kept_of_an_input_makes_it_again(number: int, built: Path, tmp_path: Path) -> None:
    sample = dataclasses.replace(drawn(1, number, "show"), seed="sketched")
    changes = made(sample, built, tmp_path / "a")
    assert changes == made(dataclasses.replace(sample, changes=changes), built, tmp_path / "b")


def test_a_seed_is_the_same_whenever_it_is_built(built: Path, tmp_path: Path) -> None:
    again = SEEDS["sketched"].write(tmp_path / "again")
    files = [path.relative_to(built) for path in built.rglob("*") if path.is_file() and path.suffix != ".claim"]  # it names an inode
    assert [(again / path).read_bytes() for path in files] == [(built / path).read_bytes() for path in files]


def raising(error: Exception) -> Callable[[Place], object]:
    def call(place: Place) -> None:
        raise error

    return call


FAULTS: dict[str, tuple[Callable[[Place], object], str]] = {
    "reads outside": (lambda place: (place.scene.parent / "outside" / "canary.txt").read_text(), "read outside of the record: canary.txt"),
    "writes outside": (lambda place: (place.scene.parent / "elsewhere").write_text("x"), "Forbidden in nowhere of ours"),
    "writes into the record": (lambda place: (place.run / "more").write_text("x"), "Forbidden in nowhere of ours"),
    "starts something": (lambda place: subprocess.run(["true"], check=True), "Forbidden in nowhere of ours"),
    "takes memory": (lambda place: len(b"x" * (watch.MEMORY + 1)), "took"),
    "takes too much": (lambda place: bytearray(watch.ADDRESSES * 2), "MemoryError in nowhere of ours"),
    "never ends": (lambda place: all(number >= 0 for number in itertools.count()), "TooSlow in nowhere of ours"),
    "waits": (lambda place: threading.Event().wait(), "waits for ever"),
    "dies": (lambda place: os._exit(7), "ended the process with 7"),
    "prints a control character": (lambda place: print("\x1b[31m"), "printed '\\x1b'"),
    "fails": (raising(ValueError()), "ValueError in nowhere of ours"),
    "says two lines": (raising(watch.AlignHooksError("one\ntwo")), "an error of 2 lines"),
    "writes markup": (lambda place: place.html.write_text(f"<p>{watch.MARKUP}</p>"), "a page holds a record's text as markup"),
}


@pytest.mark.parametrize("fault", slow_but(FAULTS))
def test_a_fault_is_seen_and_kept_and_the_next_input_is_judged(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call, seen = FAULTS[fault]
    monkeypatch.setattr(run, "FAULTS", tmp_path)
    monkeypatch.setattr(run, "SILENCE", 2 if fault == "waits" else 60)
    monkeypatch.setattr(run, "warm", lambda top: None)
    monkeypatch.setattr(watch, "CPU_SECONDS", 0.2 if fault == "never ends" else 20)
    monkeypatch.setitem(TARGETS, "turned", dataclasses.replace(TARGETS["turned"], call=call))
    inputs = [drawn(1, 1, "turned"), dataclasses.replace(drawn(1, 2, "open"), seed=RECORDS[0].name, changes={})]
    (first, outcome), (second, after) = run.judged(inputs, 1)
    assert outcome.fault.startswith(seen), outcome.trace
    assert (first, second) == tuple(inputs)
    assert (after.fault, after.code) == ("", 0)
    assert [path.suffix for path in sorted(tmp_path.glob("turned_1.*"))] == [".json", ".txt"]


def test_a_link_and_a_device_come_back_from_the_corpus(built: Path, tmp_path: Path) -> None:
    scene = linked(built, tmp_path / "scene")
    apply(scene, tmp_path, "run/scalars", {"link": "OUTSIDE/there"})
    apply(scene, tmp_path, "run/run.json", {"fifo": True})
    assert (scene / "run/scalars").readlink() == tmp_path / "there"
    assert (scene / "run/run.json").is_fifo()


@in_one(sorted(CORPUS.glob("*.json")))
def test_what_is_in_the_corpus_is_known(path: Path) -> None:
    sample = kept(path)
    assert sample.target in TARGETS
    assert sample.seed in {seed.name for seed in TARGETS[sample.target].seeds}
    assert sample.changes


def test_the_table_is_that_of_the_results() -> None:
    """``python tests/fuzz/table.py`` writes it."""
    assert PAGE.read_text(encoding="utf-8").partition(START)[2].partition(END)[0] == table()
