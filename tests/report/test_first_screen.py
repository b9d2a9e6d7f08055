"""The first screen of a page: who the runs are, what to change, and how the loss went, in the order in which a reader needs them."""

import math
import re
from typing import Any

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as with_facts

from align_hooks.checklist.judge import RowOutcome
from align_hooks.checklist.result import check
from align_hooks.comparison.finding import Finding
from align_hooks.comparison.settings.recorded import FAMILY
from align_hooks.comparison.stage_result import FaultLocation
from align_hooks.comparison.verdict import Blame, ComparisonResult, Curve, RunSummary, Suspect
from align_hooks.messages import Side, message
from align_hooks.record.format.schema import Facts, Training
from align_hooks.report import to_change
from align_hooks.report.blocks import Box
from align_hooks.report.comparison_page import comparison_page, names_of_differing, weighed
from align_hooks.report.curve_plots import axis_of
from align_hooks.report.glance import LEFT, LOWER, MOST, RIGHT, UPPER, glance, nice
from align_hooks.report.identity import of_runs
from checklist.exercises import OLD, megatron, mindformers
from report.conftest import FAULT, Open, checked, drawn
from worded import ids, words

VERSIONS = {"align_hooks": "1", "mindformers": "1.9.0", "mindspore": "2.9.0"}
CREATED = "2026-03-01T01:30:00+02:00"
FACTS = Facts(framework="MindFormers", versions=VERSIONS, created=CREATED, training=Training(compute_type="bfloat16"))


# ---- who the runs are


def summary(facts: Facts = FACTS) -> RunSummary:
    return RunSummary("runs/candidate", facts, 8, {"tp": 2, "dp": 4}, 20)


def test_a_side_says_its_framework_precision_layout_steps_time_and_path() -> None:
    (one,) = of_runs([summary()])
    assert (one.framework, one.stands_on, one.precision) == ("MindFormers 1.9.0", "mindspore 2.9.0", "bfloat16")
    assert one.layout == message("health.ranks_laid_out", count=8, layout="TP2 DP4")
    assert one.steps == message("steps.count", count=20)
    assert (one.recorded, one.path) == ("2026-02-28 23:30 UTC", "runs/candidate")


@pytest.mark.parametrize("created", ["yesterday", "0001-01-01T00:00:00+14:00", "\x1b[31m"])
def test_a_time_that_is_none_is_shown_as_it_was_written(created: str) -> None:
    side = summary(with_facts(FACTS, created=created))
    assert side.recorded is None
    assert of_runs([side])[0].recorded == created.replace("\x1b", "\\x1b")


def test_of_what_is_not_on_record_nothing_is_said() -> None:
    (one,) = of_runs([RunSummary("logs", Facts(), 0, {}, 3)])
    assert (one.framework, one.stands_on, one.precision, one.layout, one.recorded) == ("", "", "", None, "")


def test_both_sides_are_on_the_first_screen(opened: Open, diverged: ComparisonResult) -> None:
    sides = tuple(replace(side, facts=FACTS if number else side.facts) for number, side in enumerate(diverged.sides))
    result = drawn(opened(comparison_page(replace(diverged, sides=sides), "1.2.3")))
    rows = result.locator("#runs tbody tr")
    assert rows.count() == 2
    assert rows.last.bounding_box()["y"] < 150
    for text in ("MindFormers 1.9.0", "mindspore 2.9.0", "bfloat16", diverged.sides[1].path):
        assert text in rows.last.inner_text()
    assert result.locator("#runs td.apart").all_inner_texts() == ["float32", "bfloat16"]


# ---- what to change


def names(change: Box) -> list[object]:
    """The settings to change."""
    return [line.parts[0].arguments["label"] for line in change.blocks[0].lines]


def test_a_yaml_is_told_its_sections() -> None:
    change = to_change.of_checklist(checked())
    assert names(change) == ["rms_norm_eps", "lr_warmup_iters (warmup_steps)"]
    (text,) = change.blocks[-1].lines
    assert text == checked().block
    assert "rms_norm_eps: 1.0e-06" in text


def test_megatron_is_told_its_arguments_quoted_for_a_shell() -> None:
    change = to_change.of_checklist(check(mindformers(OLD, {"m.rms_norm_eps": 1e-6}), megatron(OLD, {})))
    assert change.blocks[-1].lines == ["--norm-epsilon 1e-06"]
    assert ids(change.blocks[1].text) == ["page.add_arguments"]
    edit = to_change.Edit("Megatron-LM", "data_path", ["a b", "$(rm -r x)"])
    assert to_change.argument(edit) == "--data-path 'a b' '$(rm -r x)'"


def test_what_the_diagnosis_names_comes_first(diverged: ComparisonResult) -> None:
    suspected = replace(diverged, blame=Blame(FaultLocation.CONFIGURATION, (Suspect("lr_warmup_iters", "lr_warmup_iters"),), ()))
    change = to_change.of_comparison(suspected, checked())
    assert change is not None
    assert names(change) == ["lr_warmup_iters (warmup_steps)", "rms_norm_eps"]


def test_nothing_is_to_change_where_all_numbers_agree(aligned: ComparisonResult, diverged: ComparisonResult) -> None:
    assert to_change.of_comparison(aligned, checked()) is None
    assert to_change.of_comparison(diverged, check(megatron(OLD, {}), mindformers(OLD, {}))) is None


def test_the_family_of_a_model_is_nothing_to_change(diverged: ComparisonResult) -> None:
    family = Finding("the family", "known", "unknown", name=FAMILY)
    hidden = Finding("hidden_size", 64, 128, name="hidden_size")
    change = to_change.of_comparison(replace(diverged, settings=[family, hidden]), None)
    assert change is not None
    assert names(change) == ["hidden_size"]
    assert to_change.of_comparison(replace(diverged, settings=[family]), None) is None


def test_the_change_can_be_copied(opened: Open, diverged: ComparisonResult) -> None:
    result = opened(comparison_page(diverged, "1.2.3", checked()), permissions=["clipboard-read", "clipboard-write"])
    whole = drawn(result)
    whole.click("#change button.copy")
    whole.wait_for_selector(f"#change button.copy:has-text('{words('page.copied')}')")
    assert whole.evaluate("navigator.clipboard.readText()") == checked().block
    assert result.clean


def test_only_commands_and_the_change_can_be_copied(opened: Open, diverged: ComparisonResult, aligned: ComparisonResult) -> None:
    """A sentence that advises is no command."""
    for comparison in (diverged, aligned):
        result = opened(comparison_page(comparison, "1.2.3", checked())).page
        assert result.locator("button.copy").count() == result.locator(".paste code").count()


# ---- harmless differences


def test_what_changes_no_result_is_behind_a_line(opened: Open, diverged: ComparisonResult) -> None:
    assert checked().of(RowOutcome.ROUNDING)
    result = drawn(opened(comparison_page(diverged, "1.2.3", checked())))
    section = result.locator("section[aria-labelledby='checklist']")
    assert section.locator("#different").is_visible()
    assert section.locator("#rounding").is_hidden()
    section.locator("details > summary").click()
    assert section.locator("#rounding").is_visible()


def test_a_setting_that_the_checklist_finds_harmless_does_not_weigh(diverged: ComparisonResult) -> None:
    def side(size: int, eps: float) -> RunSummary:
        return summary(with_facts(FACTS, training=Training(micro_batch_size=size), model={"rms_norm_eps": eps}))

    setting_differences = replace(diverged, sides=(side(2, 1e-5), side(4, 1e-6)))
    assert names_of_differing(setting_differences, weighed(setting_differences, None)) == ["rms_norm_eps", "micro_batch_size"]
    rounding = check(megatron(OLD, {}), mindformers(OLD, {"runner_config.batch_size": 2}))
    assert "micro_batch_size" in [row.row.id for row in rounding.of(RowOutcome.ROUNDING)]
    groups = weighed(setting_differences, rounding)
    assert names_of_differing(setting_differences, groups) == ["rms_norm_eps"]
    assert [row.name for group in groups for row in group.rows if row.differs and not row.weighs] == ["micro_batch_size"]


# ---- the loss at a glance


def test_a_glance_has_both_losses_and_their_difference() -> None:
    shown = glance([Curve("loss", [0, 1, 2], [3.0, 2.0, 1.0], [3.0, None, 1.5], [1e-6] * 3)])
    assert shown is not None
    assert [path.count("M") for path in (shown.reference, shown.candidate, shown.difference)] == [1, 2, 2]  # what is missing leaves a gap
    assert shown.band.count("Z") == 1
    assert (shown.noise, shown.is_plain) == ("", False)
    assert [label for _, label in shown.upper] == ["1", "2", "3"]
    assert [label for _, label in shown.across] == ["0", "1", "2"]


def test_a_glance_goes_from_left_to_right_and_stays_within_its_panels() -> None:
    values = [9.0 / (1 + step / 5) for step in range(50)]
    shown = glance([Curve("loss", list(range(50)), values, [value * 1.5 for value in values], [1e-6] * 50, [5e-7] * 50)])
    assert shown is not None
    for path, (top, foot) in ((shown.reference, UPPER), (shown.candidate, UPPER), (shown.difference, LOWER), (shown.band, LOWER)):
        points = [tuple(map(float, point.split(","))) for point in re.findall(r"[\d.]+,[\d.]+", path)]
        assert all(LEFT <= x <= RIGHT and top <= y <= foot for x, y in points)
        assert path == shown.band or [x for x, _ in points] == sorted(x for x, _ in points)


def test_a_glance_at_a_long_run_shows_few_of_its_steps() -> None:
    losses = [float(step % 7) for step in range(20_000)]
    shown = glance([Curve("loss", list(range(20_000)), losses, losses)])
    assert shown is not None
    assert all(path.count("L") < 2 * MOST for path in (shown.reference, shown.candidate, shown.difference))


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1e-320), (-1.7e308, 1.7e308), (3.0, 3.0), (1.0, math.nextafter(1.0, 2.0)), (5e15, 5e15 + 1)]
)
def test_ticks_of_any_axis_are_few(low: float, high: float) -> None:
    assert 1 <= len(nice(low, high, 3)) < 10


def test_a_run_of_one_step_is_seen() -> None:
    """Through one point no line is seen."""
    seen = glance([Curve("loss", [0], [5.0], [5.1], [1e-6])])
    assert seen is not None
    assert all(path.endswith("m-4,0h8") for path in (seen.reference, seen.candidate, seen.difference))


def test_there_is_no_glance_at_no_number() -> None:
    assert glance([]) is None
    assert glance([Curve("loss", [0], [None], [float("nan")])]) is None
    assert glance([Curve("loss", [7], [1.0], [1.0], [1e-6])]) is not None


@pytest.mark.parametrize(("furthest", "is_plain"), [(0.0, True), (5e-6, True), (1e-3, False)])
def test_an_axis_is_plain_until_the_limit_would_be_a_line(furthest: float, is_plain: bool) -> None:
    axis = axis_of([0.0, None, -furthest], [1e-6, 1e-6, 1e-6])
    assert axis.plain is is_plain
    assert {-1e-6, 0.0, 1e-6} <= set(axis.ticks)
    assert (axis.small == 1e-6) is not is_plain
    assert axis_of([0.0, 3.0, float("nan")], []).plain  # there is no limit


# ---- the order of things


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_verdict_culprit_change_and_next_come_before_the_curves(opened: Open, diverged: ComparisonResult, width: int, height: int) -> None:
    whole: Any = drawn(opened(comparison_page(diverged, "1.2.3", checked()), width=width, height=height))
    places = (".suspects li >> nth=0", "#change", "#next", "#glance")
    suspect, change, following, losses = (whole.locator(place).bounding_box() for place in places)
    assert FAULT in whole.locator(".suspects li").first.inner_text().replace("\n", "")
    assert suspect["y"] + suspect["height"] < height
    assert suspect["y"] < change["y"] < following["y"]
    if width > 1000:
        assert losses["y"] + losses["height"] < height
        assert losses["x"] > following["x"] + following["width"]
    else:
        assert following["y"] + following["height"] <= losses["y"]


def test_the_losses_are_there_without_a_script(opened: Open, text: str) -> None:
    result = opened(text, java_script_enabled=False).page
    assert result.locator("#glance svg:visible").count() == 1


def test_the_sides_of_a_comparison_have_the_colours_of_their_curves(diverged: ComparisonResult) -> None:
    assert [one.look for one in of_runs(diverged.sides)] == list(Side)
