"""What ``${NAME#pattern}``, ``${NAME%pattern}`` and ``${NAME/pattern/text}`` leave of a text, as bash does it."""

from __future__ import annotations

import re

SIGNS = ("#", "##", "%", "%%", "/", "//")
"""A cut at the front or the end, by the shortest or the longest piece that fits; a replacement, of the first piece or of all."""
PLAIN = re.compile(r"[^\\\[\]()'\"`$!{}&#%]+[#%]*")
"""Patterns and texts that mean to Python what they mean to bash, but for ``*`` and ``?``."""
MOST = 10**8
"""Comparisons of characters that one cut may take; those of paths and lists of arguments take a thousandth."""


def cut(text: str, sign: str, pattern: str, instead: str = "") -> str | None:
    """What a sign of :data:`SIGNS` leaves of a text; None where quotes, classes or variables stand in the pattern,
    where it may be of no character, and where it would take too long."""
    work = len(text) ** (pattern.count("*") + (1 if sign[0] == "/" else 2))
    if not PLAIN.fullmatch(pattern) or not (instead == "" or PLAIN.fullmatch(instead)) or work > MOST:
        return None
    if sign[0] == "/" and not pattern.strip("*"):
        return None
    written = "".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in pattern)
    if sign[0] == "/":
        return re.sub(written, lambda _: instead, text, count=0 if sign == "//" else 1, flags=re.DOTALL)
    ends = range(len(text) + 1) if sign in ("#", "%%") else range(len(text), -1, -1)
    for end in ends:
        piece, rest = (text[:end], text[end:]) if sign[0] == "#" else (text[end:], text[:end])
        if re.fullmatch(written, piece, re.DOTALL):
            return rest
    return text
