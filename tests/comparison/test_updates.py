"""The update against its formula: each term of AdamW planted in what a run did and not in what it recorded."""

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from msgspec import structs
from numpy.typing import NDArray

from align_hooks.comparison.finding import Finding, Metric, Term, Unit
from align_hooks.comparison.optimizer import formula, updates
from align_hooks.comparison.optimizer.formula import FITS, Evidence, HyperParameters, RecordedUpdate
from align_hooks.comparison.stage_result import FaultLocation, StageResult, Status
from align_hooks.comparison.verdict import ComparisonResult
from align_hooks.messages import Argument, Message, Side, message
from align_hooks.record.format.schema import BESIDE_FORMULA, CLIPPED_APART
from chosen import every, slow_but
from comparison.conftest import Compared, asking, scale
from comparison.conftest import stage as stage_of
from synthetic import NAMES, SHAPES, STEPS, Synthetic, adamw, grown, tensors
from synthetic import row as synthetic_row
from worded import messages

NORM = "model.norm.weight"
Bend = Callable[[Synthetic], Synthetic]
LARGE = {name: tuple(8 * size for size in shape) for name, shape in SHAPES.items()}


def settings(decays: Sequence[float] = (0.1, 0.0), **changes: Any) -> Callable[[Synthetic], None]:
    """Train with other settings than those on record: a weight decay for each of the two groups (matrices, norms), others in both."""

    def train(run: Synthetic) -> None:
        used = deepcopy(run.optimizer)
        used["decoupled_weight_decay"] = changes.get("decoupled", True)
        for group, decay in zip(used["groups"], decays, strict=True):
            group |= {"weight_decay": decay} | {key: value for key, value in changes.items() if key in group}
        adamw(run, used, rate=changes.get("rate", 1.0), clip=changes.get("clip"))

    return train


NOT_DECAYED, DECAYED = "after_update.not_decayed", "after_update.decayed"
MADE, NOT_MADE = "after_update.correction_made", "after_update.correction_not_made"
APART, ADDED = "after_update.decoupled", "after_update.not_decoupled"
TERMS: dict[str, tuple[Callable[[Synthetic], None], Term, Any, Any]] = {
    "beta2": (settings(betas=[0.9, 0.949]), Term.BETAS, [0.9, 0.95], [0.9, 0.949]),
    "beta1": (settings(betas=[0.899, 0.95]), Term.BETAS, [0.9, 0.95], [0.899, 0.95]),
    "eps": (settings(eps=1e-6), Term.EPS, [1e-8], [1e-6]),
    "decay": (settings((0.11, 0.0)), Term.WEIGHT_DECAY, [0.1], [0.11]),
    "decay on norms": (settings((0.1, 0.1)), Term.DECAY_GROUPING, NOT_DECAYED, DECAYED),
    "decay on nothing": (settings((0.0, 0.0)), Term.DECAY_GROUPING, DECAYED, NOT_DECAYED),
    "learning rate": (settings(rate=1.001), Term.LEARNING_RATE, [0.001], [0.001001]),
    "clip": (settings(clip=0.9), Term.CLIP_COEFFICIENT, [1.0], [0.9]),
    "bias correction": (settings(bias_correction=False), Term.BIAS_CORRECTION, MADE, NOT_MADE),
    "decoupled": (settings(decoupled=False), Term.DECOUPLED_WEIGHT_DECAY, APART, ADDED),
}
"""How the run was trained, and the term, the value on record and the value used that must be named."""
GROUPED = {"decay on norms": (NORM, 1), "decay on nothing": ("lm_head.weight", 3)}
"""The first tensor that is grouped otherwise, and how many are."""
QUANTITIES = {Term.LEARNING_RATE: Metric.LEARNING_RATE, Term.CLIP_COEFFICIENT: Metric.CLIP_COEFFICIENT}
"""The others are hyper-parameters."""


def large() -> Synthetic:
    return Synthetic(
        shapes=LARGE,
        weights={0: tensors(100, LARGE)},
        gradients={step: {name: each * np.float32(1e-3) for name, each in tensors(200 + step, LARGE).items()} for step in range(STEPS)},
    )


@pytest.fixture(scope="module")
def honest() -> Synthetic:
    """Trained as recorded; gradients small enough for eps to show."""
    return large()


def stage(comparison: ComparisonResult) -> StageResult:
    return stage_of(comparison, "weights after an update")


def arguments(value: Any, id: str) -> list[dict[str, Any]]:
    """The arguments of every message with this id."""
    return [dict(part.arguments) for part in messages(value) if part.id == id]


FOLLOW = ("after_update.follow", "after_update.follow_but")


def following(found: StageResult, side: Side = Side.REFERENCE) -> list[int]:
    """How many updates of a side follow the formula, as the summary says; nothing where they do not."""
    return [each["count"] for id in FOLLOW for each in arguments(found.summary, id) if each["side"] is side]


def first_of(names: Any) -> tuple[str, int]:
    """The first of the tensors that a message names, and how many they are."""
    return (names.arguments["name"], names.arguments["count"] + 1) if isinstance(names, Message) else (names, 1)


def of_side(finding: Finding) -> Any:
    """Whose updates a finding is about."""
    (side,) = {part.arguments["side"] for part in messages(finding.what) if "side" in part.arguments}
    return side


def value(of: Any) -> list[float] | str:
    """The value of a term that one side of a finding has: its numbers, or the id of the word."""
    inner = of.arguments["value"]
    return (list(inner.arguments.values()) or inner.id) if isinstance(inner, Message) else [inner]


def unexplained(run: Synthetic) -> Synthetic:
    """A run whose weights grow by a thousandth with every update."""
    for step in range(1, STEPS + 1):
        run.weights[step] = {name: run.weights[0][name] * np.float32(1 + 1e-3 * step) for name in NAMES}
    return run


def changed(found: StageResult) -> dict[Term | None, Any]:
    """Term to the value that was found."""
    return {finding.term: value(finding.candidate) for finding in found.findings}


@pytest.mark.parametrize("state", slow_but(["all", "none"], "none"), ids=["state", "no state"])
@pytest.mark.parametrize("term", every(2, TERMS))
def test_a_term_that_is_not_as_recorded_is_named_with_the_value_used(compared: Compared, honest: Synthetic, term: str, state: str) -> None:
    train, named, recorded, used = TERMS[term]
    run = large()
    train(run)
    outcome = stage(compared(asking(run, optimizer_state=state), against=honest))
    assert outcome.status is Status.DIFFERENT
    assert changed(outcome) == {named: pytest.approx(used, rel=5e-4) if isinstance(used, list) else used}
    (finding,) = outcome.findings
    assert arguments(finding.reference, "after_update.on_record") != []
    assert value(finding.reference) == (pytest.approx(recorded) if isinstance(recorded, list) else recorded)
    assert finding.quantity is QUANTITIES.get(named, Metric.HYPER_PARAMETER)
    grouped = [first_of(each["names"]) for each in arguments(finding.what, "after_update.decay_grouping")]
    assert grouped == ([GROUPED[term]] if term in GROUPED else [])


GROUPING = message("after_update.decay_grouping", names=message("names.and_more", name="lm_head.weight", count=2))


@pytest.mark.parametrize(
    ("name", "term", "recorded", "fitted", "numbers"),
    [
        ("beta2", Term.BETAS, message("after_update.betas", beta1=0.9, beta2=0.95), "fitted_betas", {"beta1": 0.9, "beta2": 0.949}),
        ("decay on nothing", GROUPING, message("after_update.decayed"), "not_decayed", {}),
        ("clip", Term.CLIP_COEFFICIENT, message("after_update.clipped_to", norm=1.0), "clipped_to_fitted", {"norm": 0.9}),
    ],
)
def test_a_term_has_its_value_on_record_and_the_fitted_one(
    compared: Compared, honest: Synthetic, name: str, term: Argument, recorded: Message, fitted: str, numbers: dict[str, float]
) -> None:
    run = large()
    TERMS[name][0](run)
    (finding,) = stage(compared(run, against=honest)).findings
    assert finding.what == message("after_update.term", term=term, side=Side.CANDIDATE)
    assert finding.reference == message("after_update.on_record", value=recorded)
    used = finding.candidate.arguments["value"]
    assert (finding.candidate.id, used.id) == ("after_update.used", f"after_update.{fitted}")
    assert dict(used.arguments) == pytest.approx(numbers, rel=1e-6)


@pytest.mark.parametrize("rate", [1e-3, 1e-6])
@pytest.mark.parametrize("held", [float, np.float32])
@pytest.mark.parametrize("beta2", slow_but([0.95, 0.999], 0.999))
def test_a_kernel_that_holds_its_betas_in_fp32_follows_the_formula(compared: Compared, beta2: float, held: type, rate: float) -> None:
    run = large()
    for rated in (*run.rows, *run.optimizer["groups"]):
        rated["learning_rate"] = rate
    for group in run.optimizer["groups"]:
        group["betas"] = [0.9, beta2]
    run.train(held=held)
    outcome = stage(compared(run, against=run))
    assert following(outcome) == [3]
    assert [0.05 < each["rest"] < 0.45 for id in FOLLOW for each in arguments(outcome.summary, id)] == [True, True]


def test_tensors_that_are_never_updated_are_named_beside_what_else_is_wrong(compared: Compared, honest: Synthetic) -> None:
    run = large()
    settings(betas=[0.9, 0.949])(run)
    for step in range(1, STEPS + 1):
        run.weights[step][NORM] = run.weights[0][NORM]
    first, second = stage(compared(run, against=honest)).findings
    assert (first.name, first.quantity, first.term) == (NORM, Metric.UPDATES, None)
    assert arguments(first.candidate, "after_update.never_updated") != []
    assert (second.term, of_side(second)) == (Term.BETAS, Side.CANDIDATE)


def test_gradients_that_were_summed_and_not_averaged_are_named_as_a_scale(compared: Compared, honest: Synthetic) -> None:
    run = large()
    run.gradients = {step: {name: 8 * each for name, each in gradients.items()} for step, gradients in honest.gradients.items()}
    run.train()
    run.gradients = honest.gradients
    assert changed(stage(compared(run, against=honest))) == {Term.GRADIENT_SCALE: pytest.approx([8.0], rel=1e-3)}


def test_a_count_that_is_one_ahead_is_named(compared: Compared, honest: Synthetic) -> None:
    run = deepcopy(honest)
    adamw(run, run.optimizer, ahead=1)
    assert changed(stage(compared(run, against=honest))) == {Term.COUNT: [2]}


@pytest.mark.parametrize("recorded", ["reference unchecked", "reference wrong too"])
def test_a_term_that_explains_the_updates_is_named_whatever_the_other_run_does(compared: Compared, recorded: str) -> None:
    reference, candidate = large(), large()
    settings(betas=[0.9, 0.999])(candidate)
    if recorded == "reference unchecked":
        asking(reference, gradients="none")
    else:
        settings(eps=1e-6)(reference)
    outcome = stage(compared(candidate, against=reference))
    assert outcome.status is Status.DIFFERENT
    assert (outcome.findings[-1].term, of_side(outcome.findings[-1])) == (Term.BETAS, Side.CANDIDATE)
    assert value(outcome.findings[-1].candidate) == pytest.approx([0.9, 0.999], rel=5e-4)


def lacking_a_state(run: Synthetic) -> Synthetic:
    del run.moments[2]
    return run


@pytest.mark.parametrize(
    ("candidate", "reference", "status", "said"),
    [
        (unexplained, lambda run: asking(run, gradients="none"), Status.INCONCLUSIVE, None),
        (unexplained, unexplained, Status.NOT_COMPARED, "after_update.neither_follows"),
        (lambda run: asking(run, gradients="none"), lambda run: run, Status.NOT_COMPARED, None),
        (lacking_a_state, lambda run: run, Status.INCOMPLETE, None),
    ],
    ids=["nothing explains them beside nothing", "neither by the formula", "one follows alone", "one lacks a state that was asked for"],
)
def test_updates_of_which_one_run_or_the_formula_says_too_little(
    compared: Compared, candidate: Bend, reference: Bend, status: Status, said: str | None
) -> None:
    outcome = stage(compared(candidate(large()), against=reference(large())))
    assert outcome.status is status
    assert said is None or arguments(outcome.summary, said) != []


def test_the_last_updates_are_checked_too(compared: Compared) -> None:
    gradients = {step: tensors(step) for step in range(12)}
    reference = Synthetic(rows=[synthetic_row(step) for step in range(12)], batches={}, gradients=gradients)
    candidate = deepcopy(reference)
    candidate.weights[12] = {name: weight * np.float32(1 + 1e-5) for name, weight in candidate.weights[12].items()}
    outcome = stage(compared(candidate, against=reference))
    assert (outcome.status, following(outcome)) == (Status.DIFFERENT, [8])


def test_what_the_evidence_cannot_show_is_said(compared: Compared) -> None:
    run = asking(large(), optimizer_state="none")
    run.rows, run.gradients, run.weights = run.rows[:1], {0: run.gradients[0]}, {step: run.weights[step] for step in (0, 1)}
    outcome = stage(compared(run, against=run))
    assert [each["terms"].parts[:2] for each in arguments(outcome.summary, "after_update.follow_but")] == [(Term.BETA1, Term.BETA2)] * 2


def test_a_parameter_in_one_optimizer_only_is_a_finding(compared: Compared, honest: Synthetic) -> None:
    run = deepcopy(honest)
    run.optimizer["groups"][1]["parameters"] = []
    (outcome,) = (each for each in compared(run, against=honest).stages if each.name == "hyper-parameters")
    assert (outcome.status, outcome.findings[0].what) == (Status.DIFFERENT, message("hyper_parameters.in_one_only", names=NORM))


def test_a_reference_that_is_not_as_recorded_is_named_as_the_one(compared: Compared, honest: Synthetic) -> None:
    run = large()
    settings(eps=1e-6)(run)
    finding = stage(compared(honest, against=run)).findings[0]
    assert (finding.term, of_side(finding)) == (Term.EPS, Side.REFERENCE)


def test_without_a_recorded_state_clip_and_eps_cannot_be_told_apart_and_both_are_named(compared: Compared, honest: Synthetic) -> None:
    run = asking(large(), optimizer_state="none")
    settings(clip=0.9)(run)
    finding = stage(compared(run, against=honest)).findings[0]
    assert [each["others"].parts for each in arguments(finding.what, "after_update.term_or_alone")] == [(Term.EPS,)]


@pytest.mark.parametrize("state", slow_but(["all", "none"], "none"), ids=["state", "no state"])
def test_three_wrong_terms_are_named_together(compared: Compared, honest: Synthetic, state: str) -> None:
    run = asking(large(), optimizer_state=state)
    settings((0.11, 0.0), betas=[0.9, 0.949], rate=1.001)(run)
    expected = {Term.LEARNING_RATE: [0.001001], Term.BETAS: [0.9, 0.949], Term.WEIGHT_DECAY: [0.11]}
    found = changed(stage(compared(run, against=honest)))
    assert found == {term: pytest.approx(used, rel=1e-3) for term, used in expected.items()}


def test_one_parameter_among_many_is_named(compared: Compared, honest: Synthetic) -> None:
    run = large()
    for step in (2, 3):
        scale(run.weights[step], NORM, 1 + 2e-5)
    finding = stage(compared(run, against=honest)).findings[0]
    assert arguments(finding.what, "after_update.no_adamw_of") == [{"side": Side.CANDIDATE, "names": NORM}]
    assert (finding.name, finding.quantity, finding.unit, finding.limit) == (NORM, Metric.UPDATES, Unit.ROUNDINGS, FITS)
    assert finding.limit_ratio > 1


def test_decay_on_one_parameter_of_a_hundred_is_seen_at_a_rate_of_1e_5(compared: Compared) -> None:
    shapes = {f"model.layers.{number}.mlp.up_proj.weight": (8, 8) for number in range(99)} | {NORM: (8,)}
    reference = grown(shapes)
    for rated in (*reference.rows, *reference.optimizer["groups"]):
        rated["learning_rate"] = 1e-5
    reference.train()
    candidate = deepcopy(reference)
    settings((0.1, 0.1))(candidate)
    outcome = stage(compared(candidate, against=reference))
    assert changed(outcome) == {Term.DECAY_GROUPING: DECAYED}
    assert [named["names"] for named in arguments(outcome.findings[0].what, "after_update.decay_grouping")] == [NORM]


def test_a_resumed_run_is_checked_from_where_its_state_is_on_record(compared: Compared, honest: Synthetic) -> None:
    run = deepcopy(honest)
    for kind in (run.gradients, run.norms, run.batches, run.weights):
        del kind[0]
    run.rows = run.rows[1:]
    assert following(stage(compared(run, against=run))) == [2]
    summary = stage(compared(asking(deepcopy(run), optimizer_state="none"), against=run)).summary
    assert [each["side"] for each in arguments(summary, "after_update.not_checked")] == [Side.CANDIDATE]
    assert arguments(summary, "formula.no_whole_update") != []


@pytest.mark.parametrize("state", ["all", "none"], ids=["state", "no state"])
def test_an_update_that_both_skipped_is_none(compared: Compared, honest: Synthetic, state: str) -> None:
    run = asking(deepcopy(honest), optimizer_state=state)
    run.rows[1]["skipped"] = True
    run.train()
    assert following(stage(compared(run, against=run))) == [2]


def test_a_run_that_clips_where_no_clipping_is_on_record(compared: Compared, honest: Synthetic) -> None:
    reference, candidate = deepcopy(honest), large()
    settings(clip=0.9)(candidate)
    reference.optimizer["clip_grad"] = candidate.optimizer["clip_grad"] = None
    outcome = stage(compared(candidate, against=reference))
    assert changed(outcome) == {Term.CLIP_COEFFICIENT: pytest.approx([0.9], rel=5e-4)}
    assert value(outcome.findings[0].reference) == "after_update.not_clipped"


LIMIT = 1e-3
"""A norm to which all gradients are clipped."""


def clipped(run: Synthetic, *, apart: bool) -> Synthetic:
    """The run clipped by one norm, or by one of each of the optimizer's two groups, which nothing on record says."""
    recorded = run.gradients
    run.optimizer["clip_grad"] = LIMIT
    for step, row in enumerate(run.rows):
        row["grad_norm"] = norm_of(recorded[step].values())
        row["clip_coefficient"] = LIMIT / (row["grad_norm"] + 1e-6)
    run.gradients = deepcopy(recorded)
    for step, group in product(range(STEPS), run.optimizer["groups"] if apart else ()):
        names = [name for name in group["parameters"] if name in run.weights[0]]
        own = LIMIT / (norm_of(recorded[step][name] for name in names) + 1e-6) / run.rows[step]["clip_coefficient"]
        run.gradients[step] |= {name: recorded[step][name] * np.float32(own) for name in names}
    adamw(run, run.optimizer)
    run.gradients = recorded
    return run


def norm_of(arrays: Iterable[Any]) -> float:
    return float(np.sqrt(sum(np.square(array, dtype=np.float64).sum() for array in arrays)))


def test_groups_that_are_clipped_by_norms_of_their_own_are_told(compared: Compared) -> None:
    found = compared(clipped(large(), apart=True), against=clipped(large(), apart=False))
    assert (found.blame.place, found.blame.causes) == (FaultLocation.CLIPPING, ("clipped_apart",))
    (told,) = arguments(stage(found).findings[0].what, "after_update.clipped_apart")
    assert (told["side"], told["count"], first_of(told["names"])) == (Side.CANDIDATE, 2, (NORM, 1))


def test_groups_that_both_clip_by_their_own_norms_accuse_neither(compared: Compared) -> None:
    found = compared(clipped(large(), apart=True), against=clipped(large(), apart=True))
    assert stage(found).status is Status.SAME
    assert arguments(stage(found).summary, "after_update.follow_apart")


def test_groups_of_no_norm_of_their_own_are_not_told(compared: Compared) -> None:
    bent = clipped(large(), apart=True)
    bent.optimizer["clip_grad"] = 2 * LIMIT
    found = stage(compared(bent, against=clipped(large(), apart=False)))
    assert not arguments(found.findings[0].what, "after_update.clipped_apart")


@pytest.mark.parametrize("apart", [True, False])
def test_heads_that_are_detached_may_be_clipped_either_way(compared: Compared, apart: bool) -> None:
    run = clipped(large(), apart=apart)
    with_argument(CLIPPED_APART, run)
    assert stage(compared(run, against=run)).status is Status.SAME


def test_updates_of_detached_heads_that_follow_nothing_are_not_judged(compared: Compared) -> None:
    run = unexplained(large())
    with_argument(CLIPPED_APART, run)
    (unchecked,) = arguments(stage(compared(run, against=run)).summary, "after_update.neither_checked")
    assert unchecked["why"].id == f"formula.{CLIPPED_APART}"


def with_argument(name: str, run: Synthetic) -> None:
    """An argument of Megatron-LM's with which updates are of no formula."""
    run.facts["arguments"] = {name: "True"}


REASONS: dict[str, Callable[[Synthetic], Any]] = {
    "formula.not_adam": lambda run: run.optimizer.update(type="Muon"),
    "formula.settings_not_on_record": lambda run: [group.update(eps=None) for group in run.optimizer["groups"]],
    "formula.none_of_its_weights": lambda run: [group.update(parameters=[]) for group in run.optimizer["groups"]],
    "formula.groups_differ": lambda run: run.optimizer["groups"][1].update(betas=[0.8, 0.9]),
    "formula.not_by_parameter": lambda run: [row.update(learning_rate=[1e-3] * 7) for row in run.rows],
    **{f"formula.{name}": partial(with_argument, name) for name in BESIDE_FORMULA},
    "formula.weight_decay_incr_style": lambda run: run.facts.update(arguments={"weight_decay_incr_style": "linear"}),
    "formula.not_finite": lambda run: run.gradients[1][NORM].fill(np.nan),
}


@pytest.mark.parametrize("reason", every(2, REASONS))
def test_why_updates_cannot_be_checked_is_said(compared: Compared, reason: str) -> None:
    run = large()
    REASONS[reason](run)
    (unchecked,) = arguments(stage(compared(run, against=run)).summary, "after_update.neither_checked")
    assert unchecked["why"].id == reason
    (unchecked,) = arguments(stage(compared(large(), against=run)).summary, "after_update.not_checked")
    assert (unchecked["side"], unchecked["why"].id) == (Side.REFERENCE, reason)


def many(decay: NDArray[np.float64]) -> tuple[Evidence, HyperParameters]:
    """Three updates of tensors of 16 elements with these weight decays, where 0.1 is on record of each."""
    generator, size, count = np.random.default_rng(0), 16 * decay.size, decay.size
    used = HyperParameters(0.9, 0.95, 1e-8, decay)
    before = (generator.standard_normal(size), np.zeros(size), np.zeros(size))
    evidence = Evidence(tuple(map(str, range(count))), np.repeat(np.arange(count), 16), ())
    for step in range(3):
        gradient = generator.standard_normal(size)
        made = RecordedUpdate(step, step + 1, np.full(count, 1e-3), None, 1.0, before, gradient, before)
        ((_, _, after),) = formula.predictions(structs.replace(evidence, updates=(made,)), used)
        rounded = tuple(array.astype(np.float32).astype(np.float64) for array in after)
        evidence = structs.replace(evidence, updates=(*evidence.updates, structs.replace(made, after=rounded)))
        before = rounded
    return evidence, structs.replace(used, decay=np.full(count, 0.1))


@pytest.mark.parametrize("of_all", [True, False])
def test_the_work_of_a_fit_does_not_grow_with_the_tensors(monkeypatch: pytest.MonkeyPatch, of_all: bool) -> None:
    """Elements of all evaluations: those of fits are bounded, and each tensor is judged, by all of its elements, a few times."""
    work, predictions = [0], formula.predictions

    def counted(evidence: Evidence, settings: HyperParameters) -> Any:
        work[0] += evidence.tensor.size
        return predictions(evidence, settings)

    monkeypatch.setattr(formula, "predictions", counted)
    spent, few = {}, updates.FITTED // 16 // 2
    for count in (few, 8 * few):
        decay = np.full(count, 0.2 if of_all else 0.1)
        decay[[few // 2, count - 1]] = 0.2 if of_all else 0.0
        evidence, recorded = many(decay)
        work[0] = 0
        explanation = updates.explain(evidence, recorded)
        spent[count] = work[0]
        assert (explanation.left, explanation.fitted is None) == ((), False)
        np.testing.assert_allclose(explanation.fitted.decay, decay, rtol=1e-3)
    assert spent[8 * few] < 4 * spent[few], spent
