"""The page of a check, in a browser: what differs is on the first screen, nothing complains, and hostile names are inert."""

from msgspec.structs import replace

from align_hooks.checklist.result import CheckVerdict, check
from align_hooks.comparison.finding import when
from align_hooks.comparison.verdict import ComparisonResult
from align_hooks.configuration.values import SourceLocation, Value
from align_hooks.messages import rendered
from align_hooks.record.batch_statistics import BatchStatistics
from align_hooks.report.check import document
from align_hooks.report.comparison_page import comparison_page
from align_hooks.report.html import page
from checklist.exercises import OLD, megatron, mindformers
from report.conftest import HOSTILE, Open, assert_inert, checked, drawn


def test_the_difference_is_on_the_first_screen_with_both_values(opened: Open, check_text: str) -> None:
    result = opened(check_text)
    row = drawn(result).locator("table.checked tr", has_text="rms_norm_eps").first
    assert row.bounding_box()["y"] < 800
    name, reference, candidate, change = (cell.inner_text() for cell in row.locator("th, td").all())
    assert [text.split()[0] for text in (name, reference, candidate)] == ["rms_norm_eps", "1e-06", "1e-05"]
    assert change == "rms_norm_eps: 1.0e-06"
    assert result.page.locator("#verdict-title .chip").inner_text() == rendered(CheckVerdict.DIFFERS)
    assert result.clean


def test_the_learning_rate_is_drawn_and_read_out_and_every_row_is_there(opened: Open, check_text: str) -> None:
    whole = drawn(opened(check_text))
    figure = whole.locator("#plot-learning")
    assert figure.locator("svg").count() == 1
    figure.locator(".canvas").focus()
    whole.keyboard.press("ArrowRight")
    assert figure.locator(".readout").inner_text().startswith(rendered(when(0)))
    assert whole.locator("table.checked tbody tr").count() + whole.locator("section[aria-labelledby=rows] li").count() == len(
        checked().checked
    )


def test_a_clean_check_says_so(opened: Open) -> None:
    result = opened(page(document(check(megatron(OLD, {}), mindformers(OLD, {})), everything=True), "1.2.3"))
    assert drawn(result).locator("#verdict-title .chip").inner_text() == rendered(CheckVerdict.CLEAN)
    assert result.clean


def test_hostile_names_are_inert(opened: Open) -> None:
    candidate = mindformers(OLD, {})
    values = {
        **candidate.values,
        HOSTILE: Value(HOSTILE, SourceLocation(HOSTILE)),
        "lr_schedule.type": Value(HOSTILE, SourceLocation(HOSTILE)),
    }
    bent = replace(candidate, values=values, source=HOSTILE, notes=[HOSTILE])
    result = opened(page(document(check(megatron(OLD, {}), bent), everything=True), "1.2.3"))
    drawn(result)
    assert_inert(result)
    assert result.clean


def test_the_rows_stand_on_the_page_of_a_comparison(opened: Open, aligned: ComparisonResult) -> None:
    result = opened(comparison_page(aligned, "1.2.3", checked()))
    assert "rms_norm_eps" in drawn(result).locator("section[aria-labelledby='checklist']").inner_text()
    assert result.clean
    assert drawn(opened(comparison_page(aligned, "1.2.3"))).locator("#checklist").count() == 0


def test_a_check_of_recorded_batches_draws_its_schedules(opened: Open) -> None:
    """A section of the page is called ``data``; what its script reads is not."""
    side = replace(checked().sides[0], statistics=BatchStatistics([0], rows=4, tokens=8, counted=8))
    result = opened(page(document(replace(checked(), sides=(side, checked().sides[1])), everything=True), "1.2.3"))
    assert drawn(result).locator("#data").count() == 1
    assert result.page.locator("#plot-learning svg").count() == 1
    assert result.clean
