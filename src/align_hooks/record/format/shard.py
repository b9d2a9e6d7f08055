"""A rank's part of one canonical tensor: the shape of the tensor, and the elements that this rank holds.

Ranks write shards without communication; the reader joins them and proves that every element came exactly once.
"""

from __future__ import annotations

import math

from msgspec import Struct
from msgspec.structs import force_setattr

from align_hooks.names.fused import Fused

LONGEST_NAME = 1000
"""Characters of the longest name of a parameter."""


class Shard(Struct, frozen=True):
    """One row of a rank's parameter table."""

    name: str
    shape: tuple[int, ...]
    """The shape of the unsharded tensor."""
    native: str
    """The framework's name of the parameter."""
    dtype: str
    """The parameter's type in training; the record keeps fp32."""
    box: tuple[tuple[int, int], ...] = ()
    """[start, stop) per axis; empty for the full tensor."""
    flat: tuple[int, int] | None = None
    """Elements [start, stop) of the box in row-major order, of a distributed optimizer; None for all."""
    counted: bool = True
    """False for a copy of elements that another rank counts."""
    trainable: bool = True
    own: bool = False
    """Whether ``name`` is the framework's own."""
    main_differs: bool | None = None
    """Whether the fp32 main parameter, rounded, differs from the model's at the start; None where unknown."""

    def __post_init__(self) -> None:
        """Raise ValueError where box or range exceed the tensor."""
        if (length := max(len(self.name), len(self.native))) > LONGEST_NAME:
            raise ValueError(f"a name of {length} characters is none of a parameter")
        if not self.box:
            force_setattr(self, "box", tuple((0, size) for size in self.shape))
        if min(self.shape, default=0) < 0 or math.prod(self.shape) >= 1 << 50 or len(self.box) != len(self.shape):
            raise ValueError(f"{self.name}: {self.shape} and {self.box} are no tensor and its part")
        if not all(0 <= start <= stop <= size for (start, stop), size in zip(self.box, self.shape, strict=True)):
            raise ValueError(f"{self.name}: {self.box} is no part of {self.shape}")
        size = math.prod(stop - start for start, stop in self.box)
        if self.flat is not None and not 0 <= self.flat[0] <= self.flat[1] <= size:
            raise ValueError(f"{self.name}: {self.flat} is no range of {size} elements")

    @property
    def local_shape(self) -> tuple[int, ...]:
        """The shape that this rank writes."""
        return (self.flat[1] - self.flat[0],) if self.flat else tuple(stop - start for start, stop in self.box)

    @property
    def elements(self) -> int:
        """Number of elements of this part."""
        return math.prod(self.local_shape)


def shards_of(fused: Fused, *, dtype: str, counted: bool, trainable: bool = True, main_differs: bool | None = None) -> list[Shard]:
    """Return the rows of a rank's parameter table for one parameter of the framework."""
    return [
        Shard(piece.name, piece.shape, fused.native, dtype, piece.box, flat, counted, trainable, piece.own, main_differs)
        for piece, flat in fused.ranges()
    ]
