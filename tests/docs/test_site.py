"""The site is built from the pages strictly, in both languages, and is read and searched without a network, from a disk."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WAIT = 120_000
"""Milliseconds: a search that hangs ends the test; a slow machine does not."""
FETCHED = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src"}
"""What a page makes a browser fetch, by the attribute that names it."""


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as ``make docs`` builds it: a warning, such as a link that leads nowhere, ends the build."""
    where = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(where)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return where


class Fetched(HTMLParser):
    """What a page makes a browser fetch."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in FETCHED and given.get("rel") not in ("canonical", "prev", "next", "alternate"):
            self.addresses.append(given.get(FETCHED[tag]) or "")


def in_the_menu(entry: object) -> Iterator[str]:
    """The pages of a menu: a list of pages and of sections, which have a title each."""
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, list):
        for each in entry:
            yield from in_the_menu(each)
    elif isinstance(entry, dict):
        for below in entry.values():
            yield from in_the_menu(below)


def test_every_page_of_the_menu_is_there_in_both_languages(site: Path) -> None:
    text = re.sub(r"!!python/\S+", "", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    for name in in_the_menu(yaml.safe_load(text)["nav"]):
        page = name.replace("README.md", "index.md").replace(".md", ".html")
        assert (site / page).is_file()
        assert (site / "zh-CN" / page).is_file()
    assert '<html lang="zh"' in (site / "zh-CN" / "quick_start.html").read_text(encoding="utf-8")


def test_nothing_is_fetched_from_a_network(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    fetched = {address for page in pages for address in Fetched(page).addresses}
    assert [address for address in fetched if re.match(r"\w+:|//", address) and not address.startswith("data:")] == []
    assert not [style for style in site.rglob("*.css") if re.search(r"url\([\"']?(https?:)?//", style.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(
    ("page", "words", "found"),
    [("index.html", "injected gradients", "optimizer.html"), ("zh-CN/index.html", "草图摘要", "zh-CN/sketches.html")],
)
def test_it_is_searched_from_a_disk(site: Path, page: str, words: str, found: str, browser: Any) -> None:
    context = browser.new_context(offline=True)
    opened = context.new_page()
    opened.set_default_timeout(WAIT)
    opened.goto((site / page).as_uri())
    opened.locator(".md-search__input").click()
    opened.locator(".md-search__input").fill(words)
    opened.locator(".md-search__input").press("End")  # a key is what the search listens to
    opened.locator(".md-search-result__link").first.wait_for()
    links = opened.locator(".md-search-result__link").evaluate_all("all => all.map(each => each.getAttribute('href'))")
    context.close()
    assert any(link.partition("?")[0].endswith(f"/{found}") for link in links), links
