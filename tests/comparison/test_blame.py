"""Where a fault is said to sit, and what is suspected first."""

from collections.abc import Callable
from copy import deepcopy
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from align_hooks import open_run
from align_hooks.comparison.diagnosis.suspects import origins_of
from align_hooks.comparison.stage_result import FaultLocation, Status
from align_hooks.comparison.stages import registry
from align_hooks.messages import Side
from comparison.conftest import HONEST, Compared, asking, scale_row, stage
from synthetic import NAMES, VOCABULARY, Synthetic, squared_sum
from worded import arguments, ids

Q, NORM = "model.layers.0.self_attn.q_proj.weight", "model.norm.weight"
LOST = 1e-3


def bent(run: Synthetic, change: Callable[[str, np.ndarray], np.ndarray]) -> None:
    """Change gradients of step 0 and their norms; nothing later is on record."""
    for name, gradient in run.gradients[0].items():
        run.gradients[0][name] = change(name, gradient).astype(np.float32)
        run.norms[0][name] = squared_sum(run.gradients[0][name])
    asking(run, weights="0", optimizer_state="none")


def noisy(seed: int) -> Callable[[str, np.ndarray], np.ndarray]:
    random = np.random.default_rng(seed)
    return lambda name, each: each * (1 + LOST * random.standard_normal(each.shape))


def tokens(run: Synthetic, first: int) -> None:
    losses = run.batches[0]["token_losses"]
    losses[:, first:] *= 1 + LOST * np.random.default_rng(1).standard_normal(losses[:, first:].shape).astype(np.float32)


def forgotten(run: Synthetic) -> None:
    for batch in run.batches.values():
        del batch["token_losses"]


CASES: dict[str, tuple[list[Callable[[Synthetic], Any]], FaultLocation, str, str | None]] = {
    "scores": ([lambda run: tokens(run, 1)], FaultLocation.FORWARD, "token_losses.*", "attention_scores"),
    "window": ([lambda run: tokens(run, 2)], FaultLocation.FORWARD, "token_losses.*", "attention_forgets"),
    "tensors": ([lambda run: tokens(run, 0), lambda run: bent(run, noisy(2))], FaultLocation.FORWARD, "model.*", None),
    "setting": (
        [lambda run: tokens(run, 0), lambda run: run.model.update(rms_norm_eps=1e-6)],
        *(FaultLocation.FORWARD, "rms_norm_eps", "norm_epsilon"),
    ),
    "clip": ([lambda run: run.train(clip=0.5)], FaultLocation.CLIPPING, "*", None),
    "objective": ([lambda run: scale_row(run, 0, "objective_loss", 2)], FaultLocation.NORMALISATION, "sharding.*", None),
    "factor": ([lambda run: bent(run, lambda name, each: each * 2)], FaultLocation.GRADIENTS, "sharding.*", None),
    "norms": ([lambda run: bent(run, lambda name, each: each * (1 + (name == NORM)))], FaultLocation.GRADIENTS, NORM, "norm_copies"),
    "one": ([lambda run: bent(run, lambda name, each: each * (name != Q))], FaultLocation.GRADIENTS, Q, "gradient_alone"),
    "backward, and no token losses": ([forgotten, lambda run: bent(run, noisy(3))], FaultLocation.GRADIENTS, "*", None),
    "backward": ([lambda run: bent(run, noisy(3))], FaultLocation.GRADIENTS, "backward_boundary.*", "backward_of_loss"),
    "betas": ([lambda run: run.optimizer["groups"][0].update(betas=[0.9, 0.999])], FaultLocation.CONFIGURATION, "betas", None),
    "decay": (
        [lambda run: run.optimizer["groups"][1].update(weight_decay=0.1)],
        FaultLocation.CONFIGURATION,
        "weight_decay",
        "other_decay",
    ),
}


def test_without_token_losses_on_either_side_the_forward_pass_is_blamed(compared: Compared, candidate: Synthetic) -> None:
    """Where one side alone has none, no tensor is named: ``test_batch_differences.py``."""
    reference = deepcopy(HONEST)
    for run in (reference, candidate):
        forgotten(run)
    scale_row(candidate, 0, "loss", 1 + 2e-7)
    bent(candidate, noisy(3))
    blame = compared(candidate, against=reference).blame
    assert blame.place is FaultLocation.FORWARD
    assert fnmatchcase(blame.suspects[0].name, "model.*")


@pytest.mark.parametrize(("bends", "place", "suspect", "cause"), CASES.values(), ids=CASES.keys())
def test_a_fault_sits_where_it_was_put(
    compared: Compared,
    candidate: Synthetic,
    bends: list[Callable[[Synthetic], None]],
    place: FaultLocation,
    suspect: str,
    cause: str | None,
) -> None:
    for bend in bends:
        bend(candidate)
    outcome = compared(candidate).blame
    assert outcome.place is place
    assert fnmatchcase(outcome.suspects[0].name or ids(outcome.suspects[0].what)[0], suspect)
    assert cause is None or outcome.causes[0] == cause


def test_nothing_is_blamed_in_an_honest_pair(compared: Compared, candidate: Synthetic) -> None:
    assert compared(candidate).blame is None


def test_a_factor_of_one_token_less_is_told(compared: Compared, candidate: Synthetic) -> None:
    candidate.rows[0]["objective_loss"] *= 20 / 19
    outcome = compared(candidate).blame
    assert outcome.place is FaultLocation.NORMALISATION
    assert "sharding.divides_by_one_less" in ids(outcome.suspects[0].what)


def test_of_tensors_that_are_lost_the_furthest_by_itself_comes_first(tmp_path: Path, compared: Compared, candidate: Synthetic) -> None:
    """How many limits each is off says how small its limit is: the norm's measured one is far smaller."""
    tokens(candidate, 0)
    size = {Q: 1.9, NORM: 1.4}
    bent(candidate, lambda name, each: each * (1 - size[name]) if name in size else noisy(2)(name, each))
    noise = HONEST.drifted()
    bent(noise, lambda name, each: each * (1 + 1e-3 * (name == Q)))
    outcome = compared(candidate, noise=[open_run(noise.write(tmp_path / "noise"))])
    assert stage(outcome, "gradients").findings[0].name == NORM
    assert [suspect.name for suspect in outcome.blame.suspects[:2]] == [Q, NORM]


def test_an_optimizer_of_ones_own_is_suspected_where_updates_part(compared: Compared, candidate: Synthetic) -> None:
    candidate.optimizer["type"] = "TeamAdamW"
    assert compared(candidate).blame is None
    for row in candidate.rows[1:]:
        row["loss"] *= 1.01
    blame = compared(asking(candidate, gradients="0", weights="0", optimizer_state="none")).blame
    assert (blame.place, blame.causes) == (FaultLocation.NEXT_LOSS, ("own_optimizer",))
    assert arguments("blame.own_optimizer", blame.suspects[0].what) == {"side": Side.CANDIDATE, "type": "TeamAdamW"}


def test_gradients_that_are_gone_are_named_together(compared: Compared, candidate: Synthetic) -> None:
    """Nothing of the loss depends on these parameters."""
    gone = NAMES[:2]
    for name in gone:
        candidate.gradients[0][name][:] = 0
    blame = compared(candidate).blame
    assert blame.place is FaultLocation.GRADIENTS
    told = arguments("blame.gone", *(suspect.what for suspect in blame.suspects))["names"]
    assert arguments("names.and_more", told)["count"] == len(gone) - 1
    assert {*gone} <= {suspect.name for suspect in blame.suspects}


@pytest.mark.parametrize(("rows", "part"), [("looked up", "tied.of_embedding"), ("all", "tied.of_output")])
def test_the_part_of_a_tied_weight_that_is_off_is_told_by_its_rows(compared: Compared, rows: str, part: str) -> None:
    reference = deepcopy(HONEST)
    reference.model |= {"tie_word_embeddings": True}
    for batch in reference.batches.values():
        batch["tokens"] %= VOCABULARY // 2
    candidate = deepcopy(reference)
    gradient = candidate.gradients[0]["model.embed_tokens.weight"]
    gradient[np.unique(reference.batches[0]["tokens"]) if rows == "looked up" else slice(None)] *= np.float32(0.5)
    gradient[0] += np.float32(1)  # and no factor that they share
    blame = compared(candidate, against=reference).blame
    assert blame.causes[0] == "tied_weight"
    assert part in ids(*blame.likely)


def test_points_are_named_of_the_pass_in_which_the_fault_sits() -> None:
    origins = {registry.activations: ("forward",), registry.activation_gradients: ("backward",)}
    stages = {stage: SimpleNamespace(origins=of_stage) for stage, of_stage in origins.items()}
    seen: Any = SimpleNamespace(stages=stages, status=lambda stage: Status.DIFFERENT)
    assert [origins_of(seen, place) for place in (FaultLocation.FORWARD, FaultLocation.GRADIENTS)] == [("forward",), ("backward",)]
