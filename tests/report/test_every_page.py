"""Pages on any screen and on paper: accessible, in both languages and colour schemes, on a telephone, and without scripts."""

from pathlib import Path
from typing import Any

import pytest
from axe_core_python.sync_playwright import Axe
from msgspec.structs import replace

from align_hooks.comparison.verdict import ComparisonResult
from align_hooks.messages import message, with_commands
from align_hooks.report.comparison_page import comparison_page
from chosen import slow
from report.conftest import FAULT, Open, drawn
from worded import words


@pytest.fixture(params=["text", "check_text", "watch_text"])
def any_text(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.mark.parametrize(("language", "scheme"), [("en", "light"), slow(("zh", "dark"))])
def test_no_accessibility_rule_is_broken(opened: Open, any_text: str, language: str, scheme: str) -> None:
    violations = Axe().run(drawn(opened(any_text, f"?lang={language}", color_scheme=scheme)))["violations"]
    assert [(rule["id"], [node["html"][:120] for node in rule["nodes"][:3]]) for rule in violations] == []


@pytest.mark.parametrize("width", [slow(320), 390, slow(768)])
def test_it_fits_a_telephone(opened: Open, any_text: str, width: int) -> None:
    whole = drawn(opened(any_text, width=width, height=800))
    assert whole.evaluate("document.documentElement.scrollWidth") <= width
    assert any(culprit in whole.locator("#verdict").inner_text() for culprit in (FAULT, "rms_norm_eps", words("metric.loss")))


@pytest.mark.parametrize("width", [320, 390])
@pytest.mark.slow
def test_long_paths_and_commands_fit_a_telephone(opened: Open, diverged: ComparisonResult, width: int) -> None:
    path = "/shared/storage/of/somebody/with_a_long_name/experiments_of_this_year/run_that_is_compared"
    long = replace(diverged, sides=tuple(replace(side, path=path) for side in diverged.sides))
    long = replace(long, next=with_commands(message("page.next"), f"ALIGN_HOOKS_RUN={path} {path}"))
    whole = drawn(opened(comparison_page(long, "1.2.3"), width=width, height=800))
    assert whole.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
def test_dark_mode_reaches_the_plots(opened: Open, text: str) -> None:
    ink = "getComputedStyle(document.querySelector('#plot-loss svg .role-axis-label text, #plot-loss svg text')).fill"
    assert drawn(opened(text, color_scheme="dark")).evaluate(ink) != drawn(opened(text, color_scheme="light")).evaluate(ink)


@pytest.mark.slow
def test_it_prints(opened: Open, text: str, tmp_path: Path) -> None:
    result = drawn(opened(text, color_scheme="dark"))
    result.emulate_media(media="print")
    assert result.locator("nav").is_hidden()
    assert result.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    printed = result.pdf(path=tmp_path / "page.pdf", prefer_css_page_size=True)
    assert printed.startswith(b"%PDF")
    assert result.locator("#plot-loss svg").is_visible()


def test_without_scripts_nothing_pretends_to_work(opened: Open, text: str) -> None:
    result = opened(text, java_script_enabled=False).page
    assert result.locator("button:not(.term):visible, input:visible, select:visible").count() == 0


@pytest.mark.slow
def test_plots_say_what_they_are_to_a_screen_reader(whole: Any) -> None:
    assert whole.locator("#plot-loss .canvas").get_attribute("aria-label") == words("page.arrow_keys", plot=message("metric.loss"))
