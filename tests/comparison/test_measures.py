"""The measures, the guide's standard, and what decides a verdict, each by itself."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import convert

from align_hooks.comparison.diagnosis.symptom import first_symptom
from align_hooks.comparison.finding import Finding
from align_hooks.comparison.findings import furthest, keep_worst, kept_indices, without_reference
from align_hooks.comparison.metrics.limits import DEFAULTS, limits_for
from align_hooks.comparison.metrics.measures import BLOCK, ratio, relative_difference
from align_hooks.comparison.settings.recorded import FAMILY, as_written, equal, hyper_parameters, model_settings, show
from align_hooks.comparison.stage_result import StageResult, Status
from align_hooks.comparison.stages.registry import LADDER
from align_hooks.comparison.verdict import Verdict, decide
from align_hooks.messages import message, terms
from align_hooks.quantities.weights import NEAREST, NO_FAMILY
from align_hooks.record.format.schema import OptimizerFacts
from synthetic import optimizer, relative_error
from worded import ids

numbers = st.floats(-1e15, 1e15)


@pytest.mark.parametrize("size", [1, 100, BLOCK, BLOCK + 3])
def test_relative_error_is_the_frobenius_norm_of_the_difference_over_the_references(size: int) -> None:
    random = np.random.default_rng(size)
    reference = random.standard_normal(size).astype(np.float32)
    candidate = (reference + 1e-3 * random.standard_normal(size)).astype(np.float32)
    exact = np.linalg.norm(candidate.astype(np.float64) - reference) / np.linalg.norm(reference.astype(np.float64))
    assert relative_error(reference, candidate) == pytest.approx(exact, rel=1e-12)


MATRIX = np.arange(12, dtype=np.float32).reshape(6, 2)


@pytest.mark.parametrize(
    ("reference", "candidate", "least", "most"),
    [
        (MATRIX, MATRIX.copy(), 0.0, 0.0),
        (np.zeros(3), np.zeros(3), 0.0, 0.0),
        (np.zeros(0), np.zeros(0), 0.0, 0.0),
        (MATRIX, MATRIX[::-1], 0.5, 2.0),
        (np.zeros(3), np.array([0, 1e-30, 0]), math.inf, math.inf),
    ],
    ids=["equal", "zero", "empty", "a permutation of the same norm", "something against nothing"],
)
def test_errors_of_special_arrays(reference: np.ndarray, candidate: np.ndarray, least: float, most: float) -> None:
    assert least <= relative_error(reference, candidate) <= most


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, BLOCK + 1])
def test_nan_or_infinity_on_either_side_is_nan_without_a_warning(value: float, place: int) -> None:
    healthy = np.ones(BLOCK + 2, np.float32)
    broken = healthy.copy()
    broken[place] = value
    for pair in ((healthy, broken), (broken, healthy), (broken, broken)):
        assert math.isnan(relative_error(*pair))


@pytest.mark.parametrize("pair", [(math.nan, 1.0), (1.0, math.nan), (math.inf, math.inf), (math.inf, 1.0), (1.0, math.inf)])
def test_numbers_that_are_not_finite_have_no_difference(pair: tuple[float, float]) -> None:
    assert math.isnan(relative_difference(*pair))
    assert relative_difference(0.0, 1e-300) == math.inf


@given(numbers, numbers)
def test_a_difference_is_zero_only_between_equals(one: float, other: float) -> None:
    assume(one == 0 or abs(other - one) == 0 or abs(other - one) / abs(one) > 1e-300)  # what fp64 can hold
    assert (relative_difference(one, other) == 0.0) == (one == other)


@given(st.floats(0, 1e100), st.floats(1e-100, 1e100))
def test_ratio_is_plain_division_of_healthy_numbers(distance: float, size: float) -> None:
    assert ratio(distance, size) == distance / size


@pytest.mark.parametrize(
    ("error", "limit", "limit_ratio"),
    [(0.0, 0.0, 0.0), (1e-9, 0.0, math.inf), (2.0, 4.0, 0.5), (1.0, None, math.inf), (math.nan, 1.0, math.inf), (None, 1.0, math.inf)],
)
def test_excess_is_error_over_limit(error: float | None, limit: float | None, limit_ratio: float) -> None:
    assert Finding("x", error=error, limit=limit).limit_ratio == limit_ratio


@pytest.mark.parametrize(
    ("types", "name"),
    [
        (("float32", "float32"), "float32"),
        (("float32", "bfloat16"), "bfloat16"),
        (("float16", "bfloat16"), "bfloat16"),
        ((None, "float16"), "float16"),
        ((None, None), "float32"),
        (("int8",), "float32"),
    ],
)
def test_limits_are_those_of_the_coarser_type(types: tuple[str | None, ...], name: str) -> None:
    assert limits_for(*types) == (name, DEFAULTS[name])


def test_a_later_free_step_may_be_further_off() -> None:
    limits = DEFAULTS["float32"]
    assert limits.free_loss(1) == limits.free_loss(20) == 2 * limits.loss
    assert limits.free_loss(200) == 20 * limits.loss


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (0.1, float(np.float32(0.1)), True),
        (1e-8, float(np.float32(1e-8)), True),
        (0.95, 0.951, False),
        ([0.9, 0.95], [float(np.float32(0.9)), float(np.float32(0.95))], True),
        ([0.9, 0.95], [0.9], False),
        ([0.9, 0.95], [0.95, 0.9], False),
        (1, 1.0, True),
        (None, None, True),
        (None, 1.0, False),
        (0.0, 1e-12, False),
        (math.nan, math.nan, False),
        (True, True, True),
        (True, False, False),
        ("a", "b", False),
    ],
)
def test_settings_are_equal_within_fp32(one: Any, other: Any, same: bool) -> None:
    assert equal(one, other) is equal(other, one) is same


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[Finding]:
    return hyper_parameters(convert(one, OptimizerFacts), convert(other, OptimizerFacts))


def bent(*groups: int, **changes: Any) -> dict[str, Any]:
    """An optimizer, some of whose groups have other settings."""
    candidate = optimizer()
    for index in groups:
        candidate["groups"][index] |= changes
    return candidate


def test_optimizers_whose_decay_follows_a_schedule_on_both_sides_do_not_differ() -> None:
    scheduled = bent(0, weight_decay=math.nan)
    assert differing(scheduled, bent(0, weight_decay=math.nan)) == []
    assert [finding.name for finding in differing(scheduled, optimizer())] == ["weight_decay"]


def test_equal_optimizers_have_no_findings_however_they_are_grouped() -> None:
    candidate = optimizer()
    first, second = candidate["groups"]
    candidate["groups"] = [*(first | {"parameters": [name]} for name in first["parameters"]), second]
    assert differing(optimizer(), candidate) == []


MATRICES = message("names.and_more", name="lm_head.weight", count=2)


@pytest.mark.parametrize(
    ("other", "subject", "ours", "theirs"),
    [
        (bent(0, weight_decay=0.0), message("hyper_parameters.of", setting="weight_decay", names=MATRICES), 0.1, 0.0),
        (bent(0, 1, betas=[0.9, 0.999]), "betas", "[0.9, 0.95]", "[0.9, 0.999]"),
        (optimizer() | {"clip_grad": None}, "clip_grad", 1.0, message("settings.none")),
        (optimizer() | {"loss_scale": 65536.0}, "loss_scale", 1.0, 65536.0),
        (optimizer() | {"decoupled_weight_decay": False}, "decoupled_weight_decay", True, False),
    ],
    ids=["some parameters", "all parameters", "clip_grad", "loss_scale", "decoupled_weight_decay"],
)
def test_a_difference_is_one_finding_with_names_where_not_all_differ(other: dict[str, Any], subject: Any, ours: Any, theirs: Any) -> None:
    (finding,) = differing(optimizer(), other)
    assert (finding.what, finding.reference, finding.candidate) == (subject, ours, theirs)


def test_differing_model_settings_are_listed_by_name() -> None:
    none = message("settings.none")
    outcome = model_settings({"a": 1, "rope_theta": 10000.0, "same": 2}, {"rope_theta": 10100.0, "same": 2, "z": 3})
    found = [(each.what, each.reference, each.candidate) for each in outcome]
    assert found == [("a", 1, none), ("rope_theta", 10000.0, 10100.0), ("z", none, 3)]


def test_what_a_model_of_a_family_alone_holds_is_no_setting_that_differs() -> None:
    """Beside a model of no family, which holds nothing but sizes; and a setting that is nothing has a word of its own."""
    known = {"architectures": ["Qwen3ForCausalLM"], "hidden_size": 64, "head_dim": 24, "hidden_act": "silu", "rope_scaling": None}
    strange = {NO_FAMILY: ["hidden_act is gelu, not silu"], NEAREST: "Qwen3", "hidden_size": 64, "num_experts": 0}
    why = message("family.not_recognised", family="Qwen3", why=terms(["hidden_act is gelu, not silu"]))
    (finding,) = model_settings(known, strange)
    assert (finding.name, finding.reference, finding.candidate) == (FAMILY, terms(["Qwen3ForCausalLM"]), why)
    (turned,) = model_settings(strange, known)
    assert (turned.reference, turned.candidate) == (why, terms(["Qwen3ForCausalLM"]))
    assert model_settings(strange, {**strange, NO_FAMILY: ["activation_func is gelu, not silu"]}) == []
    (scaled,) = model_settings(known, {**known, "rope_scaling": {"type": "yarn"}})
    assert scaled.reference == message("settings.none")


def test_fp32s_view_of_a_setting_is_shown_as_people_wrote_it() -> None:
    assert (show(float(np.float32(0.1))), as_written(float(np.float32(0.1)))) == ("0.1", 0.1)
    assert show([0.9, (1, "x")]) == "[0.9, [1, x]]"


SAME, DIFFERENT, INCONCLUSIVE = Status.SAME, Status.DIFFERENT, Status.INCONCLUSIVE
NOT_COMPARABLE, INCOMPLETE, NOT_COMPARED = Status.NOT_COMPARABLE, Status.INCOMPLETE, Status.NOT_COMPARED


def stages(*statuses: Status) -> list[StageResult]:
    return [StageResult(stage, status, "") for stage, status in zip(LADDER, statuses, strict=False)]


@pytest.mark.parametrize(
    ("statuses", "verdict", "first"),
    [
        ((SAME, SAME), Verdict.ALIGNED, None),
        ((SAME, NOT_COMPARED), Verdict.ALIGNED, None),
        ((SAME, DIFFERENT, DIFFERENT), Verdict.DIVERGED, 1),
        ((NOT_COMPARABLE, DIFFERENT), Verdict.NOT_COMPARABLE, 0),
        ((DIFFERENT, NOT_COMPARABLE), Verdict.DIVERGED, 0),
        ((INCOMPLETE, SAME), Verdict.NOT_COMPARABLE, 0),
        ((INCONCLUSIVE, SAME), Verdict.INCONCLUSIVE, 0),
        ((INCONCLUSIVE, INCOMPLETE), Verdict.NOT_COMPARABLE, 1),
        ((INCONCLUSIVE, DIFFERENT), Verdict.DIVERGED, 1),
    ],
)
def test_the_first_stage_that_decides_is_named(statuses: tuple[Status, ...], verdict: Verdict, first: int | None) -> None:
    results = stages(*statuses)
    assert decide(results, first_symptom(results, 0), compared=1) == (verdict, None if first is None else results[first])


def test_with_nothing_compared_it_is_never_aligned() -> None:
    outcome, stage = decide(stages(SAME, SAME), None, compared=0)
    assert (outcome, ids(stage.summary)) == (Verdict.NOT_COMPARABLE, ["match.nothing_compared"])


def test_verdicts_carry_the_contracts_exit_codes() -> None:
    assert {verdict.text: verdict.exit_code for verdict in Verdict} == {"aligned": 0, "diverged": 1, "not comparable": 3, "inconclusive": 4}


ERRORS = st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, math.inf])


@given(st.lists(st.tuples(ERRORS, st.booleans()), max_size=40))
def test_findings_that_are_chosen_before_they_are_made_are_those_that_tell(steps: list[tuple[float, bool]]) -> None:
    findings = [
        Finding("", math.nan if lost else 1.0, 1.0, math.nan if lost else error, 1.0, step=step) for step, (error, lost) in enumerate(steps)
    ]
    chosen = [findings[index] for index in kept_indices([each.limit_ratio for each in findings], [*map(without_reference, findings)])]
    assert furthest(chosen) == furthest(findings)
    assert any(map(without_reference, chosen)) == any(map(without_reference, findings))
    assert {*map(id, keep_worst(findings))} <= {*map(id, chosen)} and len(chosen) <= len(keep_worst(findings)) + 1
