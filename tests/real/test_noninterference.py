"""With everything recorded, losses and final weights are those of a run without us, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from real import frameworks

OWN_DATA = {"train_dataset_task.type": "WitnessDataset", "train_dataset.input_columns": ["input_ids"]}


DROPOUT = {"--hidden-dropout": "0.1", "--attention-dropout": "0.1"}
"""So that reading the generators' states, or drawing from one, would show."""


def test_recording_leaves_megatron_bitwise_as_it_was(tmp_path: Path) -> None:
    script = frameworks.SCRIPTS / "witness_megatron.py"
    for name, variables in (("plain", {}), ("recorded", {"RUN": tmp_path / "run"} | frameworks.EVERYTHING)):
        witness = {"WITNESS": str(tmp_path / f"{name}.npz")}
        frameworks.megatron(tmp_path / name, script=script, change=DROPOUT, environment=witness, **variables).succeeded()
    same(tmp_path / "plain.npz", tmp_path / "recorded.npz", losses=2 * frameworks.STEPS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    [
        ("--tensor-model-parallel-size", "2", "--sequence-parallel"),
        ("--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather", "--bf16"),
        ("--context-parallel-size", "2", "--fp16", "--initial-loss-scale", "65536"),
    ],
    ids=["TP2", "DP2, distributed optimizer, bf16", "CP2, fp16"],
)
def test_recording_leaves_two_ranks_bitwise_as_they_were(tmp_path: Path, flags: Sequence[str]) -> None:
    script = frameworks.SCRIPTS / "witness_megatron.py"
    for name, variables in (("plain", {}), ("recorded", {"RUN": tmp_path / "run"} | frameworks.EVERYTHING)):
        witness = {"WITNESS": str(tmp_path / f"{name}_{{rank}}.npz")}
        frameworks.megatron(
            tmp_path / name, script=script, ranks=2, change=DROPOUT, flags=flags, environment=witness, **variables
        ).succeeded()
    micro_batches = 1 if "--use-distributed-optimizer" in flags else 2
    for rank in range(2):
        same(tmp_path / f"plain_{rank}.npz", tmp_path / f"recorded_{rank}.npz", losses=micro_batches * frameworks.STEPS)


def test_recording_leaves_mindformers_bitwise_as_it_was(tmp_path: Path) -> None:
    script = frameworks.SCRIPTS / "witness_mindformers.py"
    for name, variables in (("plain", {}), ("recorded", {"RUN": tmp_path / "run"} | frameworks.EVERYTHING)):
        frameworks.mindformers(
            tmp_path / name, script=script, change=OWN_DATA, environment={"WITNESS": str(tmp_path / f"{name}.npz")}, **variables
        ).succeeded()
    same(tmp_path / "plain.npz", tmp_path / "recorded.npz", losses=frameworks.STEPS)


def same(plain: Path, recorded: Path, *, losses: int) -> None:
    with np.load(plain) as one, np.load(recorded) as other:
        assert one["losses"].size == losses
        assert len(one.files) > 15
        assert one.files == other.files
        for name in one.files:
            assert one[name].tobytes() == other[name].tobytes(), name
