"""With everything recorded, losses and final weights are those of a run without us, bit for bit."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from real import frameworks
from real.frameworks import Train
from real.layouts import LAYERS, LAYOUTS, REFERENCES, started

OWN_DATA = {"train_dataset_task.type": "WitnessDataset"}
CUT = ["input_ids", "labels", "loss_mask"]
"""What a newer model of MindFormers takes."""
BIASES = {"deepseek_v3": 2}
"""How many biases of experts a family's training moves."""

DROPOUT = {"--hidden-dropout": "0.1", "--attention-dropout": "0.1"}
"""So that reading the generators' states, or drawing from one, would show."""


@pytest.mark.parametrize("family", [frameworks.LLAMA, pytest.param("deepseek_v3", marks=pytest.mark.slow)])
def test_recording_leaves_megatron_bitwise_as_it_was(family: str, real_corpus: Path) -> None:
    (pair,) = witnessed(frameworks.megatron, family=family, change=DROPOUT)
    same(*pair, losses=2 * frameworks.STEPS, biases=BIASES.get(family, 0))


def witnessed(train: Train, ranks: int | None = None, **given: object) -> list[tuple[Path, Path]]:
    """Return what a witness of ours saw on each rank of a run without us, and of one with everything recorded."""
    name = "witness.npz" if ranks is None else "witness_{rank}.npz"
    environment = {**given.pop("environment", {}), "WITNESS": name}
    given |= {"script": frameworks.SCRIPTS / f"witness_{train.__name__}.py", "environment": environment}
    given |= {} if ranks is None else {"ranks": ranks}
    plain, recorded = (frameworks.kept(train, **given, **asked).where for asked in ({}, {"RUN": "run"} | frameworks.EVERYTHING))
    return [(plain / name.format(rank=rank), recorded / name.format(rank=rank)) for rank in range(ranks or 1)]


TWO_RANKS = {
    "TP2": ("--tensor-model-parallel-size", "2", "--sequence-parallel"),
    "DP2, distributed optimizer, bf16": ("--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather", "--bf16"),
    "CP2, fp16": ("--context-parallel-size", "2", "--fp16", "--initial-loss-scale", "65536"),
}


@pytest.mark.slow
@pytest.mark.parametrize("flags", TWO_RANKS.values(), ids=TWO_RANKS)
def test_recording_leaves_two_ranks_bitwise_as_they_were(real_corpus: Path, flags: Sequence[str]) -> None:
    micro_batches = 1 if "--use-distributed-optimizer" in flags else 2
    for pair in witnessed(frameworks.megatron, 2, change=DROPOUT, flags=flags):
        same(*pair, losses=micro_batches * frameworks.STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
def test_recording_leaves_every_rank_of_a_layout_bitwise_as_it_was(real_corpus: Path, name: str) -> None:
    kind, ranks, flags = LAYOUTS[name]
    family, own, change = REFERENCES[kind]
    pairs = witnessed(frameworks.megatron, ranks, family=family, change={**LAYERS, **change, **DROPOUT}, **started((*own, *flags)))
    losses = [same(*pair, losses=None, biases=None, least=10) for pair in pairs]  # a stage has half of the layers
    assert max(losses) >= frameworks.STEPS  # the last stage's


@pytest.mark.parametrize(
    ("family", "columns"),
    [(frameworks.LLAMA, ["input_ids"]), *(pytest.param(name, CUT, marks=pytest.mark.slow) for name in ("qwen3", "deepseek_v3"))],
)
def test_recording_leaves_mindformers_bitwise_as_it_was(family: str, columns: list[str], real_corpus: Path) -> None:
    data = OWN_DATA | {"train_dataset.input_columns": columns, "train_dataset.construct_args_key": columns}
    (pair,) = witnessed(frameworks.mindformers, family=family, change=data)
    same(*pair, losses=frameworks.STEPS, biases=BIASES.get(family, 0))


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
