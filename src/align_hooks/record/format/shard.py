"""A rank's part of one canonical tensor: the shape of the whole, and the elements that this rank holds.

Ranks write their shards without communication. The reader puts the whole together and proves that every element came exactly once. A
tensor- or pipeline-parallel part is a box of the whole. A distributed optimizer cuts through rows, so a box may be narrowed to a range of
its elements in row-major order.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from align_hooks.names.fused import Fused

LONGEST_NAME = 1000
"""Characters of the longest name of a parameter."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One row of a rank's parameter table.

    ``shape`` is the whole tensor's. ``box`` is [start, stop) per axis. ``flat`` narrows the box to its elements [start, stop) in row-major
    order; None is all. ``counted`` is False for a copy of elements that another rank counts. ``trainable`` is False for a frozen parameter,
    which has no gradient. ``own`` says that the name is the framework's own. ``dtype`` is the parameter's own, before the record made fp32
    of it.
    """

    name: str
    shape: tuple[int, ...]
    native: str
    dtype: str
    box: tuple[tuple[int, int], ...] = ()
    flat: tuple[int, int] | None = None
    counted: bool = True
    trainable: bool = True
    own: bool = False
    main_differs: bool | None = None
    """Whether the fp32 main parameter, rounded to ``dtype``, is not what the model computes with at the start; None where there is no
    main parameter, or it cannot be read."""

    def __post_init__(self) -> None:
        """Raise ValueError where box or range are no part of the tensor."""
        if (length := max(len(self.name), len(self.native))) > LONGEST_NAME:
            raise ValueError(f"a name of {length} characters is none of a parameter")
        if not self.box:
            object.__setattr__(self, "box", tuple((0, size) for size in self.shape))
        if min(self.shape, default=0) < 0 or math.prod(self.shape) >= 1 << 50 or len(self.box) != len(self.shape):
            raise ValueError(f"{self.name}: {self.shape} and {self.box} are no tensor and its part")
        if not all(0 <= start <= stop <= size for (start, stop), size in zip(self.box, self.shape, strict=True)):
            raise ValueError(f"{self.name}: {self.box} is no part of {self.shape}")
        size = math.prod(stop - start for start, stop in self.box)
        if self.flat is not None and not 0 <= self.flat[0] <= self.flat[1] <= size:
            raise ValueError(f"{self.name}: {self.flat} is no range of {size} elements")

    @property
    def local_shape(self) -> tuple[int, ...]:
        """Shape of what this rank writes."""
        return (self.flat[1] - self.flat[0],) if self.flat else tuple(stop - start for start, stop in self.box)

    @property
    def elements(self) -> int:
        """Number of elements of this part."""
        return math.prod(self.local_shape)

    def facts(self) -> dict[str, object]:
        """As a manifest keeps it."""
        return asdict(self)


def shards_of(fused: Fused, *, dtype: str, counted: bool, trainable: bool = True, main_differs: bool | None = None) -> list[Shard]:
    """A rank's rows of its parameter table for one of the framework's parameters."""
    return [
        Shard(
            *(piece.name, piece.shape, fused.native, dtype, piece.box, flat),
            counted=counted,
            trainable=trainable,
            own=piece.own,
            main_differs=main_differs,
        )
        for piece, flat in fused.ranges()
    ]
