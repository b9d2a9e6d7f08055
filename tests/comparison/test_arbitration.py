"""Who is right follows from distances alone."""

import math

import pytest
from msgspec.structs import replace

from align_hooks.comparison.arbitration import MARGIN, Arbitration, JudgedPoint, PointKind, Ruling, TruthDistance, choice, distance
from align_hooks.messages import Side, message

EPS = 2.0**-23
REFERENCE, CANDIDATE = Side.REFERENCE, Side.CANDIDATE


def away(error: float, honest: float = 1e-7, kind: PointKind = PointKind.GRADIENT, point: str = "model.norm") -> TruthDistance:
    return distance(kind, point, error, 1.0, honest, compute_type="float32", layers=2)


def judged(point: str, ours: float, theirs: float, kind: PointKind = PointKind.VALUE, apart: float | None = None) -> JudgedPoint:
    return JudgedPoint(point, kind, {REFERENCE: away(ours), CANDIDATE: away(theirs)}, apart)


def arbitration(*points: JudgedPoint, alike: bool = True, **changes: object) -> Arbitration:
    made = Arbitration(0, points, alike, {REFERENCE: "float32", CANDIDATE: "float32"})
    return replace(made, **changes)  # type: ignore[arg-type]


def test_a_distance_is_counted_in_roundings_of_the_compute_type() -> None:
    assert away(3 * EPS).roundings == pytest.approx(3)
    half = distance(PointKind.VALUE, "model.norm", 2.0**-6, 1.0, 1e-3, compute_type="bfloat16", layers=2)
    assert half.roundings == 2


def test_the_limit_is_that_of_compare_or_what_an_honest_model_is_off_by_several_times() -> None:
    assert (away(1e-5).right, away(1.1e-5).right) == (True, False)
    assert (away(1e-3, honest=2e-4).limit, away(1e-3, honest=2e-4).right) == (MARGIN * 2e-4, True)
    assert away(0.0, honest=math.nan).limit == 1e-5
    losses = distance(PointKind.VALUE, "token_losses", 1e-6, 1.0, 1e-8, compute_type="float32", layers=2)
    assert losses.limit == 3e-6


@pytest.mark.parametrize(("estimated", "limit"), [(False, 2e-5), (True, 4e-5)])
def test_sketches_and_deep_models_have_wider_limits(estimated: bool, limit: float) -> None:
    deep = distance(PointKind.GRADIENT, "model.norm", 0.0, 1.0, 0.0, compute_type="float32", layers=32, estimated=estimated)
    assert deep.limit == pytest.approx(limit)


@pytest.mark.parametrize("error", [math.nan, math.inf])
def test_what_is_not_finite_is_wrong(error: float) -> None:
    assert not away(error).right
    assert judged("model.norm", error, 0.0).closer is CANDIDATE
    assert math.isinf(judged("model.norm", error, 0.0).worst)


@pytest.mark.parametrize(
    ("ours", "theirs", "ruling", "closer"),
    [
        (1e-7, 2e-7, Ruling.BOTH_RIGHT, REFERENCE),
        (1e-7, 1e-3, Ruling.CANDIDATE_WRONG, REFERENCE),
        (1e-3, 1e-7, Ruling.REFERENCE_WRONG, CANDIDATE),
        (1e-3, 1e-2, Ruling.NEITHER_RIGHT, REFERENCE),
        (1e-7, 1e-7, Ruling.BOTH_RIGHT, None),
    ],
)
def test_who_is_right_at_a_point_and_who_is_closer(ours: float, theirs: float, ruling: Ruling, closer: Side | None) -> None:
    point = judged("model.norm", ours, theirs)
    assert (point.ruling, point.closer) == (ruling, closer)
    assert arbitration(point).ruling is ruling


def test_a_side_that_did_not_record_a_point_is_not_judged_there() -> None:
    alone = JudgedPoint("model.norm", PointKind.VALUE, {CANDIDATE: away(1.0)})
    assert alone.ruling is Ruling.CANDIDATE_WRONG
    assert alone.closer is None
    assert arbitration(alone).ruling is Ruling.UNDECIDED  # nothing is known of the reference
    assert arbitration().ruling is Ruling.UNDECIDED
    assert arbitration(alone, judged("lm_head", 0.0, 1.0)).ruling is Ruling.CANDIDATE_WRONG


def test_the_first_point_is_that_of_the_order_of_execution() -> None:
    points = [judged("model.layers.0", 1e-7, 1e-7), judged("model.layers.1", 1e-7, 1e-4), judged("lm_head", 1e-2, 1e-2)]
    made = arbitration(*points)
    assert made.first_wrong is points[1]
    assert [made.first(side) for side in (REFERENCE, CANDIDATE)] == [points[2], points[1]]
    assert made.ruling is Ruling.NEITHER_RIGHT
    assert not made.agreed


def test_sides_that_agree_with_each_other_and_not_with_the_truth_are_said_to() -> None:
    assert arbitration(judged("model.norm", 1e-2, 1e-2, apart=1e-7)).agreed
    assert not arbitration(judged("model.norm", 1e-2, 1e-2, apart=1e-2)).agreed


def test_sides_on_other_weights_are_wrong_by_their_own_truth_or_undecided() -> None:
    assert arbitration(judged("lm_head", 1e-7, 1e-7), alike=False).ruling is Ruling.UNDECIDED
    assert arbitration(judged("lm_head", 1e-7, 1e-2), alike=False).ruling is Ruling.CANDIDATE_WRONG


def test_a_doubt_leaves_open_who_is_wrong_and_nothing_else() -> None:
    doubts = (message("arbitrate.agreed"),)
    assert arbitration(judged("lm_head", 1e-7, 1e-2), doubts=doubts).ruling is Ruling.UNDECIDED
    assert arbitration(judged("lm_head", 1e-7, 1e-7), doubts=doubts).ruling is Ruling.BOTH_RIGHT


def test_a_router_may_give_a_few_tokens_to_other_experts() -> None:
    assert choice(2, 512, 0, compute_type="float32").right
    assert not choice(3, 512, 0, compute_type="float32").right
    assert choice(3, 512, 1, compute_type="float32").right  # as the honest model does
    assert choice(60, 512, 0, compute_type="bfloat16").right
    assert choice(60, 512, 0, compute_type="bfloat16").roundings == 60


@pytest.mark.parametrize("ruling", Ruling)
def test_exit_codes_are_those_of_the_contract(ruling: Ruling) -> None:
    assert ruling.exit_code == {"both right": 0, "undecided": 4}.get(ruling.text, 1)


QUERY, CORE = "model.layers.0.self_attn.query", "model.layers.0.self_attn.core"


def test_a_point_that_is_off_while_all_behind_it_is_right_is_no_fault() -> None:
    """As queries of positions that begin at 1."""
    said = arbitration(judged(QUERY, 0.0, 1.0), judged(CORE, 0.0, 0.0), judged("lm_head", 0.0, 0.0))
    assert said.ruling is Ruling.BOTH_RIGHT
    assert [point.point for point in said.healed(CANDIDATE)] == [QUERY]
    assert said.healed(REFERENCE) == []


def test_it_is_one_where_anything_behind_it_or_in_the_backward_pass_is_wrong() -> None:
    wrong_behind = arbitration(judged(QUERY, 0.0, 1.0), judged(CORE, 0.0, 1.0), judged("lm_head", 0.0, 1.0))
    assert wrong_behind.first(CANDIDATE) is wrong_behind.points[0]
    parameter = judged("model.layers.0.self_attn.q_proj.weight", 0.0, 1.0, PointKind.PARAMETER)
    hidden = arbitration(judged(QUERY, 0.0, 1.0), judged(CORE, 0.0, 0.0), parameter)
    assert hidden.ruling is Ruling.CANDIDATE_WRONG
    assert hidden.first_wrong is hidden.points[0]
    alone = arbitration(judged(QUERY, 0.0, 1.0))
    assert alone.ruling is Ruling.CANDIDATE_WRONG  # nothing behind it is on record


@pytest.mark.parametrize(("error", "ruling"), [(0.0, Ruling.BOTH_RIGHT), (1.0, Ruling.CANDIDATE_WRONG)])
def test_a_gradient_is_handed_back_to_what_its_point_is_made_from(error: float, ruling: Ruling) -> None:
    of_query = judged(QUERY, 0.0, 1.0, PointKind.GRADIENT)
    assert arbitration(of_query, judged("model.layers.0.self_attn.q_proj", 0.0, error, PointKind.GRADIENT)).ruling is ruling


def test_points_of_few_kinds_in_many_layers_are_told_in_no_time() -> None:
    """A point's sources lie behind those that are not on record, on paths that fork in every block."""
    points = [judged(f"model.layers.{layer}.self_attn.core", 0.0, float(layer == 50)) for layer in range(100)]
    said = arbitration(*points)
    assert (said.ruling, said.healed(CANDIDATE)) == (Ruling.BOTH_RIGHT, [points[50]])
