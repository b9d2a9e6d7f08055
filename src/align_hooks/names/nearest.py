"""The names that a misspelt one may mean: of the same kind first, then of the same layer, then those that are spelt alike.

Spelling alone misleads: ``model.layers.1.q_proj`` has more letters in common with ``model.layers.1.mlp.up_proj.weight`` than with
``model.layers.1.self_attn.q_proj.weight``, which is meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

LAYER = re.compile(r"(?<=\blayers\.)(\d+|\*)")
PARAMETER = re.compile(r"(\.(weight|bias))?(#\w+)?$")
"""The end of a name that does not say which module it is of."""
ALIKE = 0.5
"""The part of letters in common, of a kind or of a whole name, from which a name may be meant."""


def nearest(name: str, names: Iterable[str], most: int = 1) -> list[str]:
    """The names that are nearest to one that is none of them, the nearest first; of names that differ by their layer alone one."""
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
