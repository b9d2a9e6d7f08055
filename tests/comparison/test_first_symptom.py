"""What shows first in training is blamed, whatever else differs; what acts later is said to, and advice names all of it once."""

import math

import pytest

from align_hooks.comparison.diagnosis.symptom import Phase, first_symptom, moment
from align_hooks.comparison.finding import Finding, Metric, at_step
from align_hooks.comparison.stage_result import StageResult, Status
from align_hooks.comparison.verdict import Verdict
from align_hooks.messages import Side, all_of, message, terms
from comparison.conftest import Compared, asking, change_id, scale_row, stage
from synthetic import STEPS, Synthetic, row, scalars_only
from worded import arguments, result


def different(name: str, step: int | None = None, quantity: str = "") -> StageResult:
    return result(name, Status.DIFFERENT, "", (Finding("what", error=1.0, limit=0.1, step=step, quantity=quantity),))


SAME = result("match", Status.SAME, "")
NOT_COMPARABLE = result("batches", Status.NOT_COMPARABLE, "")


@pytest.mark.parametrize(
    ("stages", "first"),
    [
        ([SAME], None),
        ([different("hyper-parameters", 4), different("token losses", 0)], "token losses"),
        ([different("hyper-parameters", 0), different("later losses", 1)], "hyper-parameters"),
        ([different("hyper-parameters"), different("gradients", 0)], "gradients"),
        ([different("batches", 1), different("initial weights", 0)], "initial weights"),
        ([different("batches", 1), different("token losses", 1)], "batches"),
        ([different("self-check", 2), different("token losses", 0)], "self-check"),
        ([different("later losses", 3), different("curve")], "later losses"),
        ([different("later losses", 3), different("free-running steps", 3, "weights")], "free-running steps"),
        ([different("weights after an update"), different("first updates", 0)], "weights after an update"),
        ([different("hyper-parameters", 2), different("weights after an update"), different("later losses", 3)], "hyper-parameters"),
        ([different("hyper-parameters", 2), different("weights after an update"), different("later losses", 1)], "weights after an update"),
        ([different("clipping", 1), different("weights after an update")], "clipping"),
        ([NOT_COMPARABLE, different("token losses", 0)], "batches"),
        ([different("hyper-parameters"), NOT_COMPARABLE, different("token losses", 0)], "hyper-parameters"),
    ],
)
def test_the_earliest_difference_is_first(stages: list[StageResult], first: str | None) -> None:
    outcome = first_symptom(stages, 0)
    assert (outcome.name if outcome else None) == first


def test_weights_are_made_by_the_update_before() -> None:
    assert moment(different("free-running steps", 3, "weights"), 0) == (2.0, Phase.UPDATE)
    assert moment(different("initial weights", 3, "weights"), 3) == (3.0, Phase.START)
    assert moment(different("curve"), 0)[0] == math.inf


def test_a_schedule_is_not_blamed_for_a_forward_pass_that_was_wrong_before(compared: Compared, candidate: Synthetic) -> None:
    candidate.model["rope_theta"] = 10100.0
    candidate.batches[0]["token_losses"] *= 1.01
    scale_row(candidate, 2, "learning_rate", 0.9)
    outcome = compared(candidate)
    assert (outcome.first.name, outcome.blame.place, outcome.blame.suspects[0].what) == ("token losses", "forward", "rope_theta")
    assert outcome.blame.likely[-1] == message("blame.acts_later", names=terms([at_step(Metric.LEARNING_RATE, 2)]))
    assert arguments("next.set_alike", outcome.next)["setting"] == all_of(terms(["rope_theta"]), Metric.LEARNING_RATE)


def test_a_schedule_alone_is_blamed(compared: Compared, candidate: Synthetic) -> None:
    scale_row(candidate, 2, "learning_rate", 0.9)
    outcome = compared(candidate)
    assert (outcome.verdict, outcome.blame.place) == (Verdict.DIVERGED, "configuration")
    assert arguments("next.set_alike", outcome.next)["setting"] is Metric.LEARNING_RATE


@pytest.mark.parametrize(("rates", "differ"), [([1e-3, 1e-4], False), ([1e-4, 1e-3], True)], ids=["the same", "exchanged"])
def test_rates_are_compared_group_by_group(compared: Compared, rates: list[float], differ: bool) -> None:
    reference, candidate = Synthetic(), Synthetic()
    reference.rows[2]["learning_rate"], candidate.rows[2]["learning_rate"] = [1e-3, 1e-4], rates
    found = [each for each in stage(compared(candidate, against=reference), "hyper-parameters").findings if each.name == "learning rate"]
    assert [each.step for each in found] == ([2] if differ else [])


def test_what_a_resumed_run_starts_from_is_compared(compared: Compared) -> None:
    whole = Synthetic()
    resumed = Synthetic(
        rows=[row(step) for step in range(1, STEPS)],
        weights={step: whole.weights[step] for step in range(1, STEPS + 1)},
        gradients={step: whole.gradients[step] for step in range(1, STEPS)},
        moments={step: whole.moments[step] for step in range(1, STEPS + 1)},
    )
    assert compared(resumed).verdict is Verdict.ALIGNED
    resumed.moments[1] = {moment: {name: 0 * each for name, each in tensors.items()} for moment, tensors in whole.moments[1].items()}
    outcome = compared(resumed)
    assert (outcome.first.name, outcome.blame.place) == ("initial optimizer state", "state")
    assert outcome.blame.suspects[0].what == message("optimizer_state.not_restored", side=Side.CANDIDATE)


# ---- what an attack found


def curve_apart(first: int, peak: int) -> Synthetic:
    """Forty steps of nothing but rows, whose losses part at ``first`` and are furthest apart at ``peak``."""
    return scalars_only([9.0 * (1 + (step >= first) * 1e-2 / (1 + abs(step - peak))) for step in range(40)])


def test_when_a_difference_begins_is_told_by_its_first_step_and_not_by_its_worst(compared: Compared) -> None:
    candidate = curve_apart(3, 25)
    for step in range(10, 40):
        scale_row(candidate, step, "learning_rate", 1.01)
    outcome = compared(candidate, against=curve_apart(40, 0))
    assert (outcome.first.name, outcome.first.findings[-1].step) == ("later losses", 3)


def test_a_batch_that_differs_may_have_differed_since_the_last_that_agreed(compared: Compared, candidate: Synthetic) -> None:
    reference = Synthetic()
    for run in (reference, candidate):
        del asking(run, batches="0,2").batches[1]
    change_id(candidate, "tokens", 2)
    scale_row(candidate, 1, "loss", 1.01)
    assert compared(candidate, against=reference).blame.place == "data"


def test_random_states_are_not_blamed_where_the_forward_pass_agrees_or_a_setting_differs(compared: Compared) -> None:
    """Two runs that agree, and draw from generators in other states at every step."""
    states = ([row(step) | {"random": [{"torch": f"{name}{step}"}]} for step in range(STEPS)] for name in "ab")
    reference, candidate = (Synthetic(rows=rows) for rows in states)
    candidate.norms[0]["model.norm.weight"] *= 4
    assert compared(candidate, against=reference).blame.place == "reduced gradients"
    candidate.model["rope_theta"] = 5e5
    candidate.batches[0]["token_losses"] *= 1.01
    blame = compared(candidate, against=reference).blame
    assert (blame.place, blame.suspects[0].what) == ("forward", "rope_theta")


def test_a_loss_that_is_not_finite_later_hides_no_earlier_difference(compared: Compared) -> None:
    reference, candidate = (Synthetic(rows=[row(step, learning_rate=0.0) for step in range(STEPS)]) for _ in range(2))
    candidate.batches[0]["token_losses"] *= 1.01
    for run in (reference, candidate):
        run.batches[2]["token_losses"][0, 0] = math.nan
    outcome = compared(candidate, against=reference)
    assert (outcome.verdict, outcome.first.name) == (Verdict.DIVERGED, "token losses")
