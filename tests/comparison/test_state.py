"""What steps start from beside weights, moments and generators: the first that differs was not restored."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from align_hooks import open_run
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.stages.state import of_step
from align_hooks.comparison.verdict import Status, Verdict, at_step
from align_hooks.record.state import BUFFER, SAMPLES, SCHEDULER
from comparison.conftest import Compared, stage
from sharded import Grid, Model, write
from synthetic import Synthetic
from worded import ids

BIAS = f"{BUFFER}decoder.layers.1.mlp.router.expert_bias"


def run(changes: Mapping[str, float | str] | None = None, *, side: str = "torch", framework: str = "Megatron-LM") -> Synthetic:
    """A run with the state of each step, of which ``changes`` are what steps after the first have instead."""
    made = Synthetic(side=side, facts={"framework": framework})
    for step, row in enumerate(made.rows):
        state = {SAMPLES: 4.0 * step, SCHEDULER: 4.0 * step, BIAS: f"{step:016x}"}
        row["state"] = state | (changes or {} if step else {})  # type: ignore[assignment]
    return made


def test_equal_states_are_said_to_be(compared: Compared) -> None:
    comparison = compared(run(), against=run())
    of_state = stage(comparison, "training state")
    assert (comparison.verdict, of_state.status, of_state.findings) == (Verdict.ALIGNED, Status.SAME, ())


@pytest.mark.parametrize(("name", "value"), [(SCHEDULER, 99.0), (BIAS, "f" * 16)])
def test_what_was_not_restored_is_named_at_its_step(compared: Compared, name: str, value: float | str) -> None:
    comparison = compared(run({name: value}), against=run())
    assert (comparison.verdict, comparison.first.name) == (Verdict.DIVERGED, "training state")
    assert [finding.what for finding in comparison.first.findings] == [at_step(name, 1)]
    assert ("next.read_count" in ids(comparison.next)) == (name == SCHEDULER)
    assert (comparison.blame.place, comparison.blame.causes) == ("state", ("not_restored",))


def test_of_two_frameworks_nothing_is_compared(compared: Compared) -> None:
    comparison = compared(run({SCHEDULER: 99.0}, side="ms", framework="MindFormers"), against=run())
    assert "training state" not in [stage.name for stage in comparison.stages]


def test_of_two_layouts_it_is_said_that_nothing_is_compared(tmp_path: Path, compared: Compared) -> None:
    one, two = (write(tmp_path / str(tp), Grid(tp=tp), Model().tensors(1)) for tp in (1, 2))
    of_state = stage(compared(two, against=one), "training state")
    assert (of_state.status, ids(of_state.summary)) == (Status.NOT_COMPARED, ["training_state.other_layout"])


def test_what_one_run_alone_recorded_is_left_out(tmp_path: Path, compared: Compared) -> None:
    assert "training state" not in [stage.name for stage in compared(Synthetic(), against=run()).stages]
    assert list(of_step(Pair(*(open_run(each.write(tmp_path / name)) for name, each in (("a", run()), ("b", Synthetic())))), 0)) == []
