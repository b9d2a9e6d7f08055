"""Faults planted on the MindFormers side, one at a time: each must be found, and found where it sits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from align_hooks import open_run
from real import frameworks
from synthetic import save_by_hand
from zoo import altered

ZOO = Path(__file__).parents[1] / "zoo" / "planted_mindformers.py"
"""Plants the fault that PLANTED names."""


def verdict(where: Path, reference: Path, plant: str = "", **given: object) -> str:
    """Train the faulty candidate and return what ``compare`` prints; it must exit 1."""
    planted = {"script": ZOO, "environment": {"PLANTED": plant}} if plant else {}
    candidate = frameworks.recorded(frameworks.mindformers, where, **frameworks.fed_by(reference) | planted | given)
    return frameworks.diverged(reference, candidate).output


def test_rms_norm_eps_is_found_in_the_first_loss(tmp_path: Path, reference: Path) -> None:
    output = verdict(tmp_path, reference, change={"model.model_config.rms_norm_eps": 1e-6})
    assert output.startswith("diverged: token losses")
    assert "rms_norm_eps 1e-05 against 1e-06" in output


@pytest.mark.slow
def test_rope_base_is_found_in_the_gradients_of_queries_or_keys(tmp_path: Path, reference: Path) -> None:
    output = verdict(tmp_path, reference, change={"model.model_config.theta": 10100.0})
    first, worst = output.splitlines()[:2]
    if first.startswith("diverged: token losses"):
        return
    assert first.startswith(("diverged: gradients", "diverged: local norms"))
    assert "q_proj" in worst or "k_proj" in worst
    assert "rope_theta 10000 against 10100" in output


@pytest.mark.slow
def test_keys_and_values_swapped_in_the_loaded_parameters_are_found_in_the_initial_weights(tmp_path: Path, reference: Path) -> None:
    weights = altered.checkpoint("keys_as_values", reference, tmp_path / "swapped")
    output = verdict(tmp_path, reference, LOAD_WEIGHTS=weights)
    assert output.startswith("diverged: initial weights")
    assert all(f"model.layers.0.self_attn.{name}_proj.weight" in output for name in "kv")


@pytest.mark.slow
def test_keys_and_values_swapped_in_the_name_table_are_found_in_the_first_loss(tmp_path: Path, reference: Path) -> None:
    output = verdict(tmp_path, reference, "keys_as_values")
    assert output.startswith("diverged: token losses")


@pytest.mark.slow
def test_labels_shifted_in_the_batch_are_found_in_the_batches(tmp_path: Path, reference: Path) -> None:
    batches = tmp_path / "by_hand"
    run = open_run(reference)
    for step in run.steps:
        arrays = run.batch(step).arrays()
        save_by_hand(batches, step, {"tokens": arrays["tokens"], "labels": np.roll(arrays["labels"], 1, axis=1)})
    output = verdict(tmp_path, reference, REPLAY_BATCHES=batches)
    assert output.startswith("diverged: batches")
    assert "labels of step 0" in output


@pytest.mark.slow
def test_labels_shifted_inside_the_model_are_found_in_the_first_loss(tmp_path: Path, reference: Path) -> None:
    output = verdict(tmp_path, reference, "labels_shifted")
    assert output.startswith("diverged: step-0 loss")
