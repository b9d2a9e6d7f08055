"""A document as a page: one file that needs no network, in two languages.

All text of a record passes through the template's escaping or, inside the data, through JSON without ``<``. A
content-security policy admits the page's own two scripts and its style sheet, by their digests, and nothing else.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import vl_convert
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from align_hooks.comparison.finding import Finding
from align_hooks.messages import Argument, Message, message, rendered
from align_hooks.messages.catalogue import CHINESE, ENGLISH, template
from align_hooks.record.write.atomic import json_text
from align_hooks.report import plots
from align_hooks.report.blocks import Blocks, Cell, Data, DocumentBlock, Fold, Plots, Section, Special, of_page, parts_of
from align_hooks.report.console import plain
from align_hooks.report.document import Document, style_of
from align_hooks.report.findings import shown
from align_hooks.report.glossary import WORDS

WEB = Path(__file__).parent / "web"
PARTS = ("shared", "plots", "table", "page")
"""Files of the page's own script."""
TONES = {"bold green": "aligned", "bold red": "diverged", "bold magenta": "not-comparable", "bold yellow": "inconclusive"}
"""The class of a verdict in the style sheet, by its style on a terminal."""
STATUSES = {"green": "same", "red": "different", "dim": "not-compared"}
"""The class of a word in the style sheet, by its style on a terminal."""
DOT = re.compile(r"((?<=\w)\.)(?=\w)")
SAID = re.compile(r"\bsay\(\"([\w.]+)\"")
"""The id of a message in the page's script."""


def page(document: Document, version: str) -> str:
    """Return a document as a page, as text that encodes to UTF-8; ``version`` is that of align_hooks."""
    made = {id(block): block.make() for block in walk(document.everything) if isinstance(block, Plots | Special)}
    style, library = (WEB / "page.css").read_text(encoding="utf-8"), vega()
    parts = [(WEB / f"{name}.js").read_text(encoding="utf-8") for name in PARTS]
    script = "\n".join(['"use strict";', "(() => {", *parts, "})();"])
    policy = (
        f"default-src 'none'; script-src {digest(library)} {digest(script)}; style-src {digest(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    environment = Environment(
        loader=FileSystemLoader(WEB), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_shown
    )
    environment.globals |= GLOBALS
    data = _shown(for_script(document, made)) | {"words": words_of(script)}
    text = environment.get_template("page.html").render(
        policy=Markup(policy),
        style=Markup(style),
        script=Markup(script),
        library=Markup(library),
        data=Markup(json_text(data, indent=None).replace("<", "\\u003c")),
        vega=vl_convert.get_vega_version(),
        made=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        version=version,
        document=document,
        tone=TONES[style_of(document.result)] if document.result is not None else "inconclusive",
        glossary=[*document.words, *WORDS],
        printed=of_page,
        content=lambda block: made[id(block)],
    )
    return text.encode("utf-8", "backslashreplace").decode()


def walk(blocks: Blocks) -> Iterator[DocumentBlock]:
    """Yield the blocks of a page, those inside others too."""
    for block in of_page(blocks):
        yield block
        if isinstance(block, Section | Fold):
            yield from walk(block.blocks)


def for_script(document: Document, made: Mapping[int, Any]) -> Data:
    """Return the data of the page's script: plots without their texts, which the template has, and the data of special blocks."""
    data: Data = {"eps": 1, "tensors": None, "stages": (), "pictures": (), "plots": [], "specs": {}}
    for block in walk(document.everything):
        if isinstance(block, Plots):
            data["plots"] += [without_texts(plot) for plot in made[id(block)]]
            data["specs"] |= {"steps": plots.steps(single=block.single), "tensors": plots.tensors()}
        elif isinstance(block, Special):
            data |= made[id(block)].get("script", {})
    if data["pictures"]:
        data["specs"]["picture"] = plots.picture()
    return data


def without_texts(part: Data) -> Data:
    """Return a plot or picture as the script needs it."""
    return {key: value for key, value in part.items() if key not in ("title", "text")}


def _shown(value: Any) -> Any:
    """Return a value with all of its text printable, except line breaks and the page's own markup."""
    if isinstance(value, dict):
        return {_shown(key): _shown(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(item) for item in value]
    return "\n".join(map(plain, value.split("\n"))) if type(value) is str else value


@cache
def vega() -> str:
    """Return Vega and its dependencies as one script that sets ``vegaEmbed``."""
    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")).replace("</script", "<\\/script")


def digest(text: str) -> str:
    """Return the source expression that admits exactly this script or style sheet by a content-security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def words_of(script: str) -> dict[str, tuple[str, str]]:
    """Return the templates that a script fills in, in English and in Chinese, by their ids."""
    return {id: (template(id, ENGLISH), template(id, CHINESE)) for id in sorted(set(SAID.findall(script)))}


def in_both(text: Argument) -> Markup:
    """Return a text in both languages, of which the page shows one; once where they are the same."""
    english, chinese = (worded(text, language) for language in (ENGLISH, CHINESE))
    return english if english == chinese else Markup('<span lang="en">{}</span><span lang="zh">{}</span>').format(english, chinese)


def worded(text: Argument, language: str) -> Markup:
    """Return a text in a language; each command below it is code, with a button that copies it."""
    words, *commands = parts_of(text)
    button = Markup('<button type="button" class="copy">{}</button>').format(rendered(message("page.copy"), language))
    code = Markup('<span class="paste"><code>{}</code>{}</span>')
    shown = (code.format(plain(rendered(command, language)), button) for command in commands)
    return escape(plain(rendered(words, language))) + Markup("").join(shown)


def languages(text: Argument) -> tuple[str, str]:
    """Return a text in English and in Chinese, with escapes for what is not printable."""
    return plain(rendered(text)), plain(rendered(text, CHINESE))


def label(text: Argument) -> Markup:
    """Return the attributes that name an element to a screen reader, in the language of the page."""
    return Markup('aria-label="{}" data-label-zh="{}"').format(*languages(text))


def say(id: str, /, **arguments: Argument) -> Markup:
    """Return a message by its id, in both languages."""
    return in_both(message(id, **arguments))


def broken(text: Markup) -> Markup:
    """Return a text that a browser may break after the dots of a canonical name."""
    return Markup(DOT.sub(r"\1<wbr>", str(text)))


def number(value: float | None) -> str:
    """Return a number with three digits; empty where there is none."""
    return "" if value is None else f"{value:.3g}"


def times(finding: Finding) -> Message | None:
    """Return how many times its limit an error is; None where either is missing."""
    if finding.error is None or finding.limit is None:
        return None
    if not math.isfinite(finding.error):
        return message("page.not_finite" if math.isnan(finding.error) else "page.on_one_side")
    return message("page.times", times=finding.limit_ratio) if math.isfinite(finding.limit_ratio) else message("page.any_is_too_much")


GLOBALS: dict[str, Any] = {
    "t": in_both,
    "m": message,
    "STATUSES": STATUSES,
    "cell_of": Cell.of,
    "kind": lambda block: type(block).__name__.lower(),
    "look": lambda member: member.name.lower().replace("_", "-"),
    "address": lambda name: quote(name.encode("utf-8", "backslashreplace"), safe=""),
    **{function.__name__: function for function in (say, label, languages, shown, number, times, broken, escape)},
}
"""Functions of templates: ``t`` renders a message or a value, ``m`` makes a message, ``say`` does both; ``kind`` is the macro of a block,
``look`` the name of an enumeration's member in the style sheet, ``address`` a name as a part of an address."""
