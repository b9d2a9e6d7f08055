"""The page as text: what it is made of, whatever a browser makes of it."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from align_hooks.comparison.finding import Finding, Unit, when
from align_hooks.comparison.stage_result import FaultLocation, Status
from align_hooks.comparison.stages.gradients import gradients
from align_hooks.comparison.stages.local_norms import local_norms
from align_hooks.comparison.stages.registry import LADDER
from align_hooks.comparison.verdict import Blame, ComparisonResult, Curve, Suspect, Verdict
from align_hooks.messages import Message, message, rendered
from align_hooks.quantities.weights import NEAREST, NO_FAMILY
from align_hooks.report.comparison import suspected
from align_hooks.report.comparison_page import comparison_page
from align_hooks.report.configuration import models
from align_hooks.report.curve_plots import curve_text, is_constant, rounded
from align_hooks.report.findings import describe, worst
from align_hooks.report.glossary import slug
from align_hooks.report.html import in_both, number, times
from align_hooks.report.tensors import Bin, bin_of, picture, pictures_of, tensor_rows
from report.conftest import HOSTILE
from worded import result


class Parsed(HTMLParser):
    """Tags, their attributes, and the text inside scripts and style sheets."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[tuple[dict[str, str | None], str]] = []
        self._open: dict[str, str | None] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = dict(attrs) | {"tag": tag} if tag in ("script", "style") else None

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            self.inside.append((self._open, data))

    def handle_endtag(self, tag: str) -> None:
        self._open = None

    @property
    def data(self) -> str:
        """What the page hands to its script."""
        return next(text for attributes, text in self.inside if attributes.get("id") == "page-data")


@pytest.fixture(scope="module")
def parsed(hostile: ComparisonResult) -> Parsed:
    return Parsed(comparison_page(hostile, "1.2.3"))


def test_the_policy_lets_nothing_through_but_the_pages_own(parsed: Parsed) -> None:
    policy = next(attributes["content"] for tag, attributes in parsed.tags if attributes.get("http-equiv"))
    assert policy is not None
    rules = {rule.split()[0]: rule.split()[1:] for rule in policy.split("; ")}
    assert rules["default-src"] == ["'none'"]
    assert not re.search(r"unsafe|\*|http", policy)
    for kind, tag in (("script-src", "script"), ("style-src", "style")):
        texts = [text for attributes, text in parsed.inside if attributes["tag"] == tag and "type" not in attributes]
        digests = [f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in texts]
        assert sorted(rules[kind]) == sorted(digests)
        assert len(digests) == {"script": 2, "style": 1}[tag]


def test_nothing_is_outside_the_file_and_no_element_carries_a_style_or_a_handler(parsed: Parsed) -> None:
    attributes = [(name, value) for _, given in parsed.tags for name, value in given.items()]
    references = [value for name, value in attributes if name in ("src", "href", "action", "srcset")]
    assert references
    assert [reference for reference in references if not (reference or "").startswith("#")] == []
    assert [tag for tag, _ in parsed.tags if tag in ("link", "iframe", "object", "embed", "img", "base", "form")] == []
    assert [name for name, _ in attributes if name == "style" or name.startswith("on")] == []


def test_a_hostile_record_adds_no_element(parsed: Parsed) -> None:
    assert sum(tag == "script" for tag, _ in parsed.tags) == 3
    assert "<" not in parsed.data
    assert any(HOSTILE in name for name in json.loads(parsed.data)["tensors"]["names"])


def test_undecodable_text_is_written_all_the_same(aligned: ComparisonResult) -> None:
    sides = (replace(aligned.sides[0], path="runs/\udc80 \u2028 </title>"), aligned.sides[1])
    text = comparison_page(replace(aligned, sides=sides, notes=("\x00\x1b[31m \udcff",)), "1.2.3")
    text.encode("utf-8")
    assert "</title>" in text
    assert "runs/\\udc80" in text


def test_whatever_a_comparison_lacks_the_page_stands() -> None:
    bare = ComparisonResult(Verdict.NOT_COMPARABLE, result("match", Status.INCOMPLETE, "nothing was compared"), (), 1e-7)
    text = comparison_page(bare, "1.2.3")
    assert rendered(Verdict.NOT_COMPARABLE) in text
    assert 'id="where"' not in text
    numbers = ((float("nan"), 1.0), (1.0, 0.0), (None, None))
    findings = tuple(Finding("x at step 0 (iteration 1)", error=error, limit=limit, name="a.b", step=0) for error, limit in numbers)
    curve = Curve("loss", [0, 5], [None, float("inf")], [1.0, float("nan")])
    odd = replace(bare, stages=(result("gradients", Status.DIFFERENT, "x", findings),), curves=(curve,))
    data = json.loads(Parsed(comparison_page(odd, "1.2.3")).data)
    assert data["tensors"]["error"] == ["nan", 1.0]
    assert data["plots"][0]["a"] == [None, "inf"]


def test_the_same_comparison_makes_the_same_page(aligned: ComparisonResult) -> None:
    assert len({re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "", comparison_page(aligned, "1.2.3")) for _ in range(2)}) == 1


# ---- its parts


BINS = {
    Bin.EQUAL: ((0.0, 1.0), (0.0, 0.0)),
    Bin.FAR_WITHIN: ((0.05, 1.0),),
    Bin.WITHIN: ((1.0, 1.0),),
    Bin.THIRTIETH: ((1.01, 1.0),),
    Bin.TWO_THIRDS: ((40.0, 1.0),),
    Bin.WORST: ((70.0, 1.0), (100.0, 1.0), (1.0, 0.0)),
    Bin.NOT_FINITE: ((float("nan"), 1.0), (float("inf"), 1.0)),
}
"""What a cell shows, of which errors and limits, where the largest error is 100."""


@pytest.mark.parametrize(("error", "limit", "expected"), [(*pair, expected) for expected, pairs in BINS.items() for pair in pairs])
def test_a_colour_says_how_far_out(error: float, limit: float, expected: Bin) -> None:
    assert bin_of(Finding("x", error=error, limit=limit), largest=100.0) is expected


def test_what_stands_out_is_framed_and_what_is_as_far_out_as_all_is_not() -> None:
    def framed(*excesses: float) -> list[bool]:
        rows = [(gradients, tensor_finding(f"model.layers.{layer}.x.weight", limit_ratio)) for layer, limit_ratio in enumerate(excesses)]
        return [star for *_, star in picture(gradients, rows)["cells"]]

    assert framed(500.0, 490.0, 100.0, 0.5) == [True, True, False, False]
    assert framed(500.0, 490.0, 480.0, 470.0) == [False] * 4
    assert framed(0.5, 0.4) == [False, False]
    assert framed(float("inf"), 0.0, 5.0) == [True, False, True]


def tensor_finding(name: str, error: float, step: int = 0) -> Finding:
    return Finding(f"{name} at step {step}", error=error, limit=1.0, name=name, step=step)


def test_a_cell_is_the_worst_of_its_experts_and_steps() -> None:
    rows = [
        (gradients, tensor_finding("model.layers.1.block_sparse_moe.experts.0.w1.weight", 2.0)),
        (gradients, tensor_finding("model.layers.1.block_sparse_moe.experts.7.w1.weight", 5.0)),
        (gradients, tensor_finding("model.embed_tokens.weight", 0.5)),
        (gradients, tensor_finding("model.embed_tokens.weight", 0.7, step=3)),
        (local_norms, tensor_finding("lm_head.weight", 9.0)),
    ]
    shown = picture(gradients, rows)
    assert shown["columns"] == ["embed", "1"]
    assert shown["rows"] == ["embed_tokens", "block_sparse_moe.experts.*.w1"]
    assert sorted(shown["cells"]) == [[0, 0, 3, 2, False], [1, 1, 1, 9, True]]
    drawn = pictures_of(ComparisonResult(Verdict.ALIGNED, None, (), 1e-7), rows)
    assert [picture["title"] for picture in drawn] == [local_norms.title, gradients.title]


def test_suspects_carry_the_numbers_of_the_stage_that_named_them() -> None:
    stages = (
        result("local norms", Status.DIFFERENT, "", (tensor_finding("a.weight", 50.0), tensor_finding("b.weight", 2.0))),
        result("gradients", Status.DIFFERENT, "", (tensor_finding("a.weight", 5.0),)),
    )
    suspects = (Suspect("rms_norm_eps", "rms_norm_eps"), Suspect("a.weight", "a.weight"), Suspect("b.weight at step 0", "b.weight"))
    blame = Blame(FaultLocation.FORWARD, suspects, ())
    shown = suspected(ComparisonResult(Verdict.DIVERGED, stages[0], stages, 1e-7, blame=blame), blame)
    expected = [("rms_norm_eps", "", {}), ("a.weight", "a.weight", {"times": 50.0}), ("b.weight", "b.weight", {"times": 2.0})]
    assert [(item.text, item.tensor, item.note.arguments if item.note else {}) for item in shown] == expected


def test_only_findings_of_tensors_are_in_the_table() -> None:
    findings = (tensor_finding("a.weight", 0.5), tensor_finding("plain", 0.7), Finding("all tensors", error=0.5, limit=1.0))
    stages = (result("first updates", Status.SAME, "", findings), result("step-0 loss", Status.SAME, "", (tensor_finding("loss", 0.5),)))
    rows = tensor_rows(ComparisonResult(Verdict.ALIGNED, None, stages, 1e-7))
    assert [row.name for _, row in rows] == ["a.weight", "plain"]


def test_an_error_in_roundings_is_not_among_relative_ones() -> None:
    of_updates = Finding("its updates", error=900.0, limit=2.0, name="a.weight", unit=Unit.ROUNDINGS)
    stages = (result("weights after an update", Status.DIFFERENT, "", (of_updates, tensor_finding("a.weight", 0.5))),)
    assert [finding.error for _, finding in tensor_rows(ComparisonResult(Verdict.DIVERGED, stages[0], stages, 1e-7))] == [0.5]
    assert describe(of_updates) == "its updates"
    assert not worst(replace(stages[0], findings=(of_updates,)))


BOTH_ENDS = {"first": 1.0, "last": 1.0, "lowest": 1.0, "highest": 1.0}
CURVES: tuple[tuple[Curve, dict[str, dict[str, Any]]], ...] = (
    (
        Curve("loss", [0, 1], [2.0, 1.0], [2.0, 1.5], [0.1, 0.1]),
        {"page.largest_difference": {"difference": 0.5, "step": when(1)}, "page.beyond_at": {"count": 1, "step": when(1)}},
    ),
    (Curve("loss", [7], [2.0], [2.0], [0.1]), {"page.largest_difference": {"difference": 0.0, "step": when(7)}}),
    (Curve("loss", [0, 1], [None, 1.0], [2.0, None]), {"page.range": BOTH_ENDS, "page.values_missing": {"count": 2}}),
    (Curve("loss", [0, 1], [3.0, 1.0]), {"page.range": {"first": 3.0, "last": 1.0, "lowest": 1.0, "highest": 3.0}}),
)


@pytest.mark.parametrize(("curve", "expected"), CURVES)
def test_a_curve_in_a_sentence(curve: Curve, expected: dict[str, Any]) -> None:
    assert arguments_of(curve) == {"steps.count": {"count": len(curve.steps)}, **expected}


def arguments_of(curve: Curve) -> dict[str, Any]:
    """The arguments of each message of a curve, by its id."""
    return {part.id: part.arguments for part in curve_text(curve).parts if isinstance(part, Message)}


def test_a_curve_that_is_not_finite_is_beyond_any_limit() -> None:
    arguments = arguments_of(Curve("loss", [0, 1], [2.0, 1.0], [2.0, float("nan")], [0.1, 0.1]))
    assert arguments["page.beyond_at"] == {"count": 1, "step": when(1)}
    assert arguments["page.values_missing"] == {"count": 1}


def test_a_limit_is_held_against_the_difference_of_its_own_step() -> None:
    arguments = arguments_of(Curve("loss", [0, 1, 2], [None, 1.0, 1.0], [1.0, 1.0 + 1.5e-6, 1.1], [1e-6, 2e-6, 1e-6]))
    assert arguments["page.beyond_at"] == {"count": 1, "step": when(2)}


def test_a_rate_of_fp32_beside_one_of_fp64_is_one_number() -> None:
    assert is_constant(Curve("learning_rate", [0, 1], [1e-3, 1e-3], [float(np.float32(1e-3))] * 2))
    assert is_constant(Curve("loss_scale", [0], [0.0], [0.0]))
    assert not is_constant(Curve("learning_rate", [0, 1], [1e-3, 1e-3], [1.001e-3] * 2))
    assert not is_constant(Curve("loss", [0, 1], [1.0, None], [1.0, 1.0]))
    assert not is_constant(Curve("loss", [0], [1.0]))


def test_numbers_are_short_and_addresses_plain() -> None:
    assert slug("first loss (step 10)") == "stage-first-loss--step-10-"
    assert number(None) == ""
    assert number(1.23456e-7) == "1.23e-07"
    assert rounded(float("inf"), 4) == float("inf")
    assert rounded(1.23456789, 4) == 1.235
    assert times(Finding("x", error=3.0, limit=1.5)) == message("page.times", times=2.0)
    assert times(Finding("x", error=1.0, limit=0.0)) == message("page.any_is_too_much")
    assert times(Finding("x", error=float("nan"), limit=1.0)) == message("page.not_finite")
    assert times(Finding("x", error=float("inf"), limit=1.0)) == message("page.on_one_side")
    assert times(Finding("x")) is None


# ---- both languages


def test_every_stage_says_how_its_numbers_were_made(diverged: ComparisonResult) -> None:
    assert [stage.name for stage in LADDER if not rendered(stage.method) or rendered(stage.method) == stage.method.id] == []
    assert {stage.stage for stage in diverged.stages} <= set(LADDER)


def test_text_is_escaped_in_both_languages() -> None:
    assert str(in_both("<b>")) == "&lt;b&gt;"
    assert "<b>" not in str(in_both("<b> at step 0 (iteration 1)"))


def test_every_sentence_of_a_comparison_is_said_in_chinese(diverged: ComparisonResult, aligned: ComparisonResult) -> None:
    """What a page shows of a pair that diverged and of one that did not; names, settings and commands stay."""
    for comparison in (diverged, aligned):
        texts = [text for stage in comparison.stages for text in (stage.title, stage.status, stage.summary)]
        texts += [*comparison.notes, comparison.next, *(criterion.what for criterion in comparison.acceptance)]
        texts += [curve_text(curve) for curve in comparison.curves]
        assert [text for text in texts if "<span" not in in_both(text)] == []


def test_what_one_model_alone_holds_is_no_row_that_differs_but_why_it_is_of_no_family_is() -> None:
    known = {"architectures": ["Qwen3ForCausalLM"], "hidden_size": 64, "head_dim": 24}
    strange = {NO_FAMILY: ["hidden_act is gelu, not silu"], NEAREST: "Qwen3", "hidden_size": 64, "num_experts": 0}
    assert [row.name for row in models([known, strange]) if row.differs] == [NO_FAMILY, NEAREST]
    assert [row.name for row in models([strange, {**strange, NO_FAMILY: ["activation_func is gelu, not silu"]}]) if row.differs] == []
    assert [row.name for row in models([known, {**known, "head_dim": 32}]) if row.differs] == ["head_dim"]
