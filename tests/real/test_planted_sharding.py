"""Sharding faults planted in a real Megatron, one of each kind: each must be found, and named."""

from pathlib import Path

import numpy as np
import pytest

from align_hooks import open_run
from align_hooks.comparison.stage_result import StageResult
from align_hooks.comparison.verdict import ComparisonResult
from align_hooks.messages import Side
from real import frameworks
from synthetic import save_by_hand
from worded import arguments, ids

TP = ("--tensor-model-parallel-size", "2")


def judged(reference: Path, plant: str, *flags: str, **fed: object) -> ComparisonResult:
    """Train two ranks with a fault and return what is found; the runs must have diverged."""
    given = {"script": frameworks.SCRIPTS / "planted_sharding.py", "environment": {"PLANTED": plant}, "flags": flags, "ranks": 2}
    return frameworks.diverged(reference, frameworks.recorded(frameworks.megatron, **given, **frameworks.fed_by(reference) | fed))


def verdict(reference: Path, plant: str, *flags: str) -> StageResult:
    """The stage that decides about two ranks with a fault."""
    return frameworks.first(judged(reference, plant, *flags))


@pytest.mark.slow
def test_a_dropped_shard_is_named_with_its_rank_and_its_columns(reference: Path) -> None:
    found = verdict(reference, "dropped_shard", *TP)
    assert found.name == "local norms"
    told = arguments("sharding.rank_holds_the_error_and_zeros", found.common)
    assert (told["side"], told["rank"], told["name"]) == (Side.CANDIDATE, 1, "model.layers.1.mlp.down_proj.weight")
    assert arguments("sharding.columns", found.common) == {"first": 64, "last": 127}


@pytest.mark.slow
def test_gradients_summed_instead_of_averaged_are_named(reference: Path) -> None:
    found = verdict(reference, "summed")
    assert found.name == "local norms"
    assert "divisor.data_parallel_ranks" in ids(found.common)
    assert arguments("divisor.data_parallel_ranks", found.common) == {"number": 2}


@pytest.mark.slow
def test_a_replicated_gradient_that_one_rank_did_not_reduce_is_named(reference: Path) -> None:
    found = verdict(reference, "not_reduced", *TP, "--sequence-parallel")
    assert found.name == "self-check"
    worst = found.findings[0]
    assert arguments("self_check.gradient_copies", worst.what)["name"] == "model.layers.0.input_layernorm.weight"
    assert arguments("self_check.of_side", worst.what)["side"] == Side.CANDIDATE
    assert arguments("self_check.copy_on_rank", worst.candidate)["rank"] == 1


def unequal_batches(path: Path, reference: Path) -> None:
    """Write the reference's batches with a mask that leaves rows different numbers of tokens, as the guide's snippet would leave them."""
    run = open_run(reference)
    for step in run.steps:
        arrays = run.batch(step).arrays()
        mask = np.arange(arrays["tokens"].shape[1]) < np.array([[30], [128], [7], [90]])
        save_by_hand(path, step, {name: arrays[name] for name in ("tokens", "labels")} | {"loss_mask": mask.astype(np.float32)})


@pytest.mark.slow
def test_tokens_weighed_by_micro_batch_instead_of_by_count_are_named(reference: Path) -> None:
    unequal = frameworks.derived(unequal_batches, reference)
    fed = frameworks.fed_by(reference) | {"REPLAY_BATCHES": unequal}
    honest = frameworks.recorded(frameworks.megatron, flags=("--calculate-per-token-loss",), **fed)
    assert open_run(honest).self_check.contradictions == ()
    found = judged(honest, "by_micro_batch", "--calculate-per-token-loss", REPLAY_BATCHES=unequal)
    assert frameworks.first(found).name == "step-0 loss"
    assert found.blame is not None and found.blame.place == "loss normalisation"
    suspected = found.blame.suspects[0].what
    assert arguments("first_loss.weighs_otherwise", suspected)["side"] == Side.CANDIDATE
    assert {"self_check.by_micro_batch_in_derivative", "self_check.alike_by_settings"} <= set(ids(suspected))
