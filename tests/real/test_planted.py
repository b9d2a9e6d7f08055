"""Faults planted on the MindFormers side, one at a time: each must be found, and found where it sits."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from align_hooks import open_run
from real import frameworks


def found(where: Path, reference: Path, weights: Path | None = None, batches: Path | None = None, **run: Any) -> str:
    """Train the faulty candidate and return what ``compare`` prints; it must exit 1."""
    variables = {"RUN": where / "run", "REPLAY_BATCHES": batches or reference, "LOAD_WEIGHTS": weights or reference}
    frameworks.mindformers(where, **variables, **frameworks.EVERYTHING, **run).succeeded()
    done = frameworks.compare(reference, where / "run")
    assert done.code == 1, done.output
    return done.output


def test_rms_norm_eps_is_found_in_the_first_loss(tmp_path: Path, reference: Path) -> None:
    output = found(tmp_path, reference, change={"model.model_config.rms_norm_eps": 1e-6})
    assert output.startswith("diverged: token losses")
    assert "rms_norm_eps 1e-05 against 1e-06" in output


@pytest.mark.slow
def test_rope_base_is_found_in_the_gradients_of_queries_or_keys(tmp_path: Path, reference: Path) -> None:
    output = found(tmp_path, reference, change={"model.model_config.theta": 10100.0})
    first, worst = output.splitlines()[:2]
    if first.startswith("diverged: token losses"):
        return
    assert first.startswith(("diverged: gradients", "diverged: local norms"))
    assert "q_proj" in worst or "k_proj" in worst
    assert "rope_theta 10000 against 10100" in output


@pytest.mark.slow
def test_keys_and_values_swapped_in_the_loaded_parameters_are_found_in_the_initial_weights(tmp_path: Path, reference: Path) -> None:
    weights = tmp_path / "swapped"
    shutil.copytree(reference / "step_0" / "rank_0" / "weights", weights)
    tensors = load_file(weights / "model.safetensors")
    key, value = (f"model.layers.0.self_attn.{name}_proj.weight" for name in "kv")
    tensors[key], tensors[value] = tensors[value], tensors[key]
    save_file(tensors, weights / "model.safetensors")
    output = found(tmp_path, reference, weights=weights)
    assert output.startswith("diverged: initial weights")
    assert key in output
    assert value in output


def test_keys_and_values_swapped_in_the_name_table_are_found_in_the_first_loss(tmp_path: Path, reference: Path) -> None:
    output = found(tmp_path, reference, script=frameworks.SCRIPTS / "swapped_table.py")
    assert output.startswith("diverged: token losses")


@pytest.mark.slow
def test_labels_shifted_in_the_batch_are_found_in_the_batches(tmp_path: Path, reference: Path) -> None:
    batches = tmp_path / "by_hand"
    run = open_run(reference)
    for step in run.steps:  # a directory as the guide's snippet leaves it
        place = batches / f"step_{step}" / "rank_0"
        place.mkdir(parents=True)
        batch = run.batch(step)
        assert batch.tokens is not None
        assert batch.labels is not None
        np.save(place / "tokens.npy", batch.tokens)
        np.save(place / "labels.npy", np.roll(batch.labels, 1, axis=1))
    output = found(tmp_path, reference, batches=batches)
    assert output.startswith("diverged: batches")
    assert "labels of step 0" in output


@pytest.mark.slow
def test_labels_shifted_inside_the_model_are_found_in_the_first_loss(tmp_path: Path, reference: Path) -> None:
    output = found(tmp_path, reference, script=frameworks.SCRIPTS / "shifted_loss.py")
    assert output.startswith("diverged: step-0 loss")
