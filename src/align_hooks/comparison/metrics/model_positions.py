"""The position of a tensor in its model, by its canonical name: the layer, and the kind of parameter.

The order is that of the forward pass, embedding, layers, head, and shows left to right where an error starts. The experts of a layer are
one kind, of which a picture shows the worst."""

from __future__ import annotations

import re

from msgspec import Struct

import align_hooks.names.points as points
from align_hooks.families.registry import levels

LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
NUMBER = re.compile(r"\.\d+(?=\.)")
EMBEDDING, HEAD = "embed", "head"
POINTS = (points.EMBEDDING, *points.ORDER, *points.LAST)
"""Kinds of points in the order of a forward pass."""
KINDS = tuple(kind for level in levels() for kind in level)
"""Kinds of all families in the order of a forward pass; others come after their longest known prefix, or last."""


class ModelPosition(Struct, frozen=True, order=True):
    """A position in the order of a forward pass."""

    depth: float
    """-1 for the embedding, a layer's number, infinity behind all layers."""
    order: int
    """Index of the kind within its layer."""
    kind: str
    """The name without the numbers of layer and expert."""

    @property
    def column(self) -> str:
        """Return the layer as a picture names it."""
        return EMBEDDING if self.depth < 0 else HEAD if self.depth == float("inf") else f"{self.depth:.0f}"


def place(name: str) -> ModelPosition:
    """Return the position of a tensor or of a point."""
    if (point := points.place(name.removesuffix(points.GRADIENT))).kind in POINTS:
        depth = (-1.0, float(point.layer), float("inf"))[point.stage]
        return ModelPosition(depth, POINTS.index(point.kind), "output" if point.kind == points.BLOCK else point.kind)
    layer = LAYER.search(name)
    kind = NUMBER.sub(".*", name[layer.end() :] if layer else name.removeprefix("model.")).removesuffix(".weight")
    begins = (order for order, known in enumerate(KINDS) if kind == known or kind.startswith((known + ".", known + "#")))
    depth = int(layer[1][:6]) if layer else -1.0 if "embed" in kind else float("inf")
    return ModelPosition(depth, max(begins, default=len(KINDS)), kind)
