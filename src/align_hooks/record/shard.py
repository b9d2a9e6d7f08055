"""A rank's part of one canonical tensor: what the whole is, and which of its elements stand here.

Ranks write what they hold and never talk to each other about it; the reader puts the whole together and proves that
every element came exactly once. A tensor- or pipeline-parallel part is a box of the whole. A distributed optimizer cuts
through rows, so a box may be narrowed to a range of its elements in row-major order.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from align_hooks.names.fused import Fused

LONGEST_NAME = 1000
"""Characters of a parameter's name, and no more."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One row of a rank's parameter table.

    ``shape`` is the whole tensor's. ``box`` is [start, stop) per axis. ``flat`` narrows the box to its elements
    [start, stop) in row-major order; None is all. ``counted`` is False on ranks that hold a copy which another rank
    already accounts for. ``trainable`` is False for a frozen parameter, which has no gradient. ``dtype`` is the
    parameter's own, before the record made fp32 of it.
    """

    name: str
    shape: tuple[int, ...]
    native: str
    dtype: str
    box: tuple[tuple[int, int], ...] = ()
    flat: tuple[int, int] | None = None
    counted: bool = True
    trainable: bool = True

    def __post_init__(self) -> None:
        if not self.box:
            object.__setattr__(self, "box", tuple((0, size) for size in self.shape))

    @property
    def local_shape(self) -> tuple[int, ...]:
        """Shape of what this rank writes."""
        return (self.flat[1] - self.flat[0],) if self.flat else tuple(stop - start for start, stop in self.box)

    @property
    def elements(self) -> int:
        """Number of elements of this part."""
        return math.prod(self.local_shape)

    def facts(self) -> dict[str, Any]:
        """As a manifest keeps it."""
        return asdict(self)

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Shard:
        """The inverse of :meth:`facts`; raises ValueError where box or range are no part of the tensor."""
        known = dict(facts)
        known["shape"] = tuple(known["shape"])
        known["box"] = tuple((start, stop) for start, stop in known["box"])
        known["name"], known["native"] = map(sys.intern, (known["name"], known["native"]))
        if max(len(known["name"]), len(known["native"])) > LONGEST_NAME:
            raise ValueError(f"a name of {len(known['name'])} characters is none of a parameter")
        known["flat"] = None if known["flat"] is None else tuple(known["flat"])
        shape, box = known["shape"], known["box"] or tuple((0, size) for size in known["shape"])
        whole = all(type(size) is int and size >= 0 for size in shape) and math.prod(shape) < 1 << 50 and len(box) == len(shape)
        if not whole or not all(type(end) is int for bounds in box for end in bounds):
            raise ValueError(f"{known['name']}: {shape} and {box} are no tensor and its part")
        if not all(0 <= start <= stop <= size for (start, stop), size in zip(box, shape, strict=True)):
            raise ValueError(f"{known['name']}: {box} is no part of {shape}")
        flat, size = known["flat"], math.prod(stop - start for start, stop in box)
        if flat is not None and not (len(flat) == 2 and all(type(end) is int for end in flat) and 0 <= flat[0] <= flat[1] <= size):
            raise ValueError(f"{known['name']}: {flat} is no range of {size} elements")
        return cls(**known)


def shards_of(fused: Fused, *, dtype: str, counted: bool, trainable: bool = True) -> list[Shard]:
    """A rank's rows of its parameter table for one of the framework's parameters."""
    return [
        Shard(piece.name, piece.shape, fused.native, dtype, piece.box, flat, counted=counted, trainable=trainable)
        for piece, flat in fused.ranges()
    ]
