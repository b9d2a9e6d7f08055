"""Where a tensor stands in its model, by its canonical name alone: the layer, and the kind of parameter.

The forward pass goes from the embedding through the layers to the head, so this order, left to right, is what shows where an error
starts. Of the experts of a layer, which are one kind, a picture shows the worst.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from align_hooks.families.registry import levels

LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
NUMBER = re.compile(r"\.\d+(?=\.)")
EMBEDDING, HEAD = "embed", "head"
KINDS = tuple(kind for level in levels() for kind in level)
"""Kinds of all families in the order of a forward pass; others stand where their last known beginning does, or behind all."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """``depth`` is -1 for the embedding, a layer's number, or behind all layers; ``kind`` is the name without layer and expert number."""

    depth: float
    order: int
    kind: str

    @property
    def column(self) -> str:
        """The layer as a picture names it."""
        return EMBEDDING if self.depth < 0 else HEAD if self.depth == float("inf") else f"{self.depth:.0f}"


def place(name: str) -> Place:
    """The place of a canonical name."""
    found = LAYER.search(name)
    kind = NUMBER.sub(".*", name[found.end() :] if found else name.removeprefix("model."))
    short = kind.removesuffix(".weight")
    order = max((at for at, one in enumerate(KINDS) if short == one or short.startswith((one + ".", one + "#"))), default=len(KINDS))
    if found is not None:
        return Place(int(found[1][:6]), order, short)
    return Place(-1.0 if "embed" in short else float("inf"), order, short)
