"""Tokens that two runs gave to other experts: near ties leave open what follows, many of them are a fault."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest

from align_hooks import open_run
from align_hooks.comparison.data.routing import apart
from align_hooks.comparison.metrics import limits
from align_hooks.comparison.stage_result import Status
from align_hooks.comparison.verdict import Verdict
from align_hooks.messages import rendered
from align_hooks.record.format.state import BUFFER
from align_hooks.record.format.terms import AUXILIARY
from comparison.conftest import Compared, asking, change_id, stage
from synthetic import ROUTERS, ROWS, SEQUENCE, STEPS, Synthetic, routed
from worded import arguments, ids

FEW = 2
"""Tokens of a layer that are near ties in any case."""


CHOICES = routed("routing")
"""The reference: it recorded which experts each token was given to."""


@pytest.fixture
def candidate() -> Synthetic:
    return deepcopy(CHOICES)


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


def test_a_model_without_experts_has_no_such_stage(compared: Compared) -> None:
    assert "routing" not in {result.name for result in compared(Synthetic()).stages}


@pytest.mark.parametrize("asked", [("routing",), ()])
def test_the_same_experts_are_the_same(compared: Compared, asked: tuple[str, ...]) -> None:
    comparison = compared(routed(*asked), against=routed(*asked))
    result = stage(comparison, "routing")
    assert (comparison.verdict, result.status, result.ties) == (Verdict.ALIGNED, Status.SAME, None)
    assert len(result.findings) == len(ROUTERS) * STEPS


def test_a_run_that_recorded_no_batch_has_none_to_compare(compared: Compared) -> None:
    candidate = routed()
    candidate.batches, candidate.routing, candidate.settings = {}, {}, candidate.settings | {"batches": "none"}
    assert stage(compared(candidate, against=routed()), "routing").status is Status.NOT_COMPARED


def test_near_ties_that_change_no_number_leave_a_pair_aligned(compared: Compared, candidate: Synthetic) -> None:
    moved(candidate, 1, FEW)
    comparison = compared(candidate, against=CHOICES)
    assert (comparison.verdict, stage(comparison, "routing").ties) == (Verdict.ALIGNED, 1)


def test_what_follows_from_near_ties_is_inconclusive_and_the_routing_is_to_be_replayed(compared: Compared, candidate: Synthetic) -> None:
    """One token a row changes its experts; its loss, the loss of the step and the gradients follow."""
    moved(candidate, 0, FEW)
    off(candidate, 0, slice(SEQUENCE - 1, None), rows=slice(FEW))
    wrong_gradients(candidate, 0)
    comparison = compared(candidate, against=CHOICES)
    assert (comparison.verdict, comparison.first.name) == (Verdict.INCONCLUSIVE, "routing")
    tokens = stage(comparison, "token losses")
    assert tokens.status is Status.SAME  # of the tokens that went the same way
    assert arguments("token_losses.without", tokens.summary)["count"] == 2
    assert stage(comparison, "gradients").status is Status.DIFFERENT
    assert "ALIGN_HOOKS_REPLAY_ROUTING=" in rendered(comparison.next)


def test_many_tokens_on_equal_weights_are_a_fault_of_the_first_layer_that_shows_it(compared: Compared, candidate: Synthetic) -> None:
    moved(candidate, 0, 9, layer=0)
    moved(candidate, 0, 12, layer=1)
    off(candidate, 0, slice(2, None))
    wrong_gradients(candidate, 0)
    comparison = compared(candidate, against=CHOICES)
    assert (comparison.verdict, comparison.first.name) == (Verdict.DIVERGED, "routing")
    assert [finding.name for finding in comparison.first.findings] == [f"{router}.weight" for router in ROUTERS]
    assert comparison.blame.suspects[0].name == f"{ROUTERS[0]}.weight"


def counted_otherwise(run: Synthetic) -> None:
    """Another expert for the last token of a row, which the counts of step 0 show."""
    chosen = run.routing[0][ROUTERS[0]]
    chosen[0, SEQUENCE - 1] = (0, 0) if chosen[0, SEQUENCE - 1].tolist() != [0, 0] else (1, 1)


@pytest.mark.parametrize("first", [True, False])
def test_of_counts_alone_early_tokens_tell_a_fault_from_near_ties(compared: Compared, first: bool) -> None:
    """Which tokens changed their experts is not known: where the first tokens of most rows agree, they may all follow from these."""
    candidate = routed()
    counted_otherwise(candidate)
    off(candidate, 0, slice(0 if first else SEQUENCE - 1, None))
    wrong_gradients(candidate, 0)
    comparison = compared(candidate, against=routed())
    assert comparison.verdict is (Verdict.DIVERGED if first else Verdict.INCONCLUSIVE)
    assert first or "ALIGN_HOOKS_ROUTING=all" in rendered(comparison.next)


@pytest.mark.parametrize("tokens", [FEW, 12])
def test_where_experts_are_given_a_router_of_its_own_mind_explains_nothing_else(
    tmp_path: Path, compared: Compared, candidate: Synthetic, tokens: int
) -> None:
    """What is recorded is the router's own choice: few others are near ties, many are a fault of the router; no token went another way."""
    reference = CHOICES.write(tmp_path / "reference")
    candidate.facts = {"routed": {"run": str(reference), "run_id": open_run(reference).facts.run_id, "steps": [0, 1, 2]}}
    moved(candidate, 0, tokens)
    comparison = compared(candidate, against=reference)
    assert stage(comparison, "token losses").status is Status.SAME
    assert "token_losses.without" not in ids(stage(comparison, "token losses").summary)
    assert comparison.verdict is (Verdict.ALIGNED if tokens == FEW else Verdict.DIVERGED)
    wrong_gradients(candidate, 0)
    comparison = compared(candidate, against=reference)
    assert (comparison.verdict, comparison.first.name) == (Verdict.DIVERGED, "local norms" if tokens == FEW else "routing")


def test_measured_noise_widens_what_is_a_near_tie(tmp_path: Path, compared: Compared, candidate: Synthetic) -> None:
    repeat = deepcopy(CHOICES)
    moved(candidate, 0, 8)
    moved(repeat, 0, 6)
    assert stage(compared(candidate, against=CHOICES), "routing").status is Status.DIFFERENT
    measured = stage(compared(candidate, against=CHOICES, noise=[open_run(repeat.write(tmp_path / "repeat"))]), "routing")
    assert measured.status is Status.SAME
    assert measured.findings[0].limit == pytest.approx(3 * 6 / (ROWS * SEQUENCE))


def test_tokens_that_attend_to_one_that_changed_are_apart(tmp_path: Path, candidate: Synthetic) -> None:
    experts = candidate.routing[0][ROUTERS[1]]
    experts[2, 1] = sorted({0, 1, 2, 3} - set(experts[2, 1].tolist()))
    flags = apart(*(open_run(run.write(tmp_path / name)) for name, run in (("a", CHOICES), ("b", candidate))), 0)
    expected = np.zeros((ROWS, SEQUENCE), bool)
    expected[2, 1:] = True
    np.testing.assert_array_equal(flags, expected)


def test_more_tokens_may_change_in_a_coarser_type() -> None:
    assert limits.DEFAULTS["float32"].ties < limits.DEFAULTS["float16"].ties < limits.DEFAULTS["bfloat16"].ties < 0.5


def other_losses(run: Synthetic) -> None:
    off(run, 0, slice(None))
    wrong_gradients(run, 0)


@pytest.mark.parametrize(
    ("fault", "step", "tokens", "first"),
    [
        (other_losses, 0, FEW, ["token losses"]),
        (lambda run: wrong_gradients(run, 0), 1, FEW, ["local norms", "gradients"]),
        (lambda run: change_id(run, "tokens", 2), 0, 1, ["batches"]),
        (lambda run: run.optimizer["groups"][0].update(weight_decay=0.0), 0, 1, ["hyper-parameters"]),
        (lambda run: run.rows[1].update(learning_rate=5e-3), 0, 1, ["hyper-parameters"]),
        (lambda run: run.rows[0].update(clip_coefficient=0.5), 0, 1, ["clipping"]),
    ],
    ids=["forward pass", "gradient before it", "data", "weight decay", "learning rate", "clipping"],
)
def test_a_fault_that_no_expert_can_make_stays_one_beside_a_near_tie(
    compared: Compared, candidate: Synthetic, fault: Callable[[Synthetic], object], step: int, tokens: int, first: list[str]
) -> None:
    moved(candidate, step, tokens)
    fault(candidate)
    candidate.train()
    comparison = compared(candidate, against=CHOICES)
    assert comparison.verdict is Verdict.DIVERGED
    assert comparison.first.name in first


BIAS = f"{BUFFER}decoder.layers.0.mlp.router.expert_bias"


def with_state(run: Synthetic, step: int, name: str, value: str) -> None:
    """A count or buffer at the start of each step, another value from a step on."""
    for number, scalars in enumerate(run.rows):
        scalars["state"] = {name: value if number >= step else "0000000000000000"}


@pytest.mark.parametrize(("name", "verdict"), [(BIAS, Verdict.INCONCLUSIVE), (f"{BUFFER}other", Verdict.DIVERGED)])
def test_a_bias_of_experts_may_follow_from_near_ties_and_no_other_buffer(
    compared: Compared, candidate: Synthetic, name: str, verdict: Verdict
) -> None:
    reference = deepcopy(CHOICES)
    moved(candidate, 0, FEW)
    for run, step in ((reference, 9), (candidate, 1)):
        with_state(run, step, name, "1111111111111111")
    comparison = compared(candidate, against=reference)
    assert stage(comparison, "training state").status is Status.DIFFERENT
    assert comparison.verdict is verdict


def test_what_differs_before_near_ties_is_blamed_and_not_the_state_behind_them(compared: Compared, candidate: Synthetic) -> None:
    reference = deepcopy(CHOICES)
    wrong_gradients(candidate, 0)
    moved(candidate, 1, FEW)
    for run, step in ((reference, 9), (candidate, 2)):
        with_state(run, step, f"{BUFFER}other", "1111111111111111")
    comparison = compared(candidate, against=reference)
    assert comparison.verdict is Verdict.DIVERGED
    assert comparison.first.name in ("local norms", "gradients")


def test_another_coefficient_stays_a_fault_beside_a_near_tie(compared: Compared, candidate: Synthetic) -> None:
    """Ten times the term does not follow from one token of twenty."""
    reference = deepcopy(CHOICES)
    moved(candidate, 0, 1)
    for run, term in ((reference, 0.002), (candidate, 0.02)):
        for scalars in run.rows:
            scalars["terms"] = {AUXILIARY: term}  # type: ignore[assignment]
    assert compared(candidate, against=reference).verdict is Verdict.DIVERGED


def test_counts_are_looked_at_where_choices_are_of_other_steps(compared: Compared) -> None:
    """An honest near tie of step 0, which the counts of step 0 show; choices were asked for at step 2 alone."""
    reference, candidate = (asking(routed(), routing="2") for _ in range(2))
    counted_otherwise(candidate)
    off(candidate, 0, slice(SEQUENCE - 1, None), rows=slice(1))
    wrong_gradients(candidate, 0)
    assert compared(candidate, against=reference).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("lacks", ["all layers", "one layer", "an expert of each token"])
def test_a_run_that_lacks_choices_that_it_was_asked_for_is_not_aligned(compared: Compared, candidate: Synthetic, lacks: str) -> None:
    for step, layers in candidate.routing.items():
        candidate.routing[step] = {
            "all layers": {},
            "one layer": {ROUTERS[0]: layers[ROUTERS[0]]},
            "an expert of each token": {name: np.ascontiguousarray(experts[:, :, :1]) for name, experts in layers.items()},
        }[lacks]
    assert compared(candidate, against=CHOICES).verdict is not Verdict.ALIGNED
