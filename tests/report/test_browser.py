"""Pages in headless Chromium: they open without a network and without a complaint, and what they offer works."""

import re
from pathlib import Path
from typing import Any

import pytest
from axe_core_python.sync_playwright import Axe
from msgspec.structs import replace

from align_hooks.comparison.finding import when
from align_hooks.comparison.health import Condition
from align_hooks.comparison.stage_result import Status
from align_hooks.comparison.verdict import ComparisonResult, Verdict
from align_hooks.messages import message, rendered
from align_hooks.messages.catalogue import CHINESE
from align_hooks.report.blocks import parts_of
from align_hooks.report.comparison_page import comparison_page
from align_hooks.report.html import page
from align_hooks.report.run import document
from chosen import slow
from report.conftest import FAULT, HOSTILE, Open, Opened, Pairs, assert_inert, drawn, healthy, model, planted, renamed
from worded import words

MEGABYTE = 1_000_000


def settled(result: Any) -> None:
    """Wait until every plot shows what it was last told: two frames on, whatever was promised before the first is kept."""
    result.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(null))))")


def visible(result: Any, selector: str) -> str:
    return str(result.locator(selector).inner_text())


def unfolded(result: Any) -> Any:
    """The page with its table of tensors open."""
    result.click("details:has(#tensors) > summary")
    return result


# ---- opening


def test_nothing_is_fetched_and_nothing_complains(opened: Open, text: str) -> None:
    result = opened(text)
    drawn(result)
    assert result.clean


def test_it_opens_under_the_policy_that_it_states(opened: Open, text: str) -> None:
    """A script that was slipped in does not run, an image is not loaded, and both are reported."""
    slipped = "<script>document.title='owned'</script><img src='https://example.org/x.png'>"
    result = opened(text.replace("<footer>", f"<footer>{slipped}"))
    assert result.page.title() != "owned"
    assert result.page.locator("footer img").evaluate("image => image.naturalWidth") == 0
    assert sum("Content Security Policy" in text for text in result.messages) >= 2


@pytest.mark.parametrize("javascript", [True, False])
def test_the_culprit_is_in_the_first_screen(opened: Open, text: str, javascript: bool) -> None:
    result = opened(text, java_script_enabled=javascript).page
    suspect = result.locator(".suspects li").first
    assert FAULT in suspect.inner_text()
    box = suspect.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < 800
    assert visible(result, "#verdict-title").startswith(rendered(Verdict.DIVERGED))
    assert FAULT in visible(result, "#verdict-title")


@pytest.mark.slow
def test_what_scrolls_sideways_on_a_telephone_says_so(opened: Open, text: str) -> None:
    page = opened(text, width=390).page
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    wide = """() => [...document.querySelectorAll('*')].filter(one => one.scrollWidth > one.clientWidth + 2
        && getComputedStyle(one).overflowX === 'auto').map(one => getComputedStyle(one).backgroundImage)"""
    hints = page.evaluate(wide)
    assert len(hints) > 1 and all("gradient" in hint for hint in hints)
    assert page.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.slow
def test_two_thousand_tensors_and_five_thousand_steps_are_drawn_with_little_work(opened: Open, large: ComparisonResult) -> None:
    assert sum("." in finding.name for stage in large.stages for finding in stage.findings if stage.name == "gradients") == 2001
    assert len(large.curves[0].steps) == 5000
    text = comparison_page(large, "1.2.3")
    assert len(text) < 3 * MEGABYTE
    result = opened(text, counted=True)
    whole = drawn(result)
    assert result.clean
    assert whole.locator("#picture svg [role=graphics-symbol]").count() >= 2001
    counts = work(result)
    print(counts)
    assert counts["blocks"] < 10_000_000  # 7.8 million; a look at every tensor or step for every other adds 4 or 25
    assert counts["Nodes"] < 15_000  # 10 thousand: the picture has one a tensor, the table 50 rows
    assert counts["LayoutCount"] < 50  # 10, however many plots there are
    assert counts["RecalcStyleCount"] < 50
    assert counts["JSEventListeners"] < 200
    assert whole.locator("#tensor-table tbody tr").count() == 12


def work(opened: Opened) -> dict[str, int]:
    """What a page has done so far, counted: the same on every machine."""
    functions = [one for script in opened.session.send("Profiler.takePreciseCoverage")["result"] for one in script["functions"]]
    metrics = {metric["name"]: metric["value"] for metric in opened.session.send("Performance.getMetrics")["metrics"]}
    blocks = sum(stretch["count"] for function in functions for stretch in function["ranges"])
    return {"blocks": blocks} | {name: int(metrics[name]) for name in ("Nodes", "LayoutCount", "RecalcStyleCount", "JSEventListeners")}


# ---- the table of tensors


def test_the_table_filters(whole: Any) -> None:
    unfolded(whole)
    names = whole.locator("#tensor-table tbody th")
    assert names.first.inner_text() == FAULT
    whole.fill("#filter", "layers.1 MLP")
    assert set(names.all_inner_texts()) == {f"model.layers.1.mlp.{kind}_proj.weight" for kind in ("gate", "up", "down")}
    whole.select_option("#of-stage", label=words("stage.gradients"))
    assert whole.locator("#tensor-table tbody tr").count() == 3
    assert re.findall(r"\d+", visible(whole, "#count"))[:2] == ["3", "3"]  # shown, of those that match
    whole.fill("#filter", "")
    whole.check("#only-out")
    assert names.all_inner_texts() == [FAULT]
    whole.fill("#filter", "no such tensor")
    assert re.findall(r"\d+", visible(whole, "#count"))[:2] == ["0", "0"]


@pytest.mark.slow
def test_the_table_sorts_by_a_key_press(whole: Any) -> None:
    unfolded(whole)
    whole.select_option("#of-stage", label=words("stage.gradients"))
    whole.click("#more")
    errors = whole.locator("#tensor-table tbody tr td:nth-child(3)")
    whole.focus("#tensor-table button[data-key=error]")
    whole.keyboard.press("Enter")
    assert whole.locator("#tensor-table th[aria-sort=descending]").inner_text().startswith(words("page.error"))
    values = [float(error) for error in errors.all_inner_texts()]
    assert values == sorted(values, reverse=True)
    whole.keyboard.press("Enter")
    assert [float(error) for error in errors.all_inner_texts()] == sorted(values)
    whole.focus("#tensor-table button[data-key=name]")
    whole.keyboard.press("Enter")
    names = [name.split(".")[2] for name in whole.locator("#tensor-table tbody th").all_inner_texts() if ".layers." in name]
    assert names == sorted(names, key=int)


@pytest.mark.slow
def test_more_rows_are_shown_when_asked_for(whole: Any) -> None:
    unfolded(whole)
    assert whole.locator("#tensor-table tbody tr").count() == 12
    whole.click("#more")
    assert whole.locator("#tensor-table tbody tr").count() > 100
    assert whole.locator("#more").is_hidden()


@pytest.mark.slow
def test_configurations_show_what_differs_and_on_demand_all(opened: Open, compared: Pairs) -> None:
    reference = model(1, 12)
    candidate = planted(reference, "lm_head.weight")
    candidate.model |= {"rms_norm_eps": 1e-6}
    result = opened(comparison_page(compared(reference, candidate), "1.2.3")).page
    section = result.locator("section[aria-labelledby=configurations]")
    shown = section.locator("tbody tr:not(.group) th:visible")
    assert shown.all_inner_texts() == ["rms_norm_eps ≠"]
    section.locator("summary").last.click()
    assert {"model_type", "path", "rms_norm_eps ≠"} <= set(shown.all_inner_texts())


# ---- deep links


def test_a_link_to_a_tensor_filters_for_it(opened: Open, text: str) -> None:
    result = opened(text, f"#tensor={FAULT}").page
    assert set(result.locator("#tensor-table tbody th").all_inner_texts()) == {FAULT}
    assert result.evaluate("document.getElementById('tensors').getBoundingClientRect().top") < 200
    assert opened(text, "#tensor=%E0%A4%A").clean  # an address that somebody broke


@pytest.mark.slow
def test_a_link_that_was_followed_already_is_followed_again(whole: Any) -> None:
    whole.click(".suspects a")
    assert whole.input_value("#filter") == FAULT
    whole.fill("#filter", "norm")
    whole.click(".suspects a")
    assert whole.input_value("#filter") == FAULT


@pytest.mark.slow
def test_a_name_that_looks_like_an_address_is_linked_whole(opened: Open, compared: Pairs) -> None:
    name = "model.layers.0.a=b&c#d 100%41 e.weight"
    reference = renamed(model(1), name)
    result = opened(comparison_page(compared(reference, planted(reference, name)), "1.2.3")).page
    result.click(".suspects a")
    assert result.input_value("#filter") == name
    assert result.locator("#tensor-table tbody tr").count() > 1


@pytest.mark.parametrize("slug", ["stage-gradients", "stage-local-norms"])
def test_a_link_to_a_stage_opens_it_and_what_it_is_folded_in(opened: Open, text: str, slug: str) -> None:
    stage = opened(text, f"#{slug}").page.locator(f"#{slug}")
    assert stage.locator("p.method").is_visible()
    assert stage.evaluate("it => it.getBoundingClientRect().top") < 300


@pytest.mark.parametrize("explained", [False, True])
@pytest.mark.slow
def test_the_ladder_and_the_explanation_of_a_stage_lead_to_its_findings(whole: Any, *, explained: bool) -> None:
    assert whole.locator("#stage-gradients table").is_hidden()
    if explained:
        whole.click(".ladder [popovertarget=about-stage-gradients]")
    whole.click("#about-stage-gradients a" if explained else ".ladder a[href='#stage-gradients']")
    whole.wait_for_selector("#stage-gradients[open]")
    assert whole.locator("#stage-gradients table").is_visible()
    assert whole.locator("#about-stage-gradients").is_hidden()


@pytest.mark.slow
def test_every_address_on_the_page_is_there_once(whole: Any) -> None:
    links = whole.evaluate("[...document.querySelectorAll('a[href^=\"#\"]')].map((link) => link.hash.slice(1))")
    assert len(links) > 30
    assert [link for link in links if not link.startswith("tensor=") and whole.locator(f"[id='{link}']").count() != 1] == []
    ids = whole.evaluate("[...document.querySelectorAll('[id]')].map((element) => element.id)")
    assert len(ids) == len(set(ids))


# ---- plots


def test_a_plot_reads_values_out(whole: Any, diverged: ComparisonResult) -> None:
    canvas, readout = whole.locator("#plot-loss .canvas"), whole.locator("#plot-loss .readout")
    canvas.focus()
    whole.keyboard.press("End")
    curve = diverged.curves[0]
    assert readout.inner_text().startswith(rendered(when(39)))
    assert words("page.value_of_reference", value=f"{curve.reference[-1]:.9g}") in readout.inner_text()
    whole.keyboard.press("ArrowLeft")
    assert readout.inner_text().startswith(rendered(when(38)))
    canvas.hover(position={"x": 600, "y": 60})
    for kind in ("noise", "limit"):
        assert words(f"page.value_of_{kind}", value="").strip() in readout.inner_text()


def test_a_plot_zooms_by_dragging_and_by_numbers(whole: Any) -> None:
    figure = whole.locator("#plot-loss")
    first, last = figure.locator(".from"), figure.locator(".to")
    assert (first.input_value(), last.input_value()) == ("0", "39")
    before = figure.locator("svg").inner_html()
    figure.scroll_into_view_if_needed()
    box = figure.locator("svg").bounding_box()
    assert box is not None
    whole.mouse.move(box["x"] + 150, box["y"] + 80)
    whole.mouse.down()
    whole.mouse.move(box["x"] + 300, box["y"] + 90, steps=5)
    whole.mouse.move(box["x"] + 450, box["y"] + 90, steps=5)
    whole.mouse.up()
    settled(whole)
    assert 0 < int(first.input_value()) < int(last.input_value()) < 39
    assert figure.locator("svg").inner_html() != before
    figure.locator(".reset").click()
    assert (first.input_value(), last.input_value()) == ("0", "39")
    first.fill("10")
    first.press("Enter")
    settled(whole)
    assert "10" in figure.locator("svg").text_content()
    assert (first.input_value(), last.input_value()) == ("10", "39")


def abscissas(figure: Any) -> list[float]:
    """Where a plot's reference line goes, from left to right if it is right."""
    path = figure.locator(".mark-line path").first.get_attribute("d")
    return [float(point.split(",")[0]) for point in path.replace("M", "L").split("L") if point]


@pytest.mark.parametrize("which", ["text", slow("large")])
@pytest.mark.slow
def test_lines_go_from_left_to_right_whatever_was_zoomed(opened: Open, request: pytest.FixtureRequest, which: str) -> None:
    """A plot keeps the rows that it knows in their old order, so it is never handed one twice."""
    fixture = request.getfixturevalue(which)
    whole = drawn(opened(fixture if which == "text" else comparison_page(fixture, "1.2.3")))
    figure = whole.locator("#plot-loss")
    last = int(figure.locator(".to").input_value())
    for numbers in ((last // 4, last // 2), (0, last), (last // 3, last // 3 + 9), (last, last // 2), None):
        if numbers is None:
            figure.locator(".reset").click()
        else:
            figure.locator(".from").fill(str(min(numbers)))
            figure.locator(".to").fill(str(max(numbers)))
            figure.locator(".to").press("Enter")
        settled(whole)
        across = abscissas(figure)
        assert len(across) > 5
        assert across == sorted(across)


@pytest.mark.slow
def test_numbers_to_zoom_to_are_kept_within_the_axis(opened: Open, text: str) -> None:
    figure = drawn(opened(text)).locator("#plot-loss")
    first, last = figure.locator(".from"), figure.locator(".to")
    cases = {("30", "10"): ("10", "30"), ("", "20"): ("0", "20"), ("1e9", "2e9"): ("0", "39"), ("-5", "12"): ("0", "12")}
    for (low, high), expected in cases.items():
        figure.locator(".reset").click()
        last.fill(high)
        first.fill(low)
        first.press("Enter")
        assert (first.input_value(), last.input_value()) == expected


@pytest.mark.slow
def test_what_is_not_finite_is_read_out_as_such(opened: Open, diverged: ComparisonResult) -> None:
    curve = diverged.curves[0]
    odd = replace(curve, candidate=[float("nan"), float("inf"), None, *curve.candidate[3:]])
    result = opened(comparison_page(replace(diverged, curves=(odd,)), "1.2.3"))
    drawn(result).locator("#plot-loss .canvas").focus()
    for candidate, difference in (("nan", "NaN"), ("inf", "∞"), ("–", "")):
        result.page.keyboard.press("ArrowRight")
        readout = visible(result.page, "#plot-loss .readout")
        assert words("page.value_of_candidate", value=candidate) in readout
        assert (words("page.value_of_difference", value=difference).strip() in readout) is (difference != "")
    assert result.clean


@pytest.mark.slow
def test_thinning_keeps_a_spike(opened: Open, large: ComparisonResult) -> None:
    """Of 5,000 steps the one that differs is seen, and a zoom shows every step around it."""
    curve = large.curves[0]
    spiky = [value if step != 3210 else (value or 0) * 1.5 for step, value in enumerate(curve.candidate)]
    bent = replace(large, curves=(replace(curve, candidate=spiky),))
    result = drawn(opened(comparison_page(bent, "1.2.3")))
    assert "0.5" in result.locator("#plot-loss svg").text_content()  # the difference at that step labels the axis


@pytest.mark.slow
def test_the_picture_shows_where_it_starts_and_leads_to_the_tensor(whole: Any) -> None:
    cells = whole.locator("#picture svg [role=graphics-symbol]")
    labels = {cell.get_attribute("aria-label") for cell in cells.all()}
    assert any(label and label.startswith(FAULT) for label in labels)
    assert whole.locator("input[name=picture]:checked").evaluate("it => it.parentElement.innerText").strip() == words("stage.gradients")
    cell = whole.locator(f"#picture svg [aria-label^='{FAULT}']")
    cell.hover()
    assert FAULT in visible(whole, ".vega-tip")
    cell.click()
    assert whole.input_value("#filter") == FAULT
    assert set(whole.locator("#tensor-table tbody th").all_inner_texts()) == {FAULT}
    whole.check("input[name=picture] >> nth=0")
    settled(whole)
    assert "var(--bin-0)" in whole.locator("#picture svg").inner_html()


# ---- language


def test_chinese_by_the_switch_the_address_and_the_browser(opened: Open, text: str, whole: Any) -> None:
    pressed = whole.locator("#language [aria-pressed=true]")
    assert pressed.get_attribute("data-language") == "en"
    whole.click("#language [data-language=zh]")
    assert pressed.get_attribute("data-language") == "zh"
    assert whole.evaluate("document.documentElement.lang") == "zh"
    english, chinese = rendered(Verdict.DIVERGED), rendered(Verdict.DIVERGED, CHINESE)
    assert chinese in visible(whole, "#verdict-title")
    assert english not in visible(whole, "main")
    assert rendered(message("page.error"), CHINESE) in whole.locator("#tensor-table thead").text_content()
    assert rendered(message("page.step"), CHINESE) in whole.locator("#plot-loss svg").text_content()
    labels = "[...document.querySelectorAll('[data-label-zh]')].map((one) => [one.getAttribute('aria-label'), one.dataset.labelZh])"
    labelled = whole.evaluate(labels)
    assert len(labelled) > 10
    assert all(shown == other for shown, other in labelled)
    assert whole.title() == whole.locator("title").get_attribute("data-zh")
    whole.click("#language [data-language=en]")
    assert [shown for shown, other in whole.evaluate(labels) if shown == other] == []
    assert english in visible(whole, "#verdict-title")
    assert chinese in visible(opened(text, "?lang=zh").page, "#verdict-title")
    assert chinese in visible(opened(text, locale="zh-CN").page, "#verdict-title")
    assert english in visible(opened(text, "?lang=en", locale="zh-CN").page, "#verdict-title")


def test_the_command_of_the_next_step_can_be_copied(opened: Open, text: str, diverged: ComparisonResult) -> None:
    """The command alone, and not the sentence that it stands in."""
    result = opened(text, permissions=["clipboard-read", "clipboard-write"]).page
    result.click("#next [lang=en] button.copy")
    copied = result.locator(f"button.copy:text-is('{words('page.copied')}')")
    copied.wait_for()  # not wait_for_function, whose eval the page's policy refuses
    _, command = parts_of(diverged.next)
    assert result.evaluate("navigator.clipboard.readText()") == rendered(command)


@pytest.mark.slow
def test_a_word_is_explained_where_it_stands_by_keyboard_and_without_scripts(opened: Open, text: str) -> None:
    for javascript in (True, False):
        result = opened(text, java_script_enabled=javascript).page
        about, word = result.locator("#about-limit"), result.locator(".words [popovertarget=about-limit]").first
        assert about.is_hidden()
        word.focus()
        result.keyboard.press("Enter")
        assert words("method.limits") in about.inner_text()
        result.keyboard.press("Escape")
        assert about.is_hidden()


@pytest.mark.slow
def test_what_agrees_or_was_not_compared_is_a_line_of_the_ladder(whole: Any, diverged: ComparisonResult) -> None:
    quiet = [result for result in diverged.stages if result.status in (Status.SAME, Status.NOT_COMPARED)]
    assert whole.locator(".ladder .term").count() == len(diverged.stages)
    assert whole.locator(".ladder li").count() < len(diverged.stages) - len(quiet) / 2


# ---- a hostile record


def test_hostile_names_are_inert(opened: Open, hostile: ComparisonResult) -> None:
    result = opened(comparison_page(hostile, "1.2.3"))
    whole = drawn(result)
    assert_inert(result)
    assert "{{7*7}}" in visible(whole, ".suspects")
    unfolded(whole)
    whole.fill("#filter", HOSTILE[:30].lower())
    assert whole.locator("#tensor-table tbody th").first.inner_text().count("<script>") == 1
    whole.locator("#picture svg path[aria-label*='<script>']").hover()
    assert "<script>" in visible(whole, ".vega-tip")
    whole.click("#language [data-language=zh]")
    assert whole.title() != "owned"
    assert result.clean


# ---- other verdicts, and a run alone


def test_an_aligned_pair_says_so_and_how_close_it_came(opened: Open, aligned: ComparisonResult) -> None:
    result = opened(comparison_page(aligned, "1.2.3"))
    assert visible(drawn(result), "#verdict-title").startswith(rendered(Verdict.ALIGNED))
    assert words("page.closest") in visible(result.page, "#verdict")
    assert result.clean


@pytest.mark.slow
def test_a_pair_that_cannot_be_compared(opened: Open, compared: Pairs) -> None:
    """No limits, no tensors; nothing of it makes a plot complain."""
    result = opened(comparison_page(compared(model(1, 12), model(2, 12)), "1.2.3"))
    assert visible(drawn(result), "#verdict-title").startswith(rendered(Verdict.NOT_COMPARABLE))
    assert result.page.locator("#tensors").count() == 0
    assert result.clean


@pytest.mark.slow
def test_a_run_alone(opened: Open, tmp_path: Path) -> None:
    result = opened(page(document(healthy(model(2, 40), tmp_path / "run")), "1.2.3"))
    whole = drawn(result)
    assert visible(whole, "#verdict-title").startswith(rendered(Condition.CLEAN))
    assert whole.locator(".plot svg").count() == 3
    assert whole.locator("#ranks").count() == 1
    assert Axe().run(whole)["violations"] == []
    assert result.clean
