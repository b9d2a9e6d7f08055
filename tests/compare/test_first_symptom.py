"""What shows first in training is blamed, whatever else differs; what acts later is said to, and advice names all of it once."""

from __future__ import annotations

import math

import pytest

from align_hooks.compare.diagnosis.symptom import Phase, first_symptom, moment
from align_hooks.compare.verdict import Finding, Quantity, StageResult, Status, Verdict, at_step
from align_hooks.messages import Side, all_of, message, terms
from compare.conftest import Compared
from synthetic import STEPS, Synthetic, row
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
    found = first_symptom(stages, 0)
    assert (found.name if found else None) == first


def test_weights_are_made_by_the_update_before() -> None:
    assert moment(different("free-running steps", 3, "weights"), 0) == (2.0, Phase.UPDATE)
    assert moment(different("initial weights", 3, "weights"), 3) == (3.0, Phase.START)
    assert moment(different("curve"), 0)[0] == math.inf


def test_a_schedule_is_not_blamed_for_a_forward_pass_that_was_wrong_before(compared: Compared, candidate: Synthetic) -> None:
    candidate.model["rope_theta"] = 10100.0
    candidate.batches[0]["token_losses"] *= 1.01
    candidate.rows[2]["learning_rate"] *= 0.9
    found = compared(candidate)
    assert found.first is not None
    assert found.blame is not None
    assert (found.first.name, found.blame.place, found.blame.suspects[0].what) == ("token losses", "forward", "rope_theta")
    assert found.blame.likely[-1] == message("blame.acts_later", names=terms([at_step(Quantity.LEARNING_RATE, 2)]))
    assert arguments("next.set_alike", found.next)["setting"] == all_of(terms(["rope_theta"]), Quantity.LEARNING_RATE)


def test_a_schedule_alone_is_blamed(compared: Compared, candidate: Synthetic) -> None:
    candidate.rows[2]["learning_rate"] *= 0.9
    found = compared(candidate)
    assert found.blame is not None
    assert (found.verdict, found.blame.place) == (Verdict.DIVERGED, "configuration")
    assert arguments("next.set_alike", found.next)["setting"] is Quantity.LEARNING_RATE


def test_what_a_resumed_run_starts_from_is_compared(compared: Compared) -> None:
    whole = Synthetic()
    resumed = Synthetic(
        rows=[row(step) for step in range(1, STEPS)],
        weights={step: whole.weights[step] for step in range(1, STEPS + 1)},
        gradients={step: whole.gradients[step] for step in range(1, STEPS)},
        moments={step: whole.moments[step] for step in range(1, STEPS + 1)},
    )
    assert compared(resumed).verdict is Verdict.ALIGNED
    resumed.moments[1] = {moment: {name: 0 * one for name, one in tensors.items()} for moment, tensors in whole.moments[1].items()}
    found = compared(resumed)
    assert found.first is not None
    assert found.blame is not None
    assert (found.first.name, found.blame.place) == ("initial optimizer state", "state")
    assert found.blame.suspects[0].what == message("optimizer_state.not_restored", side=Side.CANDIDATE)


# ---- what an attack found


def curve_apart(first: int, peak: int, **changes: float) -> Synthetic:
    """Forty steps of nothing but rows, whose losses part at ``first`` and are furthest apart at ``peak``."""
    rows = [row(step, loss=9.0, objective_loss=9.0) for step in range(40)]
    for step in range(first, 40):
        rows[step]["loss"] *= 1 + 1e-2 / (1 + abs(step - peak))
    return Synthetic(settings={}, rows=rows, batches={}, weights={}, gradients={}, norms={})


def test_when_a_difference_begins_is_told_by_its_first_step_and_not_by_its_worst(compared: Compared) -> None:
    other = curve_apart(3, 25)
    for one in other.rows[10:]:
        one["learning_rate"] *= 1.01
    found = compared(other, against=curve_apart(40, 0))
    assert found.first is not None
    assert found.first.name == "later losses"
    assert found.first.findings[-1].step == 3


def test_a_batch_that_differs_may_have_differed_since_the_last_that_agreed(compared: Compared, candidate: Synthetic) -> None:
    reference = Synthetic()
    for run in (reference, candidate):
        run.settings |= {"batches": "0,2"}
        del run.batches[1]
    candidate.batches[2]["tokens"][0, 0] += 1
    candidate.rows[1]["loss"] *= 1.01
    found = compared(candidate, against=reference)
    assert found.blame is not None
    assert found.blame.place == "data"


def drawing_otherwise() -> tuple[Synthetic, Synthetic]:
    """Two runs that agree, and draw from generators in other states at every step."""
    one, other = (Synthetic(rows=[row(step) | {"random": [{"torch": f"{name}{step}"}]} for step in range(STEPS)]) for name in "ab")
    return one, other


def test_random_states_are_not_blamed_where_the_forward_pass_agrees(compared: Compared) -> None:
    one, other = drawing_otherwise()
    other.norms[0]["model.norm.weight"] *= 4
    found = compared(other, against=one)
    assert found.blame is not None
    assert found.blame.place == "reduced gradients"


def test_a_setting_that_differs_comes_before_random_states(compared: Compared) -> None:
    one, other = drawing_otherwise()
    other.model["rope_theta"] = 5e5
    other.batches[0]["token_losses"] *= 1.01
    found = compared(other, against=one)
    assert found.blame is not None
    assert (found.blame.place, found.blame.suspects[0].what) == ("forward", "rope_theta")


def test_a_loss_that_is_not_finite_later_hides_no_earlier_difference(compared: Compared) -> None:
    one, other = (Synthetic(rows=[row(step, learning_rate=0.0) for step in range(STEPS)]) for _ in range(2))
    other.batches[0]["token_losses"] *= 1.01
    for run in (one, other):
        run.batches[2]["token_losses"][0, 0] = math.nan
    found = compared(other, against=one)
    assert found.first is not None
    assert (found.verdict, found.first.name) == (Verdict.DIVERGED, "token losses")
