"""What must not pass as aligned: numbers that are not finite, what a record lacks, and what hides in free-running steps."""

import itertools
import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from align_hooks import open_run
from align_hooks.comparison.finding import Metric, at_step, when
from align_hooks.comparison.settings.recorded import FAMILY
from align_hooks.comparison.stage_result import Reason, Status
from align_hooks.comparison.verdict import Verdict
from align_hooks.errors import RecordError
from align_hooks.messages import Argument, Side, message, rendered
from align_hooks.quantities.weights import NEAREST, NO_FAMILY
from align_hooks.report.comparison import to_change
from chosen import every
from comparison.conftest import HONEST, Compared, asking, scale, scale_row, stage
from synthetic import HONEST_SKETCHED, NAMES, STEPS, Synthetic, row, scalars_only
from worded import arguments, ids, result

Q = NAMES[1]

# ---- NaN

NAN: dict[str, Callable[[Synthetic], Any]] = {
    "first loss": lambda run: run.rows[0].update(loss=math.nan),
    "first objective": lambda run: run.rows[0].update(objective_loss=math.inf),
    "later loss": lambda run: run.rows[2].update(loss=math.nan),
    "later objective": lambda run: run.rows[1].update(objective_loss=-math.inf),
    "gradient norm": lambda run: run.rows[1].update(grad_norm=math.nan),
    "clip coefficient": lambda run: run.rows[1].update(clip_coefficient=math.nan),
    "learning rate": lambda run: run.rows[1].update(learning_rate=math.nan),
    "rate of a group": lambda run: run.rows[1].update(learning_rate=[1e-3, math.nan]),
    "initial weights": lambda run: run.weights[0][Q].__setitem__((1, 1), np.nan),
    "later weights": lambda run: run.weights[2][Q].__setitem__((1, 1), np.inf),
    "last weights": lambda run: run.weights[STEPS][Q].__setitem__((1, 1), np.nan),
    "first gradient": lambda run: run.gradients[0][Q].__setitem__((1, 1), np.nan),
    "later gradient": lambda run: run.gradients[2][Q].__setitem__((1, 1), -np.inf),
    "first norm": lambda run: run.norms[0].update({Q: math.nan}),
    "later norm": lambda run: run.norms[2].update({Q: math.inf}),
}


@pytest.mark.parametrize(("what", "where"), every(4, itertools.product(NAN, ("reference", "candidate", "both"))))
def test_nan_or_infinity_anywhere_is_never_aligned(compared: Compared, candidate: Synthetic, what: str, where: str) -> None:
    each = deepcopy(HONEST)
    for run in {"reference": [each], "candidate": [candidate], "both": [each, candidate]}[where]:
        NAN[what](run)
    assert compared(candidate, against=each).verdict is not Verdict.ALIGNED


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize(
    "bend",
    [
        lambda run, value: run.rows[0].update(loss=value, objective_loss=value),
        lambda run, value: run.batches[0]["token_losses"].__setitem__((0, 0), value),
        lambda run, value: run.norms[0].update({Q: value}),
        lambda run, value: run.gradients[0][Q].__setitem__((0, 0), value),
    ],
    ids=["rows", "token losses", "norms", "gradients"],
)
def test_a_reference_that_is_not_finite_is_not_comparable(compared: Compared, candidate: Synthetic, bend: Any, value: float) -> None:
    reference = deepcopy(HONEST)
    bend(reference, value)
    outcome = compared(candidate, against=reference)
    assert outcome.verdict is Verdict.NOT_COMPARABLE
    assert "stage.reference_not_finite" in ids(outcome.first.summary)


# ---- nothing compared is never aligned


NOTHING = (None, None, None)


@pytest.mark.parametrize(
    ("losses", "against"), [(NOTHING, (9.0, 8.9, 8.8)), (NOTHING, NOTHING), ((), ())], ids=["of one", "of either", "no steps"]
)
def test_runs_without_a_number_in_common_are_never_aligned(compared: Compared, losses: Any, against: Any) -> None:
    assert compared(scalars_only(losses), against=scalars_only(against)).verdict is not Verdict.ALIGNED


def test_later_losses_that_one_run_lacks_are_not_called_the_same(compared: Compared) -> None:
    assert stage(compared(scalars_only((9.0, None, None)), against=scalars_only()), "later losses").status is not Status.SAME


@pytest.mark.parametrize(("step", "missing"), [(0, [Q]), (1, [Q]), (0, NAMES)], ids=["first", "later", "all"])
@pytest.mark.parametrize("kind", ["gradients", "weights", "norms"])
def test_a_tensor_that_is_missing_in_one_file_is_refused(
    compared: Compared, candidate: Synthetic, kind: str, step: int, missing: list[str]
) -> None:
    for name in missing:
        del getattr(candidate, kind)[step][name]
    with pytest.raises(RecordError, match=f"lacks {missing[0]}"):
        compared(candidate)


@pytest.mark.parametrize(
    ("steps", "sides"),
    [([0], 1), ([1], 1), ([2], 1), (range(STEPS + 1), 1), (range(STEPS + 1), 2)],
    ids=["step 0", "step 1", "step 2", "all", "all of both"],
)
@pytest.mark.parametrize("kind", ["batches", "gradients", "weights", "norms"])
def test_what_was_asked_for_and_is_not_there_is_never_aligned(
    compared: Compared, candidate: Synthetic, kind: str, steps: Iterable[int], sides: int
) -> None:
    reference = deepcopy(HONEST)
    for run in (candidate, reference)[:sides]:
        for step in steps:
            getattr(run, kind).pop(step, None)
    assert compared(candidate, against=reference).verdict is not Verdict.ALIGNED


def test_stages_that_nobody_asked_for_are_listed_as_not_compared(compared: Compared) -> None:
    outcome = compared(scalars_only(), against=scalars_only())
    assert outcome.verdict is Verdict.ALIGNED
    missing = ["self-check", "batches", "initial weights", "token losses", "local norms", "gradients"]
    missing += ["weights after an update", "first updates", "curve", "free-running steps"]
    assert [each.name for each in outcome.stages if each.status is Status.NOT_COMPARED] == missing


def test_a_kind_that_only_one_was_asked_for_is_not_compared(compared: Compared, candidate: Synthetic) -> None:
    outcome = compared(asking(candidate, gradients="none"))
    assert outcome.verdict is Verdict.ALIGNED
    assert stage(outcome, "gradients") == result("gradients", Status.NOT_COMPARED, message("gaps.one_recorded", side=Side.REFERENCE))


# ---- exact and free steps


def at_rest() -> Synthetic:
    """The weights-not-updated experiment: every rate is 0 and every weight set the first."""
    run = Synthetic()
    for each in run.rows:
        each["learning_rate"] = 0.0
    run.train()
    return run


@pytest.mark.parametrize("equal", ["a rate of 0", "recorded weights"])
def test_a_step_on_equal_weights_has_tight_limits(compared: Compared, candidate: Synthetic, equal: str) -> None:
    reference = HONEST
    if equal == "a rate of 0":
        reference, candidate = (asking(at_rest(), weights="none") for _ in range(2))
    else:
        candidate.weights[2], candidate.gradients[2] = deepcopy(HONEST.weights[2]), deepcopy(HONEST.gradients[2])
    scale(candidate.gradients[2], Q, 1.0001)
    outcome = compared(candidate, against=reference)
    assert (outcome.first.name, outcome.first.findings[0].what) == ("gradients", at_step(Q, 2))


@pytest.mark.parametrize("recorded", ["all", "0-2"])
def test_weights_that_move_at_a_rate_of_0_on_one_side_are_never_aligned(compared: Compared, recorded: str) -> None:
    reference, candidate = (asking(at_rest(), weights=recorded) for _ in range(2))
    for step in (1, 2, 3):
        scale(candidate.weights[step], Q, 1.5)
    assert compared(candidate, against=reference).verdict is not Verdict.ALIGNED


def test_runs_that_start_at_different_steps_have_no_exact_step(compared: Compared) -> None:
    reference, candidate = (asking(Synthetic(), weights="none", optimizer_state="none") for _ in range(2))
    del candidate.rows[0]
    assert stage(compared(candidate, against=reference), "gradients").summary == message("same_weights.no_exact_step")


def test_a_resumed_pair_is_judged_from_its_first_step(compared: Compared) -> None:
    reference, candidate = scalars_only(), scalars_only()
    for run in (reference, candidate):
        run.rows = [row(step) for step in (100, 101)]
    scale_row(candidate, 0, "loss", 1.1)
    outcome = compared(candidate, against=reference)
    assert outcome.first.title == message("stage.first_loss", step=100)
    assert arguments("step.of", outcome.first.summary)["step"] == 100


def test_norms_that_rounding_makes_do_not_part_two_runs(compared: Compared, candidate: Synthetic) -> None:
    each = deepcopy(HONEST)
    each.norms[0][Q], candidate.norms[0][Q] = (1e-10) ** 2, (3e-10) ** 2
    assert stage(compared(candidate, against=each), "local norms").status is Status.SAME


def test_comparing_says_what_it_reads(compared: Compared, candidate: Synthetic) -> None:
    """And how much of how much is done, where that is known."""
    expected: list[tuple[Argument, int, int]] = []
    compared(candidate, progress=lambda message, done=0, total=0: expected.append((message, done, total)))
    assert expected[0][0] == message("stage.match")
    of_step = message("distances.of_step", what=Metric.GRADIENTS, step=when(0))
    assert (message("distances.tensor", what=of_step, name=Q), NAMES.index(Q), len(NAMES)) in expected
    assert all(done < total or not total for _, done, total in expected)


def test_comparing_changes_neither_run(compared: Compared, reference: Path, candidate: Synthetic, tmp_path: Path) -> None:
    def changes() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for run in (reference, changed) for path in run.rglob("*")}

    changed = candidate.write(tmp_path / "other")
    before = changes()
    compared(changed)
    assert changes() == before


# ---- what hides


def test_model_settings_that_differ_are_never_aligned(compared: Compared, candidate: Synthetic) -> None:
    reference = deepcopy(HONEST)
    reference.model["rope_theta"], candidate.model["rope_theta"] = 10000.0, 10100.0
    outcome = compared(candidate, against=reference)
    assert (outcome.verdict, [finding.what for finding in outcome.first.findings]) == (Verdict.INCONCLUSIVE, ["rope_theta"])


STRANGER = {NO_FAMILY: ["activation is odd"], NEAREST: "Llama"}
"""Of a model that no family knows, of the same sizes."""


@pytest.mark.parametrize("side", list(Side))
def test_a_model_that_one_side_alone_was_not_recognised_as_is_told_with_its_reason(
    compared: Compared, candidate: Synthetic, side: Side
) -> None:
    """Nothing that only the other's family holds is told as a setting that differs."""
    reference = deepcopy(HONEST)
    (candidate if side is Side.CANDIDATE else reference).model = STRANGER
    outcome = compared(candidate, against=reference)
    assert (outcome.verdict, [finding.name for finding in outcome.settings]) == (Verdict.INCONCLUSIVE, [FAMILY])
    assert arguments("model_settings.not_recognised", outcome.headline)["side"] is side
    told = arguments("family.not_recognised", outcome.headline)
    assert (told["family"], rendered(told["why"])) == ("Llama", "activation is odd")
    assert arguments("next.make_of_the_family", outcome.next)["stranger"] is side


def test_where_such_a_pair_parts_the_reason_is_suspected_and_no_change_of_a_family_is_told(
    compared: Compared, candidate: Synthetic
) -> None:
    candidate.model = STRANGER
    for arrays, scalars in zip(candidate.batches.values(), candidate.rows, strict=True):
        arrays["token_losses"] *= np.float32(1.01)
        scalars.update(loss=1.01 * scalars["loss"], objective_loss=1.01 * scalars["objective_loss"])
    outcome = compared(candidate)
    (suspect, *_) = outcome.blame.suspects
    assert (suspect.name, arguments("blame.family", suspect.what)["side"]) == (FAMILY, Side.CANDIDATE)
    assert to_change(outcome) == []


def test_two_models_of_no_family_are_compared_by_their_numbers(compared: Compared, candidate: Synthetic) -> None:
    candidate.model = STRANGER
    assert compared(candidate, against=Synthetic(model=STRANGER)).verdict is Verdict.ALIGNED


@pytest.mark.parametrize(
    ("bend", "verdict"),
    [
        (lambda run: run.model.update(max_position_embeddings=4096), Verdict.ALIGNED),
        (lambda run: run.optimizer.update(type="SGD"), Verdict.DIVERGED),
        (lambda run: [loss.update(loss=None, objective_loss=None) for loss in run.rows], Verdict.NOT_COMPARABLE),
    ],
    ids=["how long sequences may be", "another kind of optimizer", "losses of one side only"],
)
def test_what_hides_has_its_verdict(compared: Compared, candidate: Synthetic, bend: Any, verdict: Verdict) -> None:
    bend(candidate)
    assert compared(candidate).verdict is verdict


def test_micro_batches_of_unequal_masks_are_not_comparable(compared: Compared) -> None:
    reference, candidate = deepcopy(HONEST), deepcopy(HONEST)
    for run in (reference, candidate):
        run.batches[0]["loss_mask"][0] = 0
        run.rows[0]["valid_tokens"] = int(run.batches[0]["loss_mask"].sum())
    assert compared(candidate, against=reference).verdict is Verdict.ALIGNED
    candidate.micro_batches = [2, 2]
    outcome = compared(candidate, against=reference)
    assert (outcome.verdict, outcome.first.reason) == (Verdict.NOT_COMPARABLE, Reason.LOSS_NORMALISATION)


def test_steps_that_both_skipped_are_left_out_and_leave_the_weights(compared: Compared) -> None:
    reference = deepcopy(HONEST)
    reference.rows[0] |= {"skipped": True, "grad_norm": None, "clip_coefficient": None}
    reference.gradients[0][Q][:], reference.norms[0][Q] = np.inf, math.inf
    reference.weights[1] = deepcopy(reference.weights[0])
    candidate = deepcopy(reference)
    assert compared(candidate, against=reference).verdict is Verdict.ALIGNED
    scale(candidate.gradients[1], Q, 1.0001)  # beyond an exact step's limit, and well within a free one's
    assert compared(candidate, against=reference).verdict is Verdict.DIVERGED


def curve(*shifts: float) -> Synthetic:
    """Losses alone, those after the first moved by ``shifts``, relative."""
    return scalars_only([9.0, *(9.0 * (1 + shift) for shift in shifts)])


PLAIN = curve(*[0.0] * 19)


def test_a_bias_that_no_single_step_shows_is_seen_in_the_curve(compared: Compared) -> None:
    to_and_fro = stage(compared(curve(*[1.8e-6, -1.8e-6] * 9, 0.0), against=PLAIN), "curve")
    assert (to_and_fro.status, to_and_fro.summary) == (Status.SAME, message("curve.compared", count=20, above=9))
    aside = compared(curve(*[1.8e-6] * 19), against=PLAIN)
    assert stage(aside, "later losses").status is Status.SAME
    assert (aside.verdict, aside.first.name) == (Verdict.INCONCLUSIVE, "curve")


@pytest.mark.parametrize(("late", "place"), [(10, "curve"), (0, "next loss")])
def test_a_loss_that_parts_late_is_blamed_on_the_curve(compared: Compared, late: int, place: str) -> None:
    assert compared(curve(*[0.0] * late, *[0.1] * (19 - late)), against=PLAIN).blame.place == place


@pytest.mark.parametrize(("layers", "status"), [(2, Status.DIFFERENT), (32, Status.SAME)])
def test_limits_follow_the_depth(compared: Compared, layers: int, status: Status) -> None:
    """Twice the default of two layers: within the limit of 32."""
    reference, candidate = (asking(run, local_norms="none") for run in (deepcopy(HONEST), HONEST.drifted()))
    for run in (reference, candidate):
        run.norms, run.model = {}, run.model | {"num_hidden_layers": layers}
    scale(candidate.gradients[0], Q, 1 + 1.9e-5)
    assert stage(compared(candidate, against=reference), "gradients").status is status


@pytest.mark.parametrize("at", [1, 2])
def test_an_update_is_judged_by_what_it_changed(compared: Compared, at: int) -> None:
    """A tensor that an update left alone, with no tensor stored: a thousandth of the weight, all of the update."""
    candidate = HONEST_SKETCHED.drifted()
    candidate.weights[at][Q] = candidate.weights[at - 1][Q].copy()
    outcome = compared(candidate, against=HONEST_SKETCHED)
    assert (outcome.verdict, outcome.first.name) == (Verdict.DIVERGED, "first updates")
    assert (outcome.blame.place, outcome.blame.suspects[0].what) == ("optimizer", at_step(Q, at - 1))


def test_a_factor_of_every_first_update_is_told(compared: Compared) -> None:
    reference, candidate = deepcopy(HONEST_SKETCHED), HONEST_SKETCHED.drifted()
    for run in (reference, candidate):
        asking(run, local_norms="0", sketches="0-1")
    for name, weight in reference.weights[0].items():
        candidate.weights[1][name] = weight + 2 * (reference.weights[1][name] - weight)
    outcome = compared(candidate, against=reference)
    scaled = stage(outcome, "first updates").common
    assert arguments("first_updates.every_update_scaled", scaled)["factor"] == pytest.approx(2, rel=1e-3)
    assert (outcome.blame.place, outcome.blame.suspects[0].what) == ("optimizer", scaled)


def test_the_curve_follows_measured_noise(compared: Compared, tmp_path: Path) -> None:
    repeat, aside = (curve(*[shift] * 19) for shift in (2e-6, 3e-6))
    assert compared(aside, against=PLAIN).verdict is not Verdict.ALIGNED
    assert stage(compared(aside, against=PLAIN, noise=[open_run(repeat.write(tmp_path / "noise"))]), "curve").status is Status.SAME


def test_losses_that_are_infinite_both_ways_make_no_curve(compared: Compared) -> None:
    wild = scalars_only([9.0, math.inf, -math.inf, *[9.0] * 10])
    assert stage(compared(wild, against=curve(*[0.0] * 12)), "curve").status is Status.NOT_COMPARED
