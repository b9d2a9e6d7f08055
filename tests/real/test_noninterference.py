"""With everything recorded, losses and final weights are those of a run without us, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from real import frameworks
from real.layouts import LAYERS, LAYOUTS, REFERENCES

OWN_DATA = {"train_dataset_task.type": "WitnessDataset"}
CUT = ["input_ids", "labels", "loss_mask"]
"""What a newer model of MindFormers takes."""
BIASES = {"deepseek_v3": 2}
"""How many biases of experts a family's training moves."""

DROPOUT = {"--hidden-dropout": "0.1", "--attention-dropout": "0.1"}
"""So that reading the generators' states, or drawing from one, would show."""


@pytest.mark.parametrize("family", [frameworks.LLAMA, pytest.param("deepseek_v3", marks=pytest.mark.slow)])
def test_recording_leaves_megatron_bitwise_as_it_was(family: str, tmp_path: Path) -> None:
    script = frameworks.SCRIPTS / "witness_megatron.py"
    for name, variables in (("plain", {}), ("recorded", {"RUN": tmp_path / "run"} | frameworks.EVERYTHING)):
        witness = {"WITNESS": str(tmp_path / f"{name}.npz")}
        given = {"family": family, "script": script, "change": DROPOUT, "environment": witness}
        frameworks.megatron(tmp_path / name, **given, **variables).succeeded()
    same(tmp_path / "plain.npz", tmp_path / "recorded.npz", losses=2 * frameworks.STEPS, biases=BIASES.get(family, 0))


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


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
def test_recording_leaves_every_rank_of_a_layout_bitwise_as_it_was(tmp_path: Path, name: str) -> None:
    kind, ranks, flags = LAYOUTS[name]
    family, own, change = REFERENCES[kind]
    script = frameworks.SCRIPTS / "witness_megatron.py"
    given = {"family": family, "script": script, "ranks": ranks, "flags": (*own, *flags), "change": {**LAYERS, **change, **DROPOUT}}
    for way, variables in (("plain", {}), ("recorded", {"RUN": tmp_path / "run"} | frameworks.EVERYTHING)):
        witness = {"WITNESS": str(tmp_path / f"{way}_{{rank}}.npz")}
        frameworks.megatron(tmp_path / way, environment=witness, **given, **variables).succeeded()
    files = ([tmp_path / f"{way}_{rank}.npz" for way in ("plain", "recorded")] for rank in range(ranks))
    losses = [same(*pair, losses=None, biases=None, least=10) for pair in files]  # a stage has half of the layers
    assert max(losses) >= frameworks.STEPS  # the last stage's


@pytest.mark.parametrize(
    ("family", "columns"),
    [(frameworks.LLAMA, ["input_ids"]), *(pytest.param(name, CUT, marks=pytest.mark.slow) for name in ("qwen3", "deepseek_v3"))],
)
def test_recording_leaves_mindformers_bitwise_as_it_was(family: str, columns: list[str], tmp_path: Path) -> None:
    script = frameworks.SCRIPTS / "witness_mindformers.py"
    data = OWN_DATA | {"train_dataset.input_columns": columns, "train_dataset.construct_args_key": columns}
    for name, variables in (("plain", {}), ("recorded", {"RUN": tmp_path / "run"} | frameworks.EVERYTHING)):
        given = {"family": family, "script": script, "change": data, "environment": {"WITNESS": str(tmp_path / f"{name}.npz")}}
        frameworks.mindformers(tmp_path / name, **given, **variables).succeeded()
    same(tmp_path / "plain.npz", tmp_path / "recorded.npz", losses=frameworks.STEPS, biases=BIASES.get(family, 0))


def same(plain: Path, recorded: Path, *, losses: int | None, biases: int | None = 0, least: int = 15) -> int:
    """How many losses two runs have, every one of which is equal to the bit, as every parameter is. ``losses`` and ``biases`` are how many
    there have to be, if that is known; of all arrays there have to be more than ``least``."""
    with np.load(plain) as one, np.load(recorded) as other:
        assert losses is None or one["losses"].size == losses
        assert biases is None or sum(one[name].any() for name in one.files if name.endswith("expert_bias")) == biases
        assert len(one.files) > least
        assert one.files == other.files
        for name in one.files:
            assert one[name].tobytes() == other[name].tobytes(), name
        return one["losses"].size
