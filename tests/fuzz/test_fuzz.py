"""The corpus and a thousand fresh inputs pass; a fault of every kind would be seen; the table of SECURITY.md is that of the results."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

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


def test_a_thousand_inputs_are_without_a_fault() -> None:
    tallies = fuzzed("--inputs", "1000", "--seed", "18")
    assert tallies.keys() == {name for name, target in TARGETS.items() if target.weight}
    assert sum(tally["inputs"] for tally in tallies.values()) == 1000


def test_what_was_once_found_is_without_a_fault() -> None:
    tallies = fuzzed("--corpus")
    assert sum(tally["inputs"] for tally in tallies.values()) == len(list(CORPUS.glob("*.json"))) > 0


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return SEEDS["sketched_1"].write(tmp_path_factory.mktemp("seed") / "sketched_1")


def made(input: Input, built: Path, place: Path) -> dict[str, object]:
    """What an input changes of its seed."""
    (place / "outside").mkdir(parents=True)
    (place / "outside" / "canary.txt").write_text("x")
    input.write(built, place / "scene", place / "outside")
    changes = differences(built, place / "scene", place / "outside")
    swept(place / "scene")
    return changes


@pytest.mark.parametrize("number", range(40))
def test_an_input_is_made_of_two_numbers_alone(number: int, built: Path, tmp_path: Path) -> None:
    inputs = [dataclasses.replace(drawn(1, number, "show"), seed="sketched_1") for _ in range(2)]
    first, second = (made(input, built, tmp_path / name) for input, name in zip(inputs, "ab", strict=True))
    assert first == second


@pytest.mark.parametrize("number", range(40, 60))
def test_what_is_kept_of_an_input_makes_it_again(number: int, built: Path, tmp_path: Path) -> None:
    input = dataclasses.replace(drawn(1, number, "show"), seed="sketched_1")
    changes = made(input, built, tmp_path / "a")
    assert changes == made(dataclasses.replace(input, changes=changes), built, tmp_path / "b")


def test_a_seed_is_the_same_whenever_it_is_built(built: Path, tmp_path: Path) -> None:
    again = SEEDS["sketched_1"].write(tmp_path / "again")
    files = [path.relative_to(built) for path in sorted(built.rglob("*")) if path.is_file()]
    assert [(again / path).read_bytes() for path in files] == [(built / path).read_bytes() for path in files]


def reads_outside(place: Place) -> None:
    (place.scene.parent / "outside" / "canary.txt").read_text()


def writes_outside(place: Place) -> None:
    (place.scene.parent / "elsewhere").write_text("x")


def writes_into_the_record(place: Place) -> None:
    (place.run / "more").write_text("x")


def starts_something(place: Place) -> None:
    subprocess.run(["true"], check=True)


def takes_memory(place: Place) -> None:
    assert len(b"x" * (watch.MEMORY + 1))


def takes_too_much(place: Place) -> None:
    bytearray(watch.ADDRESSES * 2)


def never_ends(place: Place) -> None:
    while True:
        pass


def waits(place: Place) -> None:
    while True:
        time.sleep(1)


def dies(place: Place) -> None:
    os._exit(7)


def prints_a_control_character(place: Place) -> None:
    print("\x1b[31m")


def fails(place: Place) -> None:
    raise ValueError


def says_two_lines(place: Place) -> None:
    raise watch.AlignHooksError("one\ntwo")


def writes_markup(place: Place) -> None:
    place.html.write_text(f"<p>{watch.MARKUP}</p>")


FAULTS: dict[Callable[[Place], None], str] = {
    reads_outside: "read outside of the record: canary.txt",
    writes_outside: "Forbidden in nowhere of ours",
    writes_into_the_record: "Forbidden in nowhere of ours",
    starts_something: "Forbidden in nowhere of ours",
    takes_memory: "took",
    takes_too_much: "MemoryError in nowhere of ours",
    never_ends: "TooSlow in nowhere of ours",
    waits: "waits for ever",
    dies: "ended the process with 7",
    prints_a_control_character: "printed '\\x1b'",
    fails: "ValueError in nowhere of ours",
    says_two_lines: "an error of 2 lines",
    writes_markup: "a page holds a record's text as markup",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_seen_and_kept_and_the_next_input_is_judged(
    fault: Callable[[Place], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "FAULTS", tmp_path)
    monkeypatch.setattr(run, "SILENCE", 2 if fault is waits else 60)
    monkeypatch.setattr(run, "warm", lambda top: None)
    monkeypatch.setattr(watch, "CPU_SECONDS", 0.2 if fault is never_ends else 20)
    monkeypatch.setitem(TARGETS, "turned", dataclasses.replace(TARGETS["turned"], call=fault))
    inputs = [drawn(1, 1, "turned"), dataclasses.replace(drawn(1, 2, "open"), seed=RECORDS[0].name, changes={})]
    (first, outcome), (second, after) = run.judged(inputs, 1)
    assert outcome.fault.startswith(FAULTS[fault]), outcome.trace
    assert (first, second) == tuple(inputs)
    assert (after.fault, after.code) == ("", 0)
    assert [path.suffix for path in sorted(tmp_path.glob("turned_1.*"))] == [".json", ".txt"]


def test_a_link_and_a_device_come_back_from_the_corpus(built: Path, tmp_path: Path) -> None:
    scene = linked(built, tmp_path / "scene")
    apply(scene, tmp_path, "run/scalars", {"link": "OUTSIDE/there"})
    apply(scene, tmp_path, "run/run.json", {"fifo": True})
    assert (scene / "run/scalars").readlink() == tmp_path / "there"
    assert (scene / "run/run.json").is_fifo()


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.json")), ids=lambda path: path.stem)
def test_what_is_in_the_corpus_is_known(path: Path) -> None:
    input = kept(path)
    assert input.target in TARGETS
    assert input.seed in {seed.name for seed in TARGETS[input.target].seeds}
    assert input.changes


def test_the_table_is_that_of_the_results() -> None:
    """``python tests/fuzz/table.py`` writes it."""
    assert PAGE.read_text(encoding="utf-8").partition(START)[2].partition(END)[0] == table()
