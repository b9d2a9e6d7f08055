"""Where on its page a culprit stands: every fault of the zoo as a page in headless Chromium, and the pictures of the docs.

``python tests/zoo/pages.py [names] [--where build/zoo]``; runs that are there are not trained again. The places of all faults, or with
``--keep`` of those that are named, are kept beside this file; ``table.py pages`` makes the table of ``docs/report.md`` of them.
"""

import argparse
import math
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from align_hooks.checklist.sides import check_runs

sys.path.insert(0, str(Path(__file__).parents[1]))

from PIL import Image
from playwright.sync_api import sync_playwright

from align_hooks import __version__, open_run
from align_hooks.comparison.health import health
from align_hooks.comparison.pipeline import compare
from align_hooks.record.inventory import inventory, not_whole
from align_hooks.report.comparison_page import comparison_page
from align_hooks.report.html import page
from align_hooks.report.run import document
from zoo.cases import CASES, FAULTS, Case
from zoo.kept import keep
from zoo.run import PRECISIONS, RESULTS, corpus_in, train, train_noise, train_references
from zoo.table import HEIGHT, OF_TELEPHONE

WIDTH, OF_TELEPHONES = 1280, 390
"""Of the windows that a page is opened in: a laptop's and a telephone's."""
DOCS = Path(__file__).parents[2] / "docs" / "report"
LAPTOP, TELEPHONE = {"width": WIDTH, "height": HEIGHT}, {"width": OF_TELEPHONES, "height": OF_TELEPHONE}
SHOWN = {
    "rope_missing_on_keys": {
        "first_screen.png": ("header", {"viewport": LAPTOP}, ""),
        "where_it_starts.png": ("#where", {"viewport": {"width": WIDTH, "height": 500}, "color_scheme": "dark"}, ""),
        "norms.png": ("#norms", {"viewport": {"width": WIDTH, "height": 440}}, ""),
        "telephone.png": ("header", {"viewport": TELEPHONE}, "?lang=zh"),
    },
    "mf_eps": {"change.png": ("header", {"viewport": LAPTOP}, "")},
}
"""The cases that the docs show: file to what it shows, the window, and the end of the address."""


@dataclass(frozen=True)
class Place:
    """Where a case's culprit stands first on its page: the line, the pixel at which it ends, and the screens to scroll to it.

    ``scrolls`` is None where the page names another culprit. ``on_telephone`` are the screens to scroll on a telephone.
    """

    name: str
    line: str = ""
    within: str = ""
    bottom: int = 0
    scrolls: int | None = None
    on_telephone: int | None = None


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


def places_of(browser: Any, path: Path, case: Case) -> Place:
    """Where the culprit of a case stands on a laptop and on a telephone."""
    places = []
    for window in (LAPTOP, TELEPHONE):
        view = opened(browser, path, viewport=window)
        places.append(place(view, case, window["height"]))
        view.context.close()
    return replace(places[0], on_telephone=places[1].scrolls)


def place(view: Any, case: Case, height: int) -> Place:
    """The first line under "first suspects" or "likely", or else of the evidence, that names the culprit of a case."""
    lines = {"first suspects": ".suspects li", "likely": ".causes li", "what shows it": "#verdict .findings tbody th"}
    for within, selector in lines.items():
        for line in view.locator(selector).all():
            text = line.inner_text()
            if any(fnmatchcase(text, f"*{pattern}*") for pattern in case.culprit):
                box = line.bounding_box()
                bottom = math.ceil(box["y"] + box["height"])
                return Place(case.name, text, within, bottom, max(0, math.ceil((bottom - height) / height)))
    return Place(case.name)


def pictures(browser: Any, path: Path, run: Path, noise: Path, shown: Mapping[str, tuple[str, Mapping[str, Any], str]]) -> None:
    """Pictures of the docs, small, and of runs that lie where everybody's may."""
    DOCS.mkdir(exist_ok=True)
    path = renamed(path, {run: "runs/megatron", noise: "runs/megatron_noise", path.with_name("run"): "runs/candidate"})
    for file, (at, options, address) in shown.items():
        view = opened(browser, path, address, **options)
        view.locator(at).scroll_into_view_if_needed()
        view.evaluate("at => (document.querySelector(at).closest('section') ?? document.body).scrollIntoView()", at)
        photograph(view, DOCS / file)
        view.context.close()


def picture_of_run(browser: Any, path: Path, run: Path) -> None:
    """The picture of a run alone."""
    run_file = path.with_name("run.html")
    read = open_run(run)
    run_file.write_text(page(document(health(read, inventory(read), [*not_whole(read)])), __version__))
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
    """What is in the window, in as few colours as keep the rare ones."""
    view.wait_for_timeout(200)
    view.screenshot(path=path)
    with Image.open(path) as image:
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> int:
    """The exit code is 1 where one of the named cases does not show its culprit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="cases of cases.py; every fault unless named")
    parser.add_argument("--where", type=Path, default=Path("build/zoo"), help="where runs are kept")
    parser.add_argument("--keep", action="store_true", help="put the places of the cases that are named among the results")
    options = parser.parse_args()
    where, precision = options.where.resolve() / "float32", PRECISIONS["float32"]
    corpus_in(where)
    cases = [CASES[name] for name in options.names] or [case for case in FAULTS if case.is_in("float32")]
    references = train_references(where, precision, cases)
    noise = train_noise(references, precision, cases)
    places: list[Place] = []
    with chromium() as browser:
        for case in cases:
            runs = open_run(references[case.reference]), open_run(train(case, references[case.reference], where, precision))
            path = where / case.name / "page.html"
            comparison = compare(*runs, noise=[open_run(noise[case.reference])])
            path.write_text(comparison_page(comparison, __version__, check_runs(*runs, comparison.statistics)), encoding="utf-8")
            found = places_of(browser, path, case)
            scrolls = f"{found.scrolls} scrolls, {found.on_telephone} on a telephone"
            print(f"{case.name}: {found.line or 'another culprit'} ({found.within}), {scrolls}", flush=True)
            places.append(found)
            if case.name in SHOWN:
                pictures(browser, path, references[case.reference], noise[case.reference], SHOWN[case.name])
                picture_of_run(browser, path, references[case.reference])
    if options.keep or not options.names:
        keep(RESULTS / "pages.json", {each.name: asdict(each) for each in places}, (case.name for case in FAULTS if case.is_in("float32")))
    return int(any(each.scrolls is None for each in places))


if __name__ == "__main__":
    sys.exit(main())
