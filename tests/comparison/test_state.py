"""What steps start from beside weights, moments and generators: the first that differs was not restored."""

from __future__ import annotations

from pathlib import Path

import pytest

from align_hooks import Run, open_run
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.runs import compare
from align_hooks.comparison.stages.state import of_step
from align_hooks.comparison.verdict import Status, Verdict, at_step
from align_hooks.record.state import BUFFER, SAMPLES, SCHEDULER
from sharded import Grid, Model, write
from synthetic import Synthetic
from worded import ids

BIAS = f"{BUFFER}decoder.layers.1.mlp.router.expert_bias"


def run(where: Path, *, side: str = "torch", framework: str = "Megatron-LM", **changes: tuple[int, float | str]) -> Run:
    """A run with the state of each step; ``changes`` are of a step from which on a name has another value."""
    synthetic = Synthetic(side=side)
    synthetic.facts = {**synthetic.facts, "framework": framework}
    for step, row in enumerate(synthetic.rows):
        state: dict[str, float | str] = {SAMPLES: 4.0 * step, SCHEDULER: 4.0 * step, BIAS: f"{step:016x}"}
        for key, (since, value) in changes.items():
            if step >= since:
                state[{"samples": SAMPLES, "scheduler": SCHEDULER, "bias": BIAS}[key]] = value
        row["state"] = state  # type: ignore[assignment]
    return open_run(synthetic.write(where))


def test_equal_states_are_said_to_be(tmp_path: Path) -> None:
    comparison = compare(run(tmp_path / "a"), run(tmp_path / "b"))
    assert comparison.verdict is Verdict.ALIGNED
    (stage,) = (stage for stage in comparison.stages if stage.name == "training state")
    assert (stage.status, stage.findings) == (Status.SAME, ())


@pytest.mark.parametrize(("change", "name"), [({"scheduler": (1, 99.0)}, SCHEDULER), ({"bias": (1, "f" * 16)}, BIAS)])
def test_what_was_not_restored_is_named_at_its_step(tmp_path: Path, change: dict[str, tuple[int, float | str]], name: str) -> None:
    comparison = compare(run(tmp_path / "a"), run(tmp_path / "b", **change))
    assert comparison.verdict is Verdict.DIVERGED
    assert comparison.first is not None and comparison.blame is not None
    assert comparison.first.name == "training state"
    assert [finding.what for finding in comparison.first.findings] == [at_step(name, 1)]
    assert ("next.read_count" in ids(comparison.next)) == (name == SCHEDULER)
    assert (comparison.blame.place, comparison.blame.causes) == ("state", ("not_restored",))


def test_of_two_frameworks_nothing_is_compared(tmp_path: Path) -> None:
    other = run(tmp_path / "b", side="ms", framework="MindFormers", scheduler=(1, 99.0))
    comparison = compare(run(tmp_path / "a"), other)
    assert "training state" not in [stage.name for stage in comparison.stages]


def test_of_two_layouts_it_is_said_that_nothing_is_compared(tmp_path: Path) -> None:
    one, two = (open_run(write(tmp_path / str(tp), Grid(tp=tp), Model().tensors(1))) for tp in (1, 2))
    (stage,) = (stage for stage in compare(one, two).stages if stage.name == "training state")
    assert (stage.status, ids(stage.summary)) == (Status.NOT_COMPARED, ["training_state.other_layout"])


def test_what_one_run_alone_recorded_is_left_out(tmp_path: Path) -> None:
    older = open_run(Synthetic().write(tmp_path / "b"))
    comparison = compare(run(tmp_path / "a"), older)
    assert "training state" not in [stage.name for stage in comparison.stages]
    assert list(of_step(Pair(run(tmp_path / "c"), older), 0)) == []
