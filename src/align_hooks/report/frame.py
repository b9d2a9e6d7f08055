"""The frame of every page: one file that needs no network, in two languages.

A page is its own proof of harmlessness. All text of a record passes through the template's escaping or, inside the data, through JSON
without ``<``; and a content-security policy lets run the page's own two scripts and its style sheet, by their digests, and nothing else.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import math
import re
from collections.abc import Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import vl_convert
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from align_hooks.compare.verdict import Finding
from align_hooks.messages import CHINESE, Argument, Joined, Message, message, rendered
from align_hooks.record.atomic import json_text
from align_hooks.report.chinese import chinese
from align_hooks.report.text import plain, shown
from align_hooks.report.words import WORDS

WEB = Path(__file__).parent / "web"
PARTS = ("shared", "plots", "table", "page")
"""Of the page's own script."""
DOT = re.compile(r"((?<=\w)\.)(?=\w)")


def render(template: str, data: Mapping[str, Any], **content: Any) -> str:
    """A page from its template, ``data`` for its script, and ``content``, as text that encodes to UTF-8."""
    style, library = (WEB / "page.css").read_text(encoding="utf-8"), vega()
    parts = [(WEB / f"{name}.js").read_text(encoding="utf-8") for name in PARTS]
    script = "\n".join(['"use strict";', "(() => {", *parts, "})();"])
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {' '.join(map(digest, (library, script)))}",
            f"style-src {digest(style)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    environment = Environment(
        loader=FileSystemLoader(WEB), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals |= {
        "t": in_both,
        "english": rendered,
        "message": message,
        "shown": shown,
        "both": both,
        "number": number,
        "times": times,
        "broken": broken,
        "escape": escape,
    }
    made = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    text = environment.get_template(template).render(
        policy=Markup(policy),
        style=Markup(style),
        script=Markup(script),
        library=Markup(library),
        data=Markup(json_text(data, indent=None).replace("<", "\\u003c")),
        vega=vl_convert.get_vega_version(),
        made=made,
        **content,
    )
    return text.encode("utf-8", "backslashreplace").decode()


@cache
def vega() -> str:
    """Vega and what belongs to it, as one script that sets ``vegaEmbed``."""
    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")).replace("</script", "<\\/script")


def digest(text: str) -> str:
    """What lets exactly this script or style sheet through a content-security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def in_both(text: Argument) -> Markup:
    """A text in both languages, of which the page shows one; once where they are the same. What is not printable shows as its escape."""
    if isinstance(text, Message | Joined | Enum):
        return both(plain(rendered(text)), plain(rendered(text, CHINESE)))
    text = rendered(text)
    return both(plain(text), plain(WORDS.get(text) or chinese(text)))


def both(english: str, other: str) -> Markup:
    """English beside Chinese."""
    if english == other:
        return escape(english)
    return Markup('<span lang="en">{}</span><span lang="zh">{}</span>').format(english, other)


def broken(text: Markup) -> Markup:
    """A text that may be broken after the dots of a canonical name, and nowhere within its words."""
    return Markup(DOT.sub(r"\1<wbr>", str(text)))


def number(value: float | None) -> str:
    """Three digits."""
    return "" if value is None else f"{value:.3g}"


def times(one: Finding) -> str:
    """How many times its limit an error is; without a limit, or to the bit, there is no number."""
    if one.error is None or one.limit is None:
        return ""
    return "not finite" if not math.isfinite(one.error) else f"{one.excess:.3g} ×" if math.isfinite(one.excess) else "any is too much"
