"""Where on its page a culprit stands: every fault of the zoo as a page in headless Chromium, and the pictures of the docs.

``python tests/zoo/pages.py [names] [--where build/zoo]``; runs that are there are not trained again. The places of all faults, or with
``--keep`` of those that are named, are kept beside this file; ``table.py pages`` makes the table of ``docs/report.md`` of them.
"""

from __future__ import annotations

import argparse
import math
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from PIL import Image
from playwright.sync_api import sync_playwright

from align_hooks import __version__, open_run
from align_hooks.comparison.health import health
from align_hooks.comparison.runs import compare
from align_hooks.record.holdings import holdings, not_whole
from align_hooks.report.page import page
from align_hooks.report.run_page import run_page
from zoo.cases import CASES, FAULTS, Case
from zoo.kept import keep
from zoo.run import PRECISIONS, RESULTS, corpus_in, train, train_noise, train_references
from zoo.table import HEIGHT

WIDTH = 1280
"""Of the window that a page is opened in: a laptop's."""
DOCS = Path(__file__).parents[2] / "docs" / "report"
SHOWN = "rope_missing_on_keys"
"""The case that the docs show."""
PICTURES = {
    "first_screen.png": ("#verdict", {"viewport": {"width": WIDTH, "height": 640}}, ""),
    "where_it_starts.png": ("#where", {"viewport": {"width": WIDTH, "height": 440}, "color_scheme": "dark"}, ""),
    "norms.png": ("#norms", {"viewport": {"width": WIDTH, "height": 580}}, ""),
    "telephone.png": ("#verdict", {"viewport": {"width": 390, "height": 640}}, "?lang=zh"),
}
"""File to what it shows, the window, and the end of the address."""


@dataclass(frozen=True)
class Place:
    """Where a case's culprit stands first on its page: the line, the pixel at which it ends, and the screens to scroll to it.

    ``scrolls`` is None where the page names another culprit.
    """

    name: str
    line: str = ""
    within: str = ""
    bottom: int = 0
    scrolls: int | None = None


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless browser."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        sys.exit("no Chromium: make browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def opened(browser: Any, path: Path, address: str = "", **options: Any) -> Any:
    """A page, every plot of it drawn."""
    view = browser.new_context(**{"viewport": {"width": WIDTH, "height": HEIGHT}, "locale": "en-US"} | options).new_page()
    view.goto(path.as_uri() + address)
    view.wait_for_selector("html[data-drawn]", state="attached")
    return view


def place(view: Any, case: Case) -> Place:
    """The first line under "first suspects" or "likely", or else of the evidence, that names the culprit of a case."""
    lines = {"first suspects": ".suspects li", "likely": ".causes li", "what shows it": "#verdict .findings tbody th"}
    for within, selector in lines.items():
        for line in view.locator(selector).all():
            text = line.inner_text()
            if any(fnmatchcase(text, f"*{pattern}*") for pattern in case.culprit):
                box = line.bounding_box()
                bottom = math.ceil(box["y"] + box["height"])
                return Place(case.name, text, within, bottom, max(0, math.ceil((bottom - HEIGHT) / HEIGHT)))
    return Place(case.name)


def pictures(browser: Any, path: Path, run: Path) -> None:
    """The pictures of the docs, small, and of runs that lie where everybody's may."""
    DOCS.mkdir(exist_ok=True)
    path = renamed(path, {run: "runs/megatron", path.with_name("run"): "runs/candidate"})
    for file, (at, options, address) in PICTURES.items():
        view = opened(browser, path, address, **options)
        view.locator(at).scroll_into_view_if_needed()
        view.evaluate("at => document.querySelector(at).closest('section').scrollIntoView()", at)
        photograph(view, DOCS / file)
        view.context.close()
    run_file = path.with_name("run.html")
    read = open_run(run)
    run_file.write_text(run_page(health(read, holdings(read), not_whole(read)), __version__))
    view = opened(browser, renamed(run_file, {run: "runs/megatron"}), viewport={"width": WIDTH, "height": 560})
    photograph(view, DOCS / "show.png")
    view.context.close()


def renamed(path: Path, names: dict[Path, str]) -> Path:
    """A copy of a page in which runs are called otherwise."""
    text = path.read_text()
    for run, name in names.items():
        text = text.replace(str(run), name)
    copy = path.with_name(f"renamed_{path.name}")
    copy.write_text(text)
    return copy


def photograph(view: Any, path: Path) -> None:
    """What is in the window, in few colours."""
    view.wait_for_timeout(200)
    view.screenshot(path=path)
    with Image.open(path) as image:
        image.convert("RGB").quantize(64, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> int:
    """The exit code is 1 where one of the named cases does not show its culprit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="cases of cases.py; every fault unless named")
    parser.add_argument("--where", type=Path, default=Path("build/zoo"), help="where runs are kept")
    parser.add_argument("--keep", action="store_true", help="put the places of the cases that are named among the results")
    options = parser.parse_args()
    where, precision = options.where.resolve() / "float32", PRECISIONS["float32"]
    corpus_in(where)
    cases = [CASES[name] for name in options.names] or FAULTS
    references = train_references(where, precision, cases)
    noise = train_noise(references, precision, cases)
    places: list[Place] = []
    with chromium() as browser:
        for case in cases:
            runs = open_run(references[case.reference]), open_run(train(case, references[case.reference], where, precision))
            path = where / case.name / "page.html"
            path.write_text(page(compare(*runs, noise=[open_run(noise[case.reference])]), __version__), encoding="utf-8")
            view = opened(browser, path)
            places.append(place(view, case))
            print(f"{case.name}: {places[-1].line or 'another culprit'} ({places[-1].within}), {places[-1].scrolls} scrolls", flush=True)
            view.context.close()
            if case.name == SHOWN:
                pictures(browser, path, references[case.reference])
    if options.keep or not options.names:
        keep(RESULTS / "pages.json", {each.name: asdict(each) for each in places}, (case.name for case in FAULTS))
    return int(any(each.scrolls is None for each in places))


if __name__ == "__main__":
    sys.exit(main())
