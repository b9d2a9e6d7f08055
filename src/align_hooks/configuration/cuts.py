"""The expansions ``${NAME#pattern}``, ``${NAME%pattern}`` and ``${NAME/pattern/text}`` of bash."""

from __future__ import annotations

import re

SIGNS = ("#", "##", "%", "%%", "/", "//")
"""Cuts at the front or the end of the shortest or the longest piece that fits; replacements of the first piece or of all."""
PLAIN = re.compile(r"[^\\\[\]()'\"`$!{}&#%]+[#%]*")
"""Patterns and texts that Python and bash read alike, but for ``*`` and ``?``."""
MOST = 10**8
"""Most comparisons of characters in a cut; cuts of paths and lists of arguments take a thousandth."""


def cut(text: str, sign: str, pattern: str, instead: str = "") -> str | None:
    """Return a text after an expansion of :data:`SIGNS`; None for a pattern with quotes, classes or variables, and for a slow one."""
    work = len(text) ** (pattern.count("*") + (1 if sign[0] == "/" else 2))
    if not PLAIN.fullmatch(pattern) or not (instead == "" or PLAIN.fullmatch(instead)) or work > MOST:
        return None
    if sign[0] == "/" and not pattern.strip("*"):  # the pattern fits the empty text
        return None
    written = "".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in pattern)
    if sign[0] == "/":
        return re.sub(written, lambda _: instead, text, count=0 if sign == "//" else 1, flags=re.DOTALL)
    for end in range(len(text) + 1) if sign in ("#", "%%") else range(len(text), -1, -1):
        piece, rest = (text[:end], text[end:]) if sign[0] == "#" else (text[end:], text[:end])
        if re.fullmatch(written, piece, re.DOTALL):
            return rest
    return text
