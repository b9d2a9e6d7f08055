"""Tokens that two runs gave to other experts: near ties leave open what follows, many of them are a fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from align_hooks import open_run
from align_hooks.comparison import limits
from align_hooks.comparison.routing import apart
from align_hooks.comparison.runs import compare
from align_hooks.comparison.verdict import Comparison, Status, Verdict
from align_hooks.messages import rendered
from align_hooks.record.terms import AUXILIARY
from comparison.conftest import stage
from synthetic import ROUTERS, ROWS, SEQUENCE, STEPS, Synthetic, routed
from worded import arguments, ids

FEW = 2
"""Tokens of a layer that are near ties in any case."""


@pytest.fixture(autouse=True)
def unsynced() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        yield


def moved(run: Synthetic, step: int, tokens: int, layer: int = 0, last: bool = True) -> None:
    """Give tokens of a step to other experts: the last ones of the rows, or the first."""
    chosen = run.routing[step][ROUTERS[layer]]
    for token in range(tokens):
        position = (SEQUENCE - 1 - token // ROWS) if last else token // ROWS
        experts = chosen[token % ROWS, position]
        chosen[token % ROWS, position] = sorted({0, 1, 2, 3} - set(experts.tolist()))


def off(run: Synthetic, step: int, positions: slice, rows: slice = slice(None)) -> None:
    """Token losses of a step that are wrong at these positions, and the loss that is made of them."""
    losses = run.batches[step]["token_losses"]
    losses[rows, positions] *= np.float32(1.01)
    mean = float(losses.mean(dtype=np.float64))
    run.rows[step]["loss"] = run.rows[step]["objective_loss"] = mean


def wrong_gradients(run: Synthetic, step: int) -> None:
    """Gradients of a step that follow from other losses."""
    random = np.random.default_rng(3)
    for name, tensor in run.gradients[step].items():
        run.gradients[step][name] = tensor * (1 + 0.01 * random.standard_normal(tensor.shape)).astype(np.float32)
    run.norms[step] = {name: float(np.square(tensor, dtype=np.float64).sum()) for name, tensor in run.gradients[step].items()}
    run.train()


def pair(tmp_path: Path, reference: Synthetic, candidate: Synthetic) -> Comparison:
    return compare(*(open_run(run.write(tmp_path / name)) for name, run in {"reference": reference, "candidate": candidate}.items()))


def test_a_model_without_experts_has_no_such_stage(tmp_path: Path) -> None:
    comparison = pair(tmp_path, Synthetic(), Synthetic())
    assert "routing" not in {result.name for result in comparison.stages}


@pytest.mark.parametrize("asked", [("routing",), ()])
def test_the_same_experts_are_the_same(tmp_path: Path, asked: tuple[str, ...]) -> None:
    comparison = pair(tmp_path, routed(*asked), routed(*asked))
    assert comparison.verdict is Verdict.ALIGNED
    result = stage(comparison, "routing")
    assert result.status is Status.SAME
    assert result.ties is None
    assert len(result.findings) == len(ROUTERS) * STEPS


def test_a_run_that_recorded_no_batch_has_none_to_compare(tmp_path: Path) -> None:
    reference, candidate = routed(), routed()
    candidate.batches, candidate.routing, candidate.settings = {}, {}, candidate.settings | {"batches": "none"}
    assert stage(pair(tmp_path, reference, candidate), "routing").status is Status.NOT_COMPARED


def test_near_ties_that_change_no_number_leave_a_pair_aligned(tmp_path: Path) -> None:
    candidate = routed("routing")
    moved(candidate, 1, FEW)
    comparison = pair(tmp_path, routed("routing"), candidate)
    assert comparison.verdict is Verdict.ALIGNED
    assert stage(comparison, "routing").ties == 1


def test_what_follows_from_near_ties_is_inconclusive_and_the_routing_is_to_be_replayed(tmp_path: Path) -> None:
    """One token a row changes its experts; its loss, the loss of the step and the gradients follow."""
    candidate = routed("routing")
    moved(candidate, 0, FEW)
    off(candidate, 0, slice(SEQUENCE - 1, None), rows=slice(FEW))
    wrong_gradients(candidate, 0)
    comparison = pair(tmp_path, routed("routing"), candidate)
    assert comparison.verdict is Verdict.INCONCLUSIVE
    assert comparison.first is not None and comparison.first.name == "routing"
    tokens = stage(comparison, "token losses")
    assert tokens.status is Status.SAME  # of the tokens that went the same way
    assert arguments("token_losses.without", tokens.summary)["count"] == 2
    assert stage(comparison, "gradients").status is Status.DIFFERENT
    advice = rendered(comparison.next)
    assert "ALIGN_HOOKS_REPLAY_ROUTING=" in advice


def test_a_fault_beside_near_ties_is_a_fault(tmp_path: Path) -> None:
    candidate = routed("routing")
    moved(candidate, 0, FEW)
    off(candidate, 0, slice(None))
    wrong_gradients(candidate, 0)
    comparison = pair(tmp_path, routed("routing"), candidate)
    assert comparison.verdict is Verdict.DIVERGED
    assert comparison.first is not None and comparison.first.name == "token losses"


def test_what_differs_before_the_first_near_tie_speaks_for_itself(tmp_path: Path) -> None:
    """A wrong gradient of step 0, and a near tie of step 1."""
    candidate = routed("routing")
    wrong_gradients(candidate, 0)
    moved(candidate, 1, FEW)
    comparison = pair(tmp_path, routed("routing"), candidate)
    assert comparison.verdict is Verdict.DIVERGED
    assert comparison.first is not None and comparison.first.name in ("local norms", "gradients")


def test_many_tokens_on_equal_weights_are_a_fault_of_the_first_layer_that_shows_it(tmp_path: Path) -> None:
    candidate = routed("routing")
    moved(candidate, 0, 9, layer=0)
    moved(candidate, 0, 12, layer=1)
    off(candidate, 0, slice(2, None))
    wrong_gradients(candidate, 0)
    comparison = pair(tmp_path, routed("routing"), candidate)
    assert comparison.verdict is Verdict.DIVERGED
    assert comparison.first is not None and comparison.first.name == "routing"
    assert [finding.name for finding in comparison.first.findings] == [f"{router}.weight" for router in ROUTERS]
    assert comparison.blame is not None
    assert comparison.blame.suspects[0].name == f"{ROUTERS[0]}.weight"


@pytest.mark.parametrize("first", [True, False])
def test_of_counts_alone_early_tokens_tell_a_fault_from_near_ties(tmp_path: Path, first: bool) -> None:
    """Which tokens changed their experts is not known: where the first tokens of most rows agree, they may all follow from these."""
    candidate = routed()
    chosen = candidate.routing[0][ROUTERS[0]]
    chosen[0, SEQUENCE - 1] = (0, 0) if chosen[0, SEQUENCE - 1].tolist() != [0, 0] else (1, 1)
    off(candidate, 0, slice(0 if first else SEQUENCE - 1, None))
    wrong_gradients(candidate, 0)
    comparison = pair(tmp_path, routed(), candidate)
    assert comparison.verdict is (Verdict.DIVERGED if first else Verdict.INCONCLUSIVE)
    if not first:
        assert "ALIGN_HOOKS_ROUTING=all" in rendered(comparison.next)


def given_by(candidate: Synthetic, reference: Path) -> Synthetic:
    """A run whose tokens were given to the experts of another."""
    run = open_run(reference)
    candidate.facts = candidate.facts | {"routed": {"run": str(reference), "run_id": run.facts.run_id, "steps": [0, 1, 2]}}
    return candidate


@pytest.mark.parametrize("tokens", [FEW, 12])
def test_where_experts_are_given_a_router_of_its_own_mind_explains_nothing_else(tmp_path: Path, tokens: int) -> None:
    """What is recorded is the router's own choice: few others are near ties, many are a fault of the router; no token went another way."""
    reference = routed("routing").write(tmp_path / "reference")
    candidate = given_by(routed("routing"), reference)
    moved(candidate, 0, tokens)
    comparison = compare(open_run(reference), open_run(candidate.write(tmp_path / "candidate")))
    assert stage(comparison, "token losses").status is Status.SAME
    assert "token_losses.without" not in ids(stage(comparison, "token losses").summary)
    assert comparison.verdict is (Verdict.ALIGNED if tokens == FEW else Verdict.DIVERGED)
    wrong_gradients(candidate, 0)
    comparison = compare(open_run(reference), open_run(candidate.write(tmp_path / "again")))
    assert comparison.verdict is Verdict.DIVERGED
    assert comparison.first is not None
    assert comparison.first.name == ("local norms" if tokens == FEW else "routing")


def test_measured_noise_widens_what_is_a_near_tie(tmp_path: Path) -> None:
    candidate, repeat = routed("routing"), routed("routing")
    moved(candidate, 0, 8)
    moved(repeat, 0, 6)
    runs = [open_run(run.write(tmp_path / name)) for name, run in (("a", routed("routing")), ("b", candidate), ("c", repeat))]
    assert stage(compare(runs[0], runs[1]), "routing").status is Status.DIFFERENT
    measured = stage(compare(runs[0], runs[1], noise=[runs[2]]), "routing")
    assert measured.status is Status.SAME
    assert measured.findings[0].limit == pytest.approx(3 * 6 / (ROWS * SEQUENCE))


def test_tokens_that_attend_to_one_that_changed_are_apart(tmp_path: Path) -> None:
    candidate = routed("routing")
    experts = candidate.routing[0][ROUTERS[1]]
    experts[2, 1] = sorted({0, 1, 2, 3} - set(experts[2, 1].tolist()))
    flags = apart(*(open_run(run.write(tmp_path / name)) for name, run in (("a", routed("routing")), ("b", candidate))), 0)
    expected = np.zeros((ROWS, SEQUENCE), bool)
    expected[2, 1:] = True
    np.testing.assert_array_equal(flags, expected)


def test_more_tokens_may_change_in_a_coarser_type() -> None:
    assert limits.DEFAULTS["float32"].ties < limits.DEFAULTS["float16"].ties < limits.DEFAULTS["bfloat16"].ties < 0.5


def other_data(run: Synthetic) -> None:
    run.batches[2]["tokens"][0, 0] = (run.batches[2]["tokens"][0, 0] + 1) % 10


def other_decay(run: Synthetic) -> None:
    run.optimizer["groups"][0]["weight_decay"] = 0.0  # type: ignore[index]
    run.train()


def other_rate(run: Synthetic) -> None:
    run.rows[1]["learning_rate"] = 5e-3
    run.train()


def other_clipping(run: Synthetic) -> None:
    run.rows[0]["clip_coefficient"] = 0.5
    run.train()


@pytest.mark.parametrize("fault", [other_data, other_decay, other_rate, other_clipping])
def test_a_fault_that_no_expert_can_make_stays_one_beside_a_near_tie(tmp_path: Path, fault: Callable[[Synthetic], None]) -> None:
    candidate = routed("routing")
    moved(candidate, 0, 1)
    fault(candidate)
    assert pair(tmp_path, routed("routing"), candidate).verdict is Verdict.DIVERGED


def test_another_coefficient_stays_a_fault_beside_a_near_tie(tmp_path: Path) -> None:
    """Ten times the term does not follow from one token of twenty."""
    reference, candidate = routed("routing"), routed("routing")
    moved(candidate, 0, 1)
    for run, term in ((reference, 0.002), (candidate, 0.02)):
        for scalars in run.rows:
            scalars["terms"] = {AUXILIARY: term}  # type: ignore[assignment]
    assert pair(tmp_path, reference, candidate).verdict is Verdict.DIVERGED


def test_counts_are_looked_at_where_choices_are_of_other_steps(tmp_path: Path) -> None:
    """An honest near tie of step 0, which the counts of step 0 show; choices were asked for at step 2 alone."""
    reference, candidate = routed(), routed()
    for run in (reference, candidate):
        run.settings["routing"] = "2"
    chosen = candidate.routing[0][ROUTERS[0]]
    chosen[0, SEQUENCE - 1] = (0, 0) if chosen[0, SEQUENCE - 1].tolist() != [0, 0] else (1, 1)
    off(candidate, 0, slice(SEQUENCE - 1, None), rows=slice(1))
    wrong_gradients(candidate, 0)
    assert pair(tmp_path, reference, candidate).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("lacks", ["all layers", "one layer", "an expert of each token"])
def test_a_run_that_lacks_choices_that_it_was_asked_for_is_not_aligned(tmp_path: Path, lacks: str) -> None:
    candidate = routed("routing")
    for step, layers in candidate.routing.items():
        candidate.routing[step] = {
            "all layers": {},
            "one layer": {ROUTERS[0]: layers[ROUTERS[0]]},
            "an expert of each token": {name: np.ascontiguousarray(experts[:, :, :1]) for name, experts in layers.items()},
        }[lacks]
    comparison = pair(tmp_path, routed("routing"), candidate)
    assert comparison.verdict is not Verdict.ALIGNED, stage(comparison, "routing").status
