"""The optimizer alone: one side's gradients handed to the other, and faults planted in what is made of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from align_hooks import open_run
from real import frameworks
from rewritten import bend, edit_rows


@pytest.fixture(scope="module")
def injected(tmp_path_factory: pytest.TempPathFactory, reference: Path) -> Path:
    """MindFormers with Megatron's gradients of all three steps."""
    where = tmp_path_factory.mktemp("injected")
    sources = {"REPLAY_BATCHES": reference, "LOAD_WEIGHTS": reference, "INJECT_GRADIENTS": reference}
    frameworks.mindformers(where, RUN=where / "run", **sources, **frameworks.EVERYTHING).succeeded()
    return where / "run"


def test_weights_after_each_of_three_injected_updates_are_the_references(reference: Path, injected: Path) -> None:
    one, other = open_run(reference), open_run(injected)
    assert other.facts.injected.steps == (0, 1, 2)
    for updates in (1, 2, 3):
        ours, theirs = one.weights(updates), other.weights(updates)
        apart = {name: np.linalg.norm(theirs[name] - ours[name]) / np.linalg.norm(ours[name]) for name in ours}
        assert len(apart) == 21
        assert max(apart.values()) < 1e-6, max(apart, key=apart.__getitem__)
        states = [run.optimizer_state(updates) for run in (one, other)]
        assert [state.updates for state in states] == [updates, updates]
        assert [state.dtypes for state in states] == [{"exp_avg": "float32", "exp_avg_sq": "float32"}] * 2
        for moment in ("exp_avg", "exp_avg_sq"):
            first, second = (state.moments[moment] for state in states)
            assert all(np.linalg.norm(second[name] - first[name]) <= 1e-6 * np.linalg.norm(first[name]) for name in first)


def test_gradients_on_record_stay_the_runs_own(reference: Path, injected: Path) -> None:
    one, other = open_run(reference), open_run(injected)
    rows = zip(one.scalars(), other.scalars(), strict=True)
    assert all(abs(ours["grad_norm"] - theirs["grad_norm"]) < 1e-5 * ours["grad_norm"] for ours, theirs in rows)
    ours, theirs = one.gradients(2), other.gradients(2)
    assert any((ours[name] != theirs[name]).any() for name in ours)


def test_an_honest_pair_is_aligned_and_says_that_both_follow_the_formula(reference: Path, injected: Path) -> None:
    done = frameworks.compare(reference, injected)
    assert done.code == 0, done.output
    text = " ".join(done.output.split())
    assert "weights after an update" in text
    assert "of the candidate gradients were injected, of which the framework took its norms" in text


def test_mindformers_gradients_into_megatron(tmp_path: Path, candidate: Path) -> None:
    sources = {"REPLAY_BATCHES": candidate, "LOAD_WEIGHTS": candidate, "INJECT_GRADIENTS": f"{candidate}@0-1"}
    frameworks.megatron(tmp_path, RUN=tmp_path / "run", **sources, **frameworks.EVERYTHING).succeeded()
    one, other = open_run(candidate), open_run(tmp_path / "run")
    for updates in (1, 2):
        ours, theirs = one.weights(updates), other.weights(updates)
        assert all(np.linalg.norm(theirs[name] - ours[name]) < 1e-6 * np.linalg.norm(ours[name]) for name in ours)
    assert frameworks.compare(candidate, tmp_path / "run").code == 0


def test_one_that_injects_nothing_by_itself_trains_on_as_before(tmp_path: Path, reference: Path, candidate: Path) -> None:
    """With only step 2 injected, steps 0 and 1 are bit for bit those of a run with no injection."""
    sources = {"REPLAY_BATCHES": reference, "LOAD_WEIGHTS": reference, "INJECT_GRADIENTS": f"{reference}@2"}
    frameworks.mindformers(tmp_path, RUN=tmp_path / "run", **sources, WEIGHTS="all").succeeded()
    one, other = open_run(candidate), open_run(tmp_path / "run")
    for updates in (1, 2):
        assert all((one.weights(updates)[name] == other.weights(updates)[name]).all() for name in one.weights(updates))
    assert any((one.weights(3)[name] != other.weights(3)[name]).any() for name in one.weights(3))


@pytest.mark.parametrize("side", ["torch", "ms"])
def test_a_loaded_optimizer_state_goes_on_while_the_schedule_begins_anew(tmp_path: Path, reference: Path, side: str) -> None:
    sources = {"REPLAY_BATCHES": reference, "LOAD_WEIGHTS": f"{reference}@2", "RUN": tmp_path / "run", **frameworks.EVERYTHING}
    if side == "torch":
        cosine: dict[str, Any] = {"--lr-decay-style": "cosine", "--min-lr": "0"}
        frameworks.megatron(tmp_path, change=cosine, **sources).succeeded()
    else:
        cosine = {"type": "CosineWithWarmUpLR", "learning_rate": 1e-3, "lr_end": 0.0, "warmup_ratio": 0.0, "total_steps": frameworks.STEPS}
        frameworks.mindformers(tmp_path, change={"lr_schedule": cosine}, **sources).succeeded()
    before, run = open_run(reference), open_run(tmp_path / "run")
    assert [run.optimizer_state(step).updates for step in range(4)] == [2, 3, 4, 5]
    for moment, tensors in before.optimizer_state(2).moments.items():
        loaded = run.optimizer_state(0).moments[moment]
        assert all((loaded[name] == tensors[name]).all() for name in tensors)
    assert [row["learning_rate"] for row in run.scalars()] == pytest.approx([1e-3, 0.75e-3, 0.25e-3], rel=1e-6)
    assert "3 of the reference's updates follow AdamW" in " ".join(frameworks.compare(tmp_path / "run", tmp_path / "run").output.split())


def test_the_door_of_the_pipeline_cell_captures_and_injects_in_graph_mode(tmp_path: Path) -> None:
    done = frameworks.python(tmp_path, [str(frameworks.SCRIPTS / "clip_door.py")], {}, {}).succeeded()
    (said,) = (json.loads(line.removeprefix("clip_door ")) for line in done.output.splitlines() if line.startswith("clip_door "))
    assert said == dict.fromkeys(said, True)
    assert len(said) == 7


def test_the_door_of_cut_gradients_captures_and_injects_and_refuses_what_it_cannot_follow(tmp_path: Path) -> None:
    done = frameworks.python(tmp_path, [str(frameworks.SCRIPTS / "shard_door.py")], {}, {}).succeeded()
    (said,) = (json.loads(line.removeprefix("shard_door ")) for line in done.output.splitlines() if line.startswith("shard_door "))
    assert said == dict.fromkeys(said, True)
    assert len(said) == 16


PLANTED: dict[str, tuple[dict[str, Any], str, str]] = {
    "betas": (
        {"change": {"optimizer.betas": [0.9, 0.949]}},
        "betas: [0.9, 0.95] against [0.9, 0.949]",
        "betas of the candidate's updates: [0.9, 0.95] expected against [0.9, 0.949] found",
    ),
    "eps": (
        {"change": {"optimizer.eps": 1e-6}},
        "eps: 1e-08 against 1e-06",
        "eps of the candidate's updates: 1e-08 expected against 1e-06 found",
    ),
    "decay on norms": (
        {"script": frameworks.SCRIPTS / "decayed_norms.py"},
        "weight_decay of model.layers.0.input_layernorm.weight and 4 more: 0 against 0.1",
        "decay grouping (model.layers.0.input_layernorm.weight and 4 more) of the candidate's updates: not decayed expected",
    ),
    "decay": (
        {"change": {"optimizer.weight_decay": 0.11}},
        "weight_decay of lm_head.weight and 15 more: 0.1 against 0.11",
        "weight decay of the candidate's updates: 0.1 expected against 0.11 found",
    ),
    "learning rate": (
        {"change": {"lr_schedule.learning_rate": 1.001e-3}},
        "learning_rate: 0.001 against 0.001001",
        "learning rate of the candidate's updates: 0.001 expected against 0.001001 found",
    ),
    "clip": (
        {"change": {"runner_wrapper.max_grad_norm": 0.9}},
        "clip_grad: 1 against 0.9",
        "clip coefficient of the candidate's updates: that of clipping to 1 expected against that of clipping to 0.9 found",
    ),
    "bias correction": (
        {"change": {"optimizer": {"type": "AdamWeightDecay", "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}}},
        "bias_correction: True against False",
        "bias correction of the candidate's updates: made expected against not made found",
    ),
}


QUICK = ("clip",)
"""Those that every run of the tests trains; the others are slow only because they are many."""


@pytest.mark.parametrize("fault", [pytest.param(one, marks=() if one in QUICK else pytest.mark.slow) for one in PLANTED])
def test_a_wrong_term_is_named_from_the_record_and_from_the_update_alone(tmp_path: Path, reference: Path, fault: str) -> None:
    run, from_record, from_updates = PLANTED[fault]
    sources = {"REPLAY_BATCHES": reference, "LOAD_WEIGHTS": reference, "INJECT_GRADIENTS": reference}
    frameworks.mindformers(tmp_path, RUN=tmp_path / "run", **sources, **frameworks.EVERYTHING, **run).succeeded()
    told = frameworks.compare(reference, tmp_path / "run")
    assert told.code == 1, told.output
    text = " ".join(told.output.split())
    assert text.startswith("diverged: hyper-parameters")
    assert from_record in text
    hidden = frameworks.compare(reference, without_hyper_parameters(tmp_path / "run", tmp_path / "hidden"))
    assert hidden.code == 1, hidden.output
    text = " ".join(hidden.output.split())
    assert text.startswith("diverged: weights after an update")
    assert from_updates in text.partition(" stage ")[0]


def without_hyper_parameters(run: Path, copy: Path) -> Path:
    """A copy of a record that says nothing of its optimizer: no hyper-parameters, no rates, no clipping."""
    shutil.copytree(run, copy)
    bend(copy / "run.json", lambda facts: facts.pop("optimizer"))
    edit_rows(copy / "scalars" / "rank_0.jsonl", **dict.fromkeys(("learning_rate", "grad_norm", "clip_coefficient")))
    return copy


def without(manifest: Mapping[str, Any], name: str) -> Iterator[Any]:
    """A manifest's parameter table, lacking a tensor."""
    return (row for row in manifest["parameters"] if row["name"] != name)


@pytest.mark.parametrize(
    ("source", "said"),
    [("{run}@0-5", "has no gradients of step 3"), ("{run}@7", "holds no gradients"), ("{other}", "do not fit this model")],
    ids=["a step too many", "no step", "another model"],
)
def test_gradients_that_do_not_fit_are_refused_before_training(tmp_path: Path, reference: Path, source: str, said: str) -> None:
    other = tmp_path / "other"
    shutil.copytree(reference, other)
    bend(other / "manifest" / "rank_0.json", lambda manifest: manifest.update(parameters=[*without(manifest, "model.norm.weight")]))
    sources = {"REPLAY_BATCHES": reference, "INJECT_GRADIENTS": source.format(run=reference, other=other)}
    for run in (frameworks.megatron, frameworks.mindformers):
        done = run(tmp_path / run.__name__, RUN=tmp_path / run.__name__ / "run", **sources)
        assert done.code in (2, 3), done.output
        assert said in done.ours
        assert not (tmp_path / run.__name__ / "run" / "scalars").exists()
