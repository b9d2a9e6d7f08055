"""Whoever asks a run for what it does not have is told what it has, in a line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

from align_hooks import open_run
from align_hooks.errors import RecordError
from align_hooks.record.reader import Run
from synthetic import Synthetic, by_hand

ASKED: dict[str, tuple[Callable[[Run], object], str]] = {
    "gradients": (lambda run: run.gradients(5), r"gradients of step 5 are not recorded; recorded: 0-1; .*ALIGN_HOOKS_GRADIENTS=5"),
    "weights": (lambda run: run.weights(2), r"weights after 2 updates are not recorded; recorded: 0; .*ALIGN_HOOKS_WEIGHTS=2"),
    "one update": (lambda run: run.weights(1), "weights after 1 update are not recorded"),
    "norms": (lambda run: run.local_norms(2), r"local_norms of step 2 are not recorded; recorded: 0; .*ALIGN_HOOKS_LOCAL_NORMS=2"),
    "batch": (lambda run: run.batch(7), r"batches of step 7 are not recorded; recorded: 0,2; .*ALIGN_HOOKS_BATCHES=7"),
    "facts of a batch": (lambda run: run.batch_facts(1), "batches of step 1 are not recorded"),
    "counts of experts": (lambda run: run.expert_counts(1), "batches of step 1 are not recorded"),
    "state": (lambda run: run.optimizer_state(0), "optimizer_state after 0 updates is not recorded; recorded: none"),
    "experts": (lambda run: run.routing(0), "routing of step 0 is not recorded; recorded: none"),
    "points": (lambda run: run.activations(0), "activations of step 0 are not recorded; recorded: none"),
    "sketches": (lambda run: run.sketches("gradients", 2), "sketches/gradients of step 2 are not recorded; recorded: 0-1"),
    "sketches of what has none": (
        lambda run: run.sketches("batches", 0),
        "no sketches of batches; there are sketches of gradients and weights",
    ),
    "a quantity": (lambda run: run.steps_of("gradient"), r"gradient is no quantity .*did you mean gradients\?"),
    "another quantity": (lambda run: run.has("xyz", 0), "xyz is no quantity that a run records; there are scalars, batches"),
    "rows of ranks": (lambda run: run.rank_rows(9), "step 9 is not whole; whole: 0-2"),
    "generators": (lambda run: run.random_states(9), "step 9 is not whole; whole: 0-2"),
    "a frame": (lambda run: run.to_frame("weights"), "no frame of weights; there are frames of scalars and local_norms"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    settings = {"batches": "0,2", "local_norms": "0", "gradients": "0-1", "weights": "0"}
    made = Synthetic(settings=settings)
    made.batches = {0: made.batches[0], 2: made.batches[2]}
    made.norms = {0: made.norms[0]}
    return open_run(made.write(tmp_path_factory.mktemp("asked") / "run"))


@pytest.mark.parametrize("what", ASKED)
def test_the_error_names_what_is_recorded(what: str, run: Run) -> None:
    ask, words = ASKED[what]
    with pytest.raises(RecordError, match=words) as refused:
        ask(run)
    assert "\n" not in str(refused.value)


def test_a_tensor_by_a_wrong_name_is_answered_with_the_nearest(run: Run) -> None:
    with pytest.raises(KeyError, match=r"did you mean model\.norm\.weight"):
        run.gradients(0)["model.norms.weight"]


def test_a_directory_made_by_hand_has_batches_alone(tmp_path: Path) -> None:
    run = open_run(by_hand(tmp_path / "hand"))
    assert run.batch(1).tokens is not None
    with pytest.raises(RecordError, match="batches of step 5 are not recorded; recorded: 0-1"):
        run.batch(5)
    with pytest.raises(RecordError, match="was made by hand and holds batches alone"):
        run.gradients(0)
    with pytest.raises(RecordError, match="was made by hand and holds batches alone"):
        run.local_norms(0)


def test_every_public_member_says_what_it_is() -> None:
    members = {name: member for kind in Run.__mro__ for name, member in vars(kind).items() if not name.startswith("_")}
    undocumented = [name for name, member in members.items() if not inspect.getdoc(getattr(member, "func", member))]
    assert len(members) > 30
    assert undocumented == []
