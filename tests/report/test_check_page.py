"""The page of a check, in a browser: what differs is on the first screen, nothing complains, and hostile names are inert."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from axe_core_python.sync_playwright import Axe

from align_hooks.checklist.result import Checklist, check
from align_hooks.compare.verdict import Comparison
from align_hooks.configuration.values import Place, Value
from align_hooks.report.check_page import check_page
from align_hooks.report.page import page
from checklist.exercises import OLD, megatron, mindformers
from report.conftest import HOSTILE, Opened

Open = Callable[..., Opened]


def checked(**changes: Any) -> Checklist:
    """A check of a pair that differs in the epsilon of the norms and in the schedule."""
    flags = {"norm-epsilon": "1e-6", "lr-decay-style": "cosine"}
    keys = {"lr_schedule.type": "CosineWithWarmUpLR", "lr_schedule.warmup_steps": 3}
    return check(megatron(OLD, flags), mindformers(OLD, keys | changes))


@pytest.fixture(scope="module")
def text() -> str:
    return check_page(checked(), "1.2.3")


def drawn(found: Opened) -> Any:
    found.page.wait_for_selector("html[data-drawn]", state="attached", timeout=300_000)
    return found.page


def test_the_difference_is_on_the_first_screen_with_both_values(opened: Open, text: str) -> None:
    found = opened(text)
    row = drawn(found).locator("table.checked tr", has_text="rms_norm_eps").first
    assert row.bounding_box()["y"] < 800
    cells = [cell.inner_text() for cell in row.locator("th, td").all()]
    assert [cells[0], cells[1].split()[0], cells[2].split()[0], cells[3]] == ["rms_norm_eps", "1e-06", "1e-05", "rms_norm_eps: 1.0e-06"]
    assert found.page.locator("#verdict-title .chip").inner_text() == "differs"
    assert found.clean


def test_the_learning_rate_is_drawn_and_read_out(opened: Open, text: str) -> None:
    whole = drawn(opened(text))
    figure = whole.locator("#plot-learning")
    assert figure.locator("svg").count() == 1
    figure.locator(".canvas").focus()
    whole.keyboard.press("ArrowRight")
    assert "step" in figure.locator(".readout").inner_text()


def test_every_row_is_on_the_page(opened: Open, text: str) -> None:
    whole = drawn(opened(text))
    rows = whole.locator("table.checked tbody tr").count() + whole.locator("dl.methods dt").count()
    assert rows == len(checked().checked)


def test_a_clean_check_says_so(opened: Open) -> None:
    found = opened(check_page(check(megatron(OLD, {}), mindformers(OLD, {})), "1.2.3"))
    assert drawn(found).locator("#verdict-title .chip").inner_text() == "clean"
    assert found.clean


@pytest.mark.parametrize(("language", "scheme"), [("en", "light"), ("zh", "dark")])
def test_no_accessibility_rule_is_broken(opened: Open, text: str, language: str, scheme: str) -> None:
    whole = drawn(opened(text, f"?lang={language}", color_scheme=scheme))
    broken = Axe().run(whole)["violations"]
    assert [(one["id"], [node["html"][:120] for node in one["nodes"][:3]]) for one in broken] == []


@pytest.mark.parametrize("width", [320, 390, 768])
def test_it_fits_a_telephone(opened: Open, text: str, width: int) -> None:
    whole = drawn(opened(text, width=width, height=800))
    assert whole.evaluate("document.documentElement.scrollWidth") <= width


def test_hostile_names_are_inert(opened: Open) -> None:
    one, other = megatron(OLD, {}), mindformers(OLD, {})
    values = {**other.values, HOSTILE: Value(HOSTILE, Place(HOSTILE)), "lr_schedule.type": Value(HOSTILE, Place(HOSTILE))}
    bent = replace(other, values=values, source=HOSTILE, notes=[HOSTILE])
    found = opened(check_page(check(one, bent), "1.2.3"))
    whole = drawn(found)
    assert whole.title() != "owned"
    assert whole.locator("img").count() == 0
    assert whole.locator("script:not([type])").count() == 2
    assert found.clean


def test_the_rows_stand_on_the_page_of_a_comparison(opened: Open, aligned: Comparison) -> None:
    found = opened(page(aligned, "1.2.3", checked()))
    assert "rms_norm_eps" in drawn(found).locator("section[aria-labelledby='checklist']").inner_text()
    assert found.clean
    assert drawn(opened(page(aligned, "1.2.3"))).locator("#checklist").count() == 0
