"""What the Markdown files say of the repository is so: links, variables, commands, options, files; both languages have the same."""

import hashlib
import importlib.util
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from align_hooks.cli import app
from align_hooks.settings import PREFIX, Settings
from chosen import in_one
from docs import reference

if sys.version_info >= (3, 11):
    import tomllib

ROOT = Path(__file__).parents[1]
NOT_OURS = {"build", "dist"}
FOLDERS = [one for one in ROOT.iterdir() if one.is_dir() and one.name not in NOT_OURS and not one.name.startswith(".")]
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in folder.rglob("*.md"))])
COMMANDS = app.commands
VARIABLES = {PREFIX + one.name.upper() for one in fields(Settings)}
APACHE = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
"""SHA-256 of https://www.apache.org/licenses/LICENSE-2.0.txt."""

each_page = in_one(PAGES)


CHINESE = ".zh-CN.md"
PAIRS = [(page.with_name(page.name.replace(CHINESE, ".md")), page) for page in PAGES if page.name.endswith(CHINESE)]
ENGLISH_ALONE = {"checklist.md", "record.md", "reference.md", "report.md", "zoo.md", "json.md"}
"""Pages of which most is made by the code, in English."""
each_pair = in_one(PAIRS)


def tables(page: Path) -> list[list[str]]:
    """The rows of every table of a page."""
    return [table.splitlines() for table in re.findall(r"(?:^\|.*\n)+", page.read_text(encoding="utf-8"), re.M)]


def numbers(row: str) -> list[str]:
    """The cells of a row that are a number, with its unit or without."""
    return [cell for cell in (each.strip() for each in row.split("|")) if re.fullmatch(r"[+~]?\d[\d.,]*(e[-+]\d+)?( \w+)?", cell, re.ASCII)]


def blocks(page: Path, language: str = "sh") -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)


def without_comments(block: str) -> str:
    """A block of commands without its comments, which are in the language of the page."""
    lines = (re.sub(r"(^|\s)#\s.*$", "", line).rstrip() for line in block.splitlines())
    return "\n".join(line for line in lines if line)


def commands(page: Path) -> Iterator[str]:
    """Every command line of a page's blocks, lines joined that go on."""
    for block in blocks(page):
        yield from without_comments(block).replace("\\\n", " ").splitlines()


def without_blocks(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def prose(page: Path) -> str:
    """A page without its fenced blocks and code."""
    return re.sub(r"`[^`\n]*`", "", without_blocks(page))


def anchors(page: Path) -> set[str]:
    """The addresses that a forge gives to a page's headings."""
    headings = re.findall(r"^#+ +(.*)$", without_blocks(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@each_page
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    found = re.findall(r"\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"", prose(page))
    broken = []
    for link in (markdown or image for markdown, image in found):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@each_page
def test_every_variable_and_every_command_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert sorted(set(re.findall(rf"(?<!_){PREFIX}[A-Z][A-Z_]*[A-Z]", text)) - VARIABLES) == []
    assert sorted(set(re.findall(r"(?<![\w/-])align-hooks ([a-z]+(?:-[a-z]+)*)", text)) - COMMANDS.keys()) == []


@each_page
def test_every_option_is_one_of_its_command(page: Path) -> None:
    for line in commands(page):
        found = re.search(r"(?:^|\s)align-hooks ([a-z]+(?:-[a-z]+)*)(.*)", line)
        if found is not None and found[1] != "run":  # what follows that is another program's
            named = set(re.findall(r"(?<=\s)--[a-z-]+", found[2].partition(" -- ")[0]))
            assert named <= {option for one in COMMANDS[found[1]].params for option in one.opts}, line


@each_page
def test_every_module_and_every_file_that_a_command_names_exists(page: Path) -> None:
    missing = []
    for line in commands(page):
        missing += [name for name in re.findall(r"-m (align_hooks[\w.]*)", line) if importlib.util.find_spec(name) is None]
        missing += [name for name in re.findall(r"(?<![\w/.])(?:launch|docs|tests|patches)/[\w./-]+\w", line) if not (ROOT / name).exists()]
        presets = re.findall(r"launch/(?:cpu\.sh (?:torch|ms)|torchrun\.sh|msrun\.sh) (\w+)", line)
        missing += [preset for preset in presets if not (ROOT / "launch/presets" / f"{preset}.env").is_file()]
    assert missing == []


def test_every_file_that_contributors_are_told_of_exists() -> None:
    """By its path from the root, from the package or from the tests, or by its name alone."""
    pages = [(ROOT / name).read_text(encoding="utf-8") for name in ("CONTRIBUTING.md", "tests/README.md")]
    named = {name for page in pages for name in re.findall(r"`([\w/]+\.(?:py|md|txt))`", page)}
    names = {path.name for folder in ("src", "tests", "patches", "launch") for path in (ROOT / folder).rglob("*.*")}
    homes = (ROOT, ROOT / "src/align_hooks", ROOT / "tests")
    assert len(named) > 60
    assert sorted(name for name in named if name not in names and not any((home / name).is_file() for home in homes)) == []


@each_pair
def test_both_languages_of_a_page_have_the_same_commands_and_numbers(english: Path, chinese: Path) -> None:
    """Tables row by row: what was measured is copied by hand, and goes stale by hand."""
    for language in ("sh", "python", "yaml"):
        own, other = ([without_comments(block) for block in blocks(page, language)] for page in (english, chinese))
        assert other == own
    own_tables, other_tables = ([[numbers(row) for row in table] for table in tables(page)] for page in (english, chinese))
    assert other_tables == own_tables


@each_pair
def test_a_reader_can_change_the_language_and_a_chinese_page_leads_to_chinese_pages(english: Path, chinese: Path) -> None:
    assert f"English | [简体中文]({chinese.name})" in english.read_text(encoding="utf-8")
    assert f"[English]({english.name}) | 简体中文" in chinese.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#\s]+\.md)", prose(chinese))
    assert [link for link in links if (chinese.parent / link.replace(".md", CHINESE)).is_file() and link != english.name] == []


def test_every_page_that_is_read_first_is_in_both_languages() -> None:
    alone = {page.name for page in (ROOT / "docs").glob("*.md") if not page.name.endswith(CHINESE)} - {one.name for one, _ in PAIRS}
    assert alone <= ENGLISH_ALONE


def test_the_license_is_the_unmodified_text_and_goes_into_the_wheel() -> None:
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE
    if sys.version_info >= (3, 11):
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert project["license"] == "Apache-2.0"
        assert project["license-files"] == ["LICENSE"]


def test_every_command_of_the_reference_has_its_example() -> None:
    examples = [row[-1] for row in reference.commands()]
    assert len(examples) > 10
    assert "``" not in examples
