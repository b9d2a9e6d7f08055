"""The names that a misspelt one may mean: by kind first, then by layer, then by spelling.

Spelling misleads: ``model.layers.1.q_proj`` shares more letters with ``model.layers.1.mlp.up_proj.weight`` than with
``model.layers.1.self_attn.q_proj.weight``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

LAYER = re.compile(r"(?<=\blayers\.)(\d+|\*)")
PARAMETER = re.compile(r"(\.(weight|bias))?(#\w+)?$")
"""The end of a name behind its module."""
ALIKE = 0.5
"""The least ratio of common letters, of the kind or of the full name."""


def nearest(name: str, names: Iterable[str], most: int = 1) -> list[str]:
    """Return up to ``most`` of ``names``, the nearest first; names that differ only by their layer count once."""
    kind, layer = _kind(name), _layer(name)

    def likeness(other: str) -> tuple[float, bool, float]:
        of_kind, whole = (SequenceMatcher(None, *pair).ratio() for pair in ((_kind(other), kind), (other, name)))
        return of_kind, _layer(other) == layer, whole

    scored = {other: likeness(other) for other in names}
    best: dict[str, str] = {}
    for other in sorted(scored, key=scored.__getitem__, reverse=True):
        of_kind, _, whole = scored[other]
        if max(of_kind, whole) >= ALIKE:
            best.setdefault(LAYER.sub("*", other), other)
    return [*best.values()][:most]


def _kind(name: str) -> str:
    return PARAMETER.sub("", name).rpartition(".")[2]


def _layer(name: str) -> str:
    found = LAYER.search(name)
    return found[1] if found else ""
