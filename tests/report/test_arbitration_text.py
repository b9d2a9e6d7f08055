"""Who is right, as a terminal and as JSON say it."""

import json
import math

import pytest

from align_hooks.comparison.arbitration import Arbitration, JudgedPoint, PointKind, Ruling, TruthDistance, choice, distance
from align_hooks.comparison.finding import Finding, when
from align_hooks.messages import Side, message, rendered
from align_hooks.messages.catalogue import CHINESE
from align_hooks.record.write.atomic import json_text
from align_hooks.report.arbitration import JSON, document, headline, remarks
from align_hooks.report.json import as_json
from worded import on_terminal, words

HOSTILE = "model.layers.0.[red]\x1b[31m"


def away(error: float, *, estimated: bool = False) -> TruthDistance:
    return distance(PointKind.VALUE, "x", error, 1.0, 1e-7, compute_type="float32", layers=2, estimated=estimated)


def made(*points: tuple[str, float, float], **changes: object) -> Arbitration:
    judged = [
        JudgedPoint(name, PointKind.VALUE, {Side.REFERENCE: away(ours), Side.CANDIDATE: away(theirs)}) for name, ours, theirs in points
    ]
    given: dict[str, object] = {"alike": True, "compute_types": dict.fromkeys(Side, "float32")} | changes
    return Arbitration(0, tuple(judged), **given)  # type: ignore[arg-type]


def printed(arbitration: Arbitration, width: int = 100) -> str:
    return on_terminal(document(arbitration), width)


def told(arbitration: Arbitration) -> str:
    """What a terminal shows, as one line."""
    return " ".join(printed(arbitration).split())


def test_the_first_line_is_who_where_and_by_how_much() -> None:
    text = printed(made(("model.norm", 1e-7, 1e-7), ("lm_head", 1e-7, 1e-3)))
    first, *_ = text.splitlines()
    assert first.startswith(f"{rendered(Ruling.CANDIDATE_WRONG)}: ")
    assert "lm_head, step 0 (iteration 1)" in first
    assert "8.39e+03" in " ".join(text.split())
    assert words("arbitrate.points_not_shown", count=1) in text


def test_both_right_says_who_is_closer() -> None:
    text = told(made(("model.norm", 1e-7, 2e-7), ("lm_head", 3e-7, 2e-7), ("token_losses", 1e-7, 2e-7)))
    assert text.startswith(f"{rendered(Ruling.BOTH_RIGHT)}: {words('arbitrate.within', count=3, step=when(0))}")
    assert words("arbitrate.closer", count=3, reference=2, candidate=1) in text


def test_what_both_share_is_said_and_where_each_leaves() -> None:
    point = JudgedPoint("lm_head", PointKind.VALUE, dict.fromkeys(Side, away(1e-2)), apart=1e-7)
    text = told(Arbitration(0, (point,), True, {}))
    assert words("arbitrate.side_first", side=Side.REFERENCE, point=message("arbitrate.at_value", point="lm_head")) in text
    assert words("arbitrate.agreed") in text


def test_settings_doubts_and_notes_are_shown() -> None:
    doubt = message("arbitrate.may_follow_from_choices", side=Side.CANDIDATE, variable="ALIGN_HOOKS_ROUTING")
    setting, note = Finding("rms_norm_eps", 1e-5, 1e-6, name="rms_norm_eps"), message("arbitrate.other_inputs")
    text = told(made(("lm_head", 1e-7, 1e-3), settings=(setting,), doubts=(doubt,), notes=(note,)))
    assert text.startswith(f"{rendered(Ruling.UNDECIDED)}: ")
    for said in ("1e-05 against 1e-06", words("arbitrate.by_reference"), rendered(note), rendered(doubt)):
        assert said in text


def test_a_router_is_counted_in_tokens_and_an_estimate_is_marked() -> None:
    router = JudgedPoint("model.layers.0.mlp.gate", PointKind.CHOICE, {Side.CANDIDATE: choice(40, 512, 0, compute_type="float32")})
    estimated = JudgedPoint("lm_head", PointKind.GRADIENT, {side: away(1e-3, estimated=True) for side in Side})
    text = printed(Arbitration(0, (router, estimated), True, {}))
    assert "the candidate gives 40 tokens to other experts" in " ".join(text.split())
    assert "~8.39e+03" in text


def test_hostile_names_are_shown_as_themselves() -> None:
    text = printed(made((HOSTILE, 1e-7, 1.0)))
    assert "\x1b" not in text
    assert "[red]" in text


@pytest.mark.parametrize("width", [60, 80, 140])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    text = printed(made(*((f"model.layers.{layer}.self_attn.kv_a_proj_with_mqa", 1e-7, 1e-3) for layer in range(30))), width)
    assert max(map(len, text.splitlines())) <= width
    assert text.count("kv_a") >= 12


def test_it_is_said_in_chinese_too() -> None:
    said = made(("lm_head", 1e-7, 1e-3))
    assert rendered(said.ruling, CHINESE) == "待测错误"
    assert rendered(headline(said), CHINESE).startswith("最先偏离处为lm_head")
    assert remarks(said) == []


def test_json_has_all_of_it_strictly() -> None:
    said = made(("model.norm", 1e-7, math.nan), ("lm_head", 1e-7, math.inf))
    table = json.loads(json_text(as_json(said, JSON, reference="a")), parse_constant=lambda name: pytest.fail(name))
    assert (table["ruling"], table["exit_code"], table["reference"]) == ("candidate wrong", 1, "a")
    assert [point["point"] for point in table["points"]] == ["model.norm", "lm_head"]
    assert table["points"][0]["candidate"]["error"] == "nan"
    assert table["points"][0]["candidate"]["right"] is False
    assert table["first"]["candidate"] == {"point": "model.norm", "of": "value"}
