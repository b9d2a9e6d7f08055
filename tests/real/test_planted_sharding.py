"""Sharding faults planted in a real Megatron, one of each kind: each must be found, and named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from align_hooks import open_run
from real import frameworks
from synthetic import save_by_hand

RANKS = 2
TP = ("--tensor-model-parallel-size", "2")


def verdict(where: Path, reference: Path, plant: str, flags: Sequence[str], *, batches: Path | None = None) -> str:
    """Train two ranks with a fault and return what ``compare`` prints, in one line; it must exit 1."""
    candidate = frameworks.recorded(
        frameworks.megatron,
        where,
        script=frameworks.SCRIPTS / "planted_sharding.py",
        flags=flags,
        ranks=RANKS,
        environment={"PLANTED": plant},
        **frameworks.fed_by(reference) | ({"REPLAY_BATCHES": batches} if batches else {}),
    )
    return frameworks.diverged(reference, candidate).line


@pytest.mark.slow
def test_a_dropped_shard_is_named_with_its_rank_and_its_columns(tmp_path: Path, reference: Path) -> None:
    output = verdict(tmp_path, reference, "dropped_shard", TP)
    assert output.startswith("diverged: local norms")
    name = "model.layers.1.mlp.down_proj.weight"
    assert f"{name}: the candidate's rank 1 (tp 1) holds all of its error, in columns 64 to 127, which is zero there" in output


@pytest.mark.slow
def test_gradients_summed_instead_of_averaged_are_named(tmp_path: Path, reference: Path) -> None:
    output = verdict(tmp_path, reference, "summed", ())
    assert output.startswith("diverged: local norms")
    assert "every norm is 2 times the reference's: the candidate has 2 data-parallel ranks, over which it sums" in output


def test_a_replicated_gradient_that_one_rank_did_not_reduce_is_named(tmp_path: Path, reference: Path) -> None:
    output = verdict(tmp_path, reference, "not_reduced", (*TP, "--sequence-parallel"))
    assert output.startswith("diverged: self-check")
    assert "the candidate's gradient of model.layers.0.input_layernorm.weight, replicated" in output
    assert "on rank 1" in output


@pytest.fixture(scope="module")
def unequal(tmp_path_factory: pytest.TempPathFactory, reference: Path) -> Path:
    """The reference's batches with a mask that leaves rows different numbers of tokens, as the guide's snippet would leave them."""
    path, run = tmp_path_factory.mktemp("unequal"), open_run(reference)
    for step in run.steps:
        arrays = run.batch(step).arrays()
        mask = np.arange(arrays["tokens"].shape[1]) < np.array([[30], [128], [7], [90]])
        save_by_hand(path, step, {name: arrays[name] for name in ("tokens", "labels")} | {"loss_mask": mask.astype(np.float32)})
    return path


@pytest.mark.slow
def test_tokens_weighed_by_micro_batch_instead_of_by_count_are_named(tmp_path: Path, reference: Path, unequal: Path) -> None:
    fed = frameworks.fed_by(reference) | {"REPLAY_BATCHES": unequal}
    honest = frameworks.recorded(frameworks.megatron, tmp_path / "one", flags=("--calculate-per-token-loss",), **fed)
    assert open_run(honest).self_check.contradictions == ()
    output = verdict(tmp_path / "two", honest, "by_micro_batch", ("--calculate-per-token-loss",), batches=unequal)
    assert output.startswith("diverged: self-check")
    weights = "weight of tokens in the loss at step 0 (iteration 1): alike (per-token loss) by its settings against by micro-batch in what"
    assert f"the candidate's {weights} was differentiated" in output
