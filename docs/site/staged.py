"""A hook of MkDocs: before a build, everything that the site shows is put into one folder, with links as the site needs them.

A page links as a forge needs it: by its place in the repository, in its own language, out of ``docs/`` too. MkDocs knows the pages of one
folder. So ``docs/`` is copied there, and beside it the Markdown files of ``OUTSIDE`` and whatever else is linked to, at the paths that they
have in the repository. Links are turned to these places. One that leads nowhere stays as it is, and MkDocs, which is strict, ends with it.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCS = "docs"
OUTSIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "launch/README.md", "patches/README.md")
"""Markdown files outside of ``docs/`` that are pages of the site."""
SWITCH = re.compile(r"^(English \| \[简体中文\]|\[English\]\().*\n", re.MULTILINE)
"""The line by which a reader on a forge changes the language; the site has a menu for that."""
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?P<before>\]\(|<img src=\")(?P<path>[^)#\s\"]+)")
README = re.compile(r"^README(?=\.md$|\.zh-CN\.md$)")
LANGUAGE = re.compile(r"\.zh-CN(?=\.md$)")
FENCE = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)
CHINESE = "\u3000-\u303f\u4e00-\u9fff\uff00-\uffef“”"
BROKEN = re.compile(rf"(?<=[{CHINESE}])\n *(?=[{CHINESE}\w`\[]|\*[^* ])(?!\d+\. )|(?<=[\w`)])\n *(?=[{CHINESE}])")
"""The end of a line within a paragraph of Chinese, which would be a space on the site."""


def on_config(config: Any) -> None:
    """Build from a staged folder, which is gone when Python ends."""
    folder = tempfile.TemporaryDirectory(prefix="align_hooks_docs_")
    config["staged"] = folder  # keeps it
    stage(Path(folder.name))
    config["docs_dir"] = folder.name


def stage(into: Path) -> None:
    """Write everything that the site shows into an empty folder."""
    for file in sorted((ROOT / DOCS).rglob("*")):
        if file.is_file() and file.suffix not in (".md", ".py", ".pyc"):
            copy(file, into / file.relative_to(ROOT / DOCS))
    for page in [*sorted((ROOT / DOCS).rglob("*.md")), *(ROOT / name for name in OUTSIDE)]:
        name = page.relative_to(ROOT).as_posix()
        here = into / place(name)
        here.parent.mkdir(parents=True, exist_ok=True)
        text, linked = turned(page.read_text(encoding="utf-8"), name)
        here.write_text(text, encoding="utf-8")
        for other in linked:
            if not other.endswith(".md"):
                copy(ROOT / other, into / place(other))


def copy(file: Path, to: Path) -> None:
    """Copy a file, with the folders above it."""
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, to)


def turned(text: str, page: str) -> tuple[str, set[str]]:
    """A page of the repository with links as the site needs them, and what it links to."""
    linked: set[str] = set()

    def turn(link: re.Match[str]) -> str:
        name = target(page, link["path"])
        if name:
            linked.add(name)
        here = PurePosixPath(place(page)).parent
        return link["before"] + (os.path.relpath(LANGUAGE.sub("", place(name)), here) if name else link["path"])

    text = SWITCH.sub("", text)
    if LANGUAGE.search(page):
        text = "".join(part if part.startswith("```") else BROKEN.sub("", part) for part in FENCE.split(text))
    ends = [0, *(place for code in CODE.finditer(text) for place in code.span()), len(text)]
    pieces = [text[start:end] for start, end in pairwise(ends)]  # prose and code in turn
    return "".join(piece if index % 2 else LINK.sub(turn, piece) for index, piece in enumerate(pieces)), linked


def target(page: str, link: str) -> str:
    """The file of the repository that a page links to, by its path; nothing for an address and for what is not there."""
    if re.match(r"[a-z]+:", link):
        return ""
    path = Path(os.path.normpath(ROOT / PurePosixPath(page).parent / link))
    path = path / "README.md" if path.is_dir() else path
    return path.relative_to(ROOT).as_posix() if path.is_file() and path.is_relative_to(ROOT) else ""


def place(name: str) -> str:
    """The path on the site of a file of the repository. In the place of the README the site has its home."""
    return README.sub("index", name.removeprefix(f"{DOCS}/"))
