"""Pages in headless Chromium: they open without a network and without a complaint, and what they offer works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from axe_core_python.sync_playwright import Axe

from align_hooks.compare.verdict import Comparison
from align_hooks.messages import rendered
from align_hooks.report.page import page
from align_hooks.report.run_page import run_page
from report.conftest import HOSTILE, Opened, Pairs, healthy, model, planted

Open = Callable[..., Opened]
FAULT = "model.layers.2.self_attn.q_proj.weight"
MEGABYTE = 1_000_000


@pytest.fixture(scope="session")
def text(diverged: Comparison) -> str:
    return page(diverged, "1.2.3")


def drawn(found: Opened) -> Any:
    """The page, every plot drawn."""
    found.page.wait_for_selector("html[data-drawn]", state="attached", timeout=300_000)
    return found.page


def settled(found: Any) -> None:
    """Wait until every plot shows what it was last told: two frames on, whatever was promised before the first is kept."""
    found.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(null))))")


def visible(found: Any, selector: str) -> str:
    return str(found.locator(selector).inner_text())


# ---- opening


def test_nothing_is_fetched_and_nothing_complains(opened: Open, text: str) -> None:
    found = opened(text)
    drawn(found)
    assert found.clean


def test_it_opens_under_the_policy_that_it_states(opened: Open, text: str) -> None:
    """A script that was slipped in does not run, an image is not loaded, and both are reported."""
    slipped = "<script>document.title='owned'</script><img src='https://example.org/x.png'>"
    found = opened(text.replace("<footer>", f"<footer>{slipped}"))
    assert found.page.title() != "owned"
    assert found.page.locator("footer img").evaluate("image => image.naturalWidth") == 0
    assert sum("Content Security Policy" in one for one in found.said) >= 2


@pytest.mark.parametrize("javascript", [True, False])
def test_the_culprit_is_in_the_first_screen(opened: Open, text: str, javascript: bool) -> None:
    found = opened(text, java_script_enabled=javascript).page
    suspect = found.locator(".suspects li").first
    assert FAULT in suspect.inner_text()
    box = suspect.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < 800
    assert visible(found, "#verdict-title").startswith("diverged")
    assert "gradients" in visible(found, "#verdict-title")


def test_two_thousand_tensors_and_five_thousand_steps_are_drawn_with_little_work(opened: Open, large: Comparison) -> None:
    assert sum("." in one.name for stage in large.stages for one in stage.findings if stage.name == "gradients") == 2001
    assert len(large.curves[0].steps) == 5000
    text = page(large, "1.2.3")
    assert len(text) < 3 * MEGABYTE
    found = opened(text, counted=True)
    whole = drawn(found)
    assert found.clean
    assert whole.locator("#picture svg [role=graphics-symbol]").count() >= 2001
    done = work(found)
    print(done)
    assert done["blocks"] < 10_000_000  # 7.8 million; a look at every tensor or step for every other adds 4 or 25
    assert done["Nodes"] < 15_000  # 10 thousand: the picture has one a tensor, the table 50 rows
    assert done["LayoutCount"] < 50  # 10, however many plots there are
    assert done["RecalcStyleCount"] < 50
    assert done["JSEventListeners"] < 200
    assert whole.locator("#tensor-table tbody tr").count() == 50


def work(found: Opened) -> dict[str, int]:
    """What a page has done so far, counted: the same on every machine."""
    blocks = [
        stretch["count"]
        for script in found.session.send("Profiler.takePreciseCoverage")["result"]
        for function in script["functions"]
        for stretch in function["ranges"]
    ]
    metrics = {one["name"]: one["value"] for one in found.session.send("Performance.getMetrics")["metrics"]}
    return {"blocks": sum(blocks)} | {name: int(metrics[name]) for name in ("Nodes", "LayoutCount", "RecalcStyleCount", "JSEventListeners")}


# ---- the table of tensors


def test_the_table_filters(opened: Open, text: str) -> None:
    found = opened(text).page
    names = found.locator("#tensor-table tbody th")
    assert names.first.inner_text() == FAULT
    found.fill("#filter", "layers.1 MLP")
    assert set(names.all_inner_texts()) == {f"model.layers.1.mlp.{kind}_proj.weight" for kind in ("gate", "up", "down")}
    found.select_option("#of-stage", label="gradients")
    assert found.locator("#tensor-table tbody tr").count() == 3
    assert visible(found, "#count").startswith("3 of 3 shown")
    found.fill("#filter", "")
    found.check("#only-out")
    assert names.all_inner_texts() == [FAULT]
    found.fill("#filter", "no such tensor")
    assert visible(found, "#count").startswith("0 of 0 shown")


def test_the_table_sorts_by_a_key_press(opened: Open, text: str) -> None:
    found = opened(text).page
    found.select_option("#of-stage", label="gradients")
    errors = found.locator("#tensor-table tbody tr td:nth-child(3)")
    found.focus("#tensor-table button[data-key=error]")
    found.keyboard.press("Enter")
    assert found.locator("#tensor-table th[aria-sort=descending]").inner_text().startswith("error")
    values = [float(one) for one in errors.all_inner_texts()]
    assert values == sorted(values, reverse=True)
    found.keyboard.press("Enter")
    assert [float(one) for one in errors.all_inner_texts()] == sorted(values)
    found.focus("#tensor-table button[data-key=name]")
    found.keyboard.press("Enter")
    names = [one.split(".")[2] for one in found.locator("#tensor-table tbody th").all_inner_texts() if ".layers." in one]
    assert names == sorted(names, key=int)


def test_more_rows_are_shown_when_asked_for(opened: Open, text: str) -> None:
    found = opened(text).page
    assert found.locator("#tensor-table tbody tr").count() == 50
    found.click("#more")
    assert found.locator("#tensor-table tbody tr").count() > 100
    assert found.locator("#more").is_hidden()


def test_configurations_show_what_differs_and_on_demand_all(opened: Open, compared: Pairs) -> None:
    reference = model(1, 12)
    candidate = planted(reference, "lm_head.weight")
    candidate.model |= {"rms_norm_eps": 1e-6}
    found = opened(page(compared(reference, candidate), "1.2.3")).page
    shown = found.locator("table.configuration tbody tr:not(.group):visible th")
    assert "rms_norm_eps ≠" in shown.all_inner_texts()
    assert "path" in shown.all_inner_texts()
    assert "model_type" not in shown.all_inner_texts()
    found.uncheck("#only-different")
    assert "model_type" in shown.all_inner_texts()


# ---- deep links


def test_a_link_to_a_tensor_filters_for_it(opened: Open, text: str) -> None:
    found = opened(text, f"#tensor={FAULT}").page
    assert set(found.locator("#tensor-table tbody th").all_inner_texts()) == {FAULT}
    assert found.evaluate("document.getElementById('tensors').getBoundingClientRect().top") < 200
    assert opened(text, "#tensor=%E0%A4%A").clean  # an address that somebody broke


def test_a_link_that_was_followed_already_is_followed_again(opened: Open, text: str) -> None:
    found = opened(text).page
    found.click(".suspects a")
    assert found.input_value("#filter") == FAULT
    found.fill("#filter", "norm")
    found.click(".suspects a")
    assert found.input_value("#filter") == FAULT


def test_a_name_that_looks_like_an_address_is_linked_whole(opened: Open, compared: Pairs) -> None:
    name = "model.layers.0.a=b&c#d 100%41 e.weight"
    reference = model(1)
    for part in (reference.shapes, reference.weights[0], reference.gradients[0]):
        part[name] = part.pop("model.layers.0.self_attn.q_proj.weight")
    reference.norms, reference.optimizer = {}, {}
    reference.__post_init__()
    found = opened(page(compared(reference, planted(reference, name)), "1.2.3")).page
    found.click(".suspects a")
    assert found.input_value("#filter") == name
    assert found.locator("#tensor-table tbody tr").count() > 1


def test_a_link_to_a_stage_opens_it(opened: Open, text: str) -> None:
    found = opened(text).page
    stage = found.locator("#stage-local-norms")
    assert stage.get_attribute("open") is None
    found.click(".ladder a[href='#stage-local-norms']")
    found.wait_for_selector("#stage-local-norms[open]")
    assert stage.evaluate("it => it.getBoundingClientRect().top") < 300


def test_every_address_on_the_page_is_there_once(opened: Open, text: str) -> None:
    found = opened(text).page
    links = found.evaluate("[...document.querySelectorAll('a[href^=\"#\"]')].map((link) => link.hash.slice(1))")
    assert len(links) > 30
    assert [one for one in links if not one.startswith("tensor=") and found.locator(f"[id='{one}']").count() != 1] == []
    assert (
        found.evaluate(
            "[...document.querySelectorAll('[id]')].length - new Set([...document.querySelectorAll('[id]')].map((e) => e.id)).size"
        )
        == 0
    )


# ---- plots


def test_a_plot_reads_values_out(opened: Open, text: str, diverged: Comparison) -> None:
    found = drawn(opened(text))
    canvas, readout = found.locator("#plot-loss .canvas"), found.locator("#plot-loss .readout")
    canvas.focus()
    found.keyboard.press("End")
    curve = diverged.curves[0]
    assert f"step 39 (iteration 40): reference {curve.reference[-1]:.9g}" in readout.inner_text()
    found.keyboard.press("ArrowLeft")
    assert readout.inner_text().startswith("step 38 (iteration 39)")
    canvas.hover(position={"x": 600, "y": 60})
    assert "noise" in readout.inner_text()
    assert "limit" in readout.inner_text()


def test_a_plot_zooms_by_dragging_and_by_numbers(opened: Open, text: str) -> None:
    found = drawn(opened(text))
    figure = found.locator("#plot-loss")
    first, last = figure.locator(".from"), figure.locator(".to")
    assert (first.input_value(), last.input_value()) == ("0", "39")
    before = figure.locator("svg").inner_html()
    figure.scroll_into_view_if_needed()
    box = figure.locator("svg").bounding_box()
    assert box is not None
    found.mouse.move(box["x"] + 300, box["y"] + 80)
    found.mouse.down()
    found.mouse.move(box["x"] + 500, box["y"] + 90, steps=5)
    found.mouse.move(box["x"] + 700, box["y"] + 90, steps=5)
    found.mouse.up()
    settled(found)
    assert 0 < int(first.input_value()) < int(last.input_value()) < 39
    assert figure.locator("svg").inner_html() != before
    figure.locator(".reset").click()
    assert (first.input_value(), last.input_value()) == ("0", "39")
    first.fill("10")
    first.press("Enter")
    settled(found)
    assert "10" in figure.locator("svg").text_content()
    assert (first.input_value(), last.input_value()) == ("10", "39")


def abscissas(figure: Any) -> list[float]:
    """Where a plot's reference line goes, from left to right if it is right."""
    path = figure.locator(".mark-line path").first.get_attribute("d")
    return [float(one.split(",")[0]) for one in path.replace("M", "L").split("L") if one]


@pytest.mark.parametrize("which", ["text", "large"])
def test_lines_go_from_left_to_right_whatever_was_zoomed(opened: Open, request: pytest.FixtureRequest, which: str) -> None:
    """A plot keeps the rows that it knows in their old order, so it is never handed one twice."""
    given = request.getfixturevalue(which)
    found = drawn(opened(given if which == "text" else page(given, "1.2.3")))
    figure = found.locator("#plot-loss")
    last = int(figure.locator(".to").input_value())
    for numbers in ((last // 4, last // 2), (0, last), (last // 3, last // 3 + 9), (last, last // 2), None):
        if numbers is None:
            figure.locator(".reset").click()
        else:
            figure.locator(".from").fill(str(min(numbers)))
            figure.locator(".to").fill(str(max(numbers)))
            figure.locator(".to").press("Enter")
        settled(found)
        across = abscissas(figure)
        assert len(across) > 5
        assert across == sorted(across)


def test_numbers_to_zoom_to_are_kept_within_the_axis(opened: Open, text: str) -> None:
    figure = drawn(opened(text)).locator("#plot-loss")
    first, last = figure.locator(".from"), figure.locator(".to")
    for low, high, expected in (
        ("30", "10", ("10", "30")),
        ("", "20", ("0", "20")),
        ("1e9", "2e9", ("0", "39")),
        ("-5", "12", ("0", "12")),
    ):
        figure.locator(".reset").click()
        last.fill(high)
        first.fill(low)
        first.press("Enter")
        assert (first.input_value(), last.input_value()) == expected


def test_what_is_not_finite_is_read_out_as_such(opened: Open, diverged: Comparison) -> None:
    curve = diverged.curves[0]
    odd = replace(curve, candidate=[float("nan"), float("inf"), None, *curve.candidate[3:]])
    found = opened(page(replace(diverged, curves=(odd,)), "1.2.3"))
    whole = drawn(found)
    whole.locator("#plot-loss .canvas").focus()
    said = []
    for _ in range(3):
        whole.keyboard.press("ArrowRight")
        said.append(visible(whole, "#plot-loss .readout"))
    assert "candidate nan, difference NaN" in said[0]
    assert "candidate inf, difference ∞" in said[1]
    assert "candidate –, difference" in said[2]
    assert found.clean


def test_thinning_keeps_a_spike(opened: Open, large: Comparison) -> None:
    """Of 5,000 steps the one that differs is seen, and a zoom shows every step around it."""
    curve = large.curves[0]
    step = 3210
    spiky = [one if at != step else (one or 0) * 1.5 for at, one in enumerate(curve.candidate)]
    bent = replace(large, curves=(replace(curve, candidate=spiky),))
    found = drawn(opened(page(bent, "1.2.3")))
    assert "0.5" in found.locator("#plot-loss svg").text_content()  # the difference at that step labels the axis


def test_the_picture_shows_where_it_starts_and_leads_to_the_tensor(opened: Open, text: str) -> None:
    found = drawn(opened(text))
    cells = found.locator("#picture svg [role=graphics-symbol]")
    told = {one.get_attribute("aria-label") for one in cells.all()}
    assert any(one and one.startswith(FAULT) for one in told)
    assert found.locator("input[name=picture]:checked").evaluate("it => it.parentElement.innerText").strip() == "gradients"
    cell = found.locator(f"#picture svg [aria-label^='{FAULT}']")
    cell.hover()
    assert FAULT in visible(found, ".vega-tip")
    cell.click()
    assert found.input_value("#filter") == FAULT
    assert set(found.locator("#tensor-table tbody th").all_inner_texts()) == {FAULT}
    found.check("input[name=picture] >> nth=0")
    settled(found)
    assert "var(--bin-0)" in found.locator("#picture svg").inner_html()


# ---- language, dark mode, paper, telephones, screen readers


def test_chinese_by_the_switch_the_address_and_the_browser(opened: Open, text: str) -> None:
    found = drawn(opened(text))
    found.click("#language")
    assert found.evaluate("document.documentElement.lang") == "zh"
    assert "未对齐" in visible(found, "#verdict-title")
    assert "diverged" not in visible(found, "main")
    assert "误差" in visible(found, "#tensor-table thead")
    assert "步" in found.locator("#plot-loss svg").text_content()
    labels = "[...document.querySelectorAll('[data-label-zh]')].map((one) => [one.getAttribute('aria-label'), one.dataset.labelZh])"
    labelled = found.evaluate(labels)
    assert len(labelled) > 10
    assert all(told == chinese for told, chinese in labelled)
    assert found.title() == found.locator("title").get_attribute("data-zh")
    found.click("#language")
    assert [told for told, chinese in found.evaluate(labels) if told == chinese] == []
    assert "diverged" in visible(found, "#verdict-title")
    assert "未对齐" in visible(opened(text, "?lang=zh").page, "#verdict-title")
    assert "未对齐" in visible(opened(text, locale="zh-CN").page, "#verdict-title")
    assert "diverged" in visible(opened(text, "?lang=en", locale="zh-CN").page, "#verdict-title")


@pytest.mark.parametrize(("language", "scheme"), [("en", "light"), ("zh", "dark")])
def test_no_accessibility_rule_is_broken(opened: Open, text: str, language: str, scheme: str) -> None:
    found = drawn(opened(text, f"?lang={language}", color_scheme=scheme))
    broken = Axe().run(found)["violations"]
    assert [(one["id"], [node["html"][:120] for node in one["nodes"][:3]]) for one in broken] == []


def test_dark_mode_reaches_the_plots(opened: Open, text: str) -> None:
    ink = "getComputedStyle(document.querySelector('#plot-loss svg .role-axis-label text, #plot-loss svg text')).fill"
    assert drawn(opened(text, color_scheme="dark")).evaluate(ink) != drawn(opened(text, color_scheme="light")).evaluate(ink)


@pytest.mark.parametrize("width", [320, 390, 768])
def test_it_fits_a_telephone(opened: Open, text: str, width: int) -> None:
    found = drawn(opened(text, width=width, height=800))
    assert found.evaluate("document.documentElement.scrollWidth") <= width
    assert FAULT in found.locator(".suspects li").first.inner_text()


def test_it_prints(opened: Open, text: str, tmp_path: Path) -> None:
    found = drawn(opened(text, color_scheme="dark"))
    found.emulate_media(media="print")
    assert found.locator("nav").is_hidden()
    assert found.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    printed = found.pdf(path=tmp_path / "page.pdf", prefer_css_page_size=True)
    assert printed.startswith(b"%PDF")
    assert found.locator("#plot-loss svg").is_visible()


def test_the_next_step_can_be_copied(opened: Open, text: str, diverged: Comparison) -> None:
    found = opened(text, permissions=["clipboard-read", "clipboard-write"]).page
    found.click("button.copy")
    found.locator("button.copy:text-is('copied')").wait_for()  # not wait_for_function, whose eval the page's policy refuses
    assert found.evaluate("navigator.clipboard.readText()") == rendered(diverged.next)


# ---- a hostile record


def test_hostile_names_are_inert(opened: Open, hostile: Comparison) -> None:
    found = opened(page(hostile, "1.2.3"))
    whole = drawn(found)
    assert whole.title() != "owned"
    assert whole.locator("img").count() == 0
    assert whole.locator("script:not([type])").count() == 2
    assert "{{7*7}}" in visible(whole, ".suspects")
    whole.fill("#filter", HOSTILE[:30].lower())
    assert whole.locator("#tensor-table tbody th").first.inner_text().count("<script>") == 1
    whole.locator("#picture svg path[aria-label*='<script>']").hover()
    assert "<script>" in visible(whole, ".vega-tip")
    whole.click("#language")
    assert whole.title() != "owned"
    assert found.clean


# ---- other verdicts, and a run alone


def test_an_aligned_pair_says_so_and_how_close_it_came(opened: Open, aligned: Comparison) -> None:
    found = opened(page(aligned, "1.2.3"))
    assert visible(drawn(found), "#verdict-title").startswith("aligned")
    assert "closest to a limit" in visible(found.page, "#verdict")
    assert found.clean


def test_a_pair_that_cannot_be_compared(opened: Open, compared: Pairs) -> None:
    """No limits, no tensors; nothing of it makes a plot complain."""
    other = model(2, 12)
    found = opened(page(compared(model(1, 12), other), "1.2.3"))
    assert visible(drawn(found), "#verdict-title").startswith("not comparable")
    assert found.page.locator("#tensors").count() == 0
    assert found.clean


def test_without_scripts_nothing_pretends_to_work(opened: Open, text: str) -> None:
    found = opened(text, java_script_enabled=False).page
    assert found.locator("button:visible, input:visible, select:visible").count() == 0


def test_plots_say_what_they_are_to_a_screen_reader(opened: Open, text: str) -> None:
    found = drawn(opened(text))
    assert found.locator("#plot-loss .canvas").get_attribute("aria-label").startswith("loss: arrow keys")


def test_a_run_alone(opened: Open, tmp_path: Path) -> None:
    found = opened(run_page(healthy(model(2, 40), tmp_path / "run"), "1.2.3"))
    whole = drawn(found)
    assert visible(whole, "#health-title").startswith("clean")
    assert whole.locator(".plot svg").count() == 3
    assert whole.locator("#ranks").count() == 1
    assert Axe().run(whole)["violations"] == []
    assert found.clean
