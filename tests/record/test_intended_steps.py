"""Steps that are intended, or far from 0, cost nothing: what is kept and walked is what was recorded. Memory is counted."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from align_hooks.cli import app
from align_hooks.evidence.convert import convert_curves
from align_hooks.record.format.ending import HowEnded
from align_hooks.replay.batches import Replay
from align_hooks.settings import Source, Steps
from chosen import slow_but
from invoked import invoke
from synthetic import Synthetic, batch, described, row
from work import at_most

MANY = 10**7
"""Few enough to fit memory where one is kept for each, which fails a test and no machine."""
SLACK = 1 << 20
"""Bytes by which two measurements of the same differ."""


def peak(work: Callable[[], object]) -> int:
    """The most bytes that Python held during ``work``, beyond what it held before."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        with at_most(5_000_000):
            work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("exists", ["refuse", "continue", "replace"])
def test_a_start_keeps_no_step_that_it_only_intends(tmp_path: Path, exists: str) -> None:
    if exists != "refuse":
        recorded(tmp_path / "run", 0)
    first = 3 if exists == "continue" else 0

    def start() -> None:
        writer = described(tmp_path / "run", range(first, first + MANY), run_exists=exists)
        writer.scalars(row(first))
        writer.finish(HowEnded("early", made=1, planned=MANY), hooks={})

    assert peak(start) < SLACK


def recorded(path: Path, first: int, planned: int = 3) -> Path:
    """Three steps with their batches, from ``first`` on, of ``planned`` ones."""
    steps = range(first, first + 3)
    run = Synthetic(
        settings={"batches": f"0-{2 * MANY}"},
        rows=[row(step, loss=9.0 - (step - first), consumed_samples=4 * (step - first + 1)) for step in steps],
        batches={step: batch(step - first) for step in steps},
        weights={},
        gradients={},
        facts={"planned_steps": planned},
    )
    return run.write(path)


COMMANDS = (
    "show RUN --json OUT",
    "show RUN --verify",
    "compare RUN OTHER --json OUT",
    "compare RUN OTHER --noise THIRD",
    "accept RUN OTHER --noise THIRD --json OUT",
    "distill RUN ZIP",
    "watch RUN OTHER --noise THIRD --every 0.1",
)


@pytest.mark.parametrize("command", slow_but(COMMANDS, "compare RUN OTHER --noise THIRD"))
def test_a_command_costs_the_same_however_far_the_steps_are(tmp_path: Path, command: str) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    for place, first, planned in ((near, 0, 3), (far, MANY, 2 * MANY)):
        for name in ("RUN", "OTHER", "THIRD"):
            recorded(place / name, first, planned)

    def ran(place: Path) -> int:
        files = {"OUT": "out.json", "PAGE": "page.html", "ZIP": "run.zip"}
        words = [str(place / files.get(word, word)) if word.isupper() else word for word in command.split()]
        done = invoke(app, words)
        assert isinstance(done.exception, SystemExit | None), done.exception
        return done.exit_code

    codes = {place: ran(place) for place in (near, far)}  # and everything is imported
    assert codes[near] == codes[far]
    if command.startswith("distill"):
        (near / "run.zip").unlink(), (far / "run.zip").unlink()
    assert peak(lambda: ran(far)) < 1.5 * peak(lambda: ran(near)) + SLACK


EXPORTS = {
    "run.csv": "step,lm loss\n" + "".join(f"{step},9.0\n" for step in (1, 2, MANY)),
    "run.jsonl": "".join(f'{{"_step": {step}, "lm loss": 9.0}}\n' for step in (1, 2, MANY)),
}


@pytest.mark.parametrize("name", EXPORTS)
def test_an_export_costs_what_it_holds_however_late_its_last_step(tmp_path: Path, name: str) -> None:
    source = tmp_path / name
    source.write_text(EXPORTS[name])
    assert peak(lambda: convert_curves(source, tmp_path / "run", "torch")) < SLACK


def test_a_replay_begins_at_the_first_recorded_step_without_a_walk_to_it(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", MANY)
    replay = Replay(Source(run, Steps.parse("all")))
    assert replay.first_chosen == MANY
    assert Replay(Source(run, Steps.parse("all")), MANY).steps == range(MANY, MANY + 3)
