"""Where tensors lie in memory: those that are neighbours are looked at as one.

Megatron's data-parallel wrapper keeps all main gradients in a few contiguous buffers, of which ``main_grad`` of a parameter is a view, and
so is the gradient that its optimizer reads, unless it is of another type. A view over a whole buffer takes one call of an operator where
a view a tensor takes hundreds. The buffers are not asked for: every optimizer and every version keeps them elsewhere, while a tensor
always says which memory it is a view of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

GAP = 1 << 16
"""Elements between two tensors that are read with them, and not counted. Buffers are padded by fewer."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """``size`` elements of one storage from ``offset`` on, which hold tensors: the index of each, and where it begins in the stretch."""

    offset: int
    size: int
    members: tuple[tuple[int, int], ...]
    dtype: torch.dtype

    def flat(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """The stretch, one-dimensional and without a copy, unless it is one tensor that is not contiguous."""
        first = tensors[self.members[0][0]].detach()
        if len(self.members) == 1:
            return first.reshape(-1)
        return torch.as_strided(first, (self.size,), (1,), self.offset)


def stretches_of(tensors: Sequence[torch.Tensor]) -> tuple[Stretch, ...]:
    """The stretches of tensors, each tensor in one."""
    stretches: list[Stretch] = []
    shared: dict[tuple[int, torch.dtype], list[tuple[int, int, int]]] = {}
    for index, tensor in enumerate(tensors):
        if tensor.is_contiguous():
            place = tensor.storage_offset(), tensor.storage_offset() + tensor.numel(), index
            shared.setdefault((tensor.untyped_storage().data_ptr(), tensor.dtype), []).append(place)
        else:
            stretches.append(Stretch(0, tensor.numel(), ((index, 0),), tensor.dtype))
    for (_, dtype), places in shared.items():
        stretches += _neighbours(sorted(places), dtype)
    return tuple(stretches)


def _neighbours(places: list[tuple[int, int, int]], dtype: torch.dtype) -> list[Stretch]:
    """The stretches of tensors of one storage, each [start, stop) and index. One that overlaps another is alone."""
    found: list[Stretch] = []
    members: list[tuple[int, int]] = []
    begin = end = 0
    for start, stop, index in places:
        if members and not 0 <= start - end <= GAP:
            found.append(Stretch(begin, end - begin, tuple(members), dtype))
            members = []
        if not members:
            begin = start
        members.append((index, start - begin))
        end = stop
    return [*found, Stretch(begin, end - begin, tuple(members), dtype)] if members else found
