"""Faults planted on the MindFormers side, one at a time: each must be found, and found where it sits."""

from pathlib import Path

import numpy as np
import pytest

from align_hooks import open_run
from align_hooks.comparison.verdict import ComparisonResult
from real import frameworks
from real.test_pair import exchanged_weights
from synthetic import save_by_hand

ZOO = Path(__file__).parents[1] / "zoo" / "planted_mindformers.py"
"""Plants the fault that PLANTED names."""


def verdict(reference: Path, **given: object) -> ComparisonResult:
    """Train the faulty candidate and return what is found; the runs must have diverged."""
    return frameworks.diverged(reference, frameworks.recorded(frameworks.mindformers, **frameworks.fed_by(reference) | given))


def named(judged: ComparisonResult) -> list[str]:
    """The tensors or settings that the deciding stage found, the worst first."""
    return [finding.name for finding in frameworks.first(judged).findings]


def test_rms_norm_eps_is_found_in_the_first_loss(reference: Path) -> None:
    judged = verdict(reference, change={"model.model_config.rms_norm_eps": 1e-6})
    assert frameworks.first(judged).name == "token losses"
    assert frameworks.differing(judged) == {"rms_norm_eps": (1e-5, 1e-6)}


@pytest.mark.slow
def test_rope_base_is_found_in_the_gradients_of_queries_or_keys(reference: Path) -> None:
    judged = verdict(reference, change={"model.model_config.theta": 10100.0})
    assert frameworks.differing(judged) == {"rope_theta": (10000.0, 10100.0)}
    stage = frameworks.first(judged).name
    assert stage in ("token losses", "gradients", "local norms")
    assert stage == "token losses" or "q_proj" in named(judged)[0] or "k_proj" in named(judged)[0]


@pytest.mark.slow
def test_keys_and_values_swapped_in_the_loaded_parameters_are_found_in_the_initial_weights(reference: Path) -> None:
    judged = verdict(reference, LOAD_WEIGHTS=frameworks.derived(exchanged_weights, reference))
    assert frameworks.first(judged).name == "initial weights"
    assert {f"model.layers.0.self_attn.{name}_proj.weight" for name in "kv"} <= set(named(judged))


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "stage"), [("keys_as_values", "token losses"), ("labels_shifted", "step-0 loss")])
def test_what_names_or_the_model_exchange_is_found_in_the_first_loss(fault: str, stage: str, reference: Path) -> None:
    assert frameworks.first(verdict(reference, script=ZOO, environment={"PLANTED": fault})).name == stage


def shifted_batches(where: Path, reference: Path) -> None:
    """Write the reference's batches with labels one place further."""
    run = open_run(reference)
    for step in run.steps:
        arrays = run.batch(step).arrays()
        save_by_hand(where, step, {"tokens": arrays["tokens"], "labels": np.roll(arrays["labels"], 1, axis=1)})


@pytest.mark.slow
def test_labels_shifted_in_the_batch_are_found_in_the_batches(reference: Path) -> None:
    judged = verdict(reference, REPLAY_BATCHES=frameworks.derived(shifted_batches, reference))
    assert frameworks.first(judged).name == "batches"
    assert (named(judged)[0], frameworks.first(judged).findings[0].step) == ("labels", 0)
