"""The numbers of a step's activations (:mod:`align_hooks.record.read.activations`), of small values many at a time.

A small value costs the calls of operators, not their arithmetic. So a copy of it waits for others of its shape, and all are measured by
the calls of one. A large value is measured where it is, in blocks that stay in a cache. A value crosses to the host only where the device
has no fp64, and nothing waits for a device.
"""

from typing import TypeAlias

import torch
from msgspec import Struct, field

from align_hooks.record.format.sketch import PROJECTIONS
from align_hooks.record.read.activations import LEAST, MOST, NUMBERS, measured, row_signs
from align_hooks.torch_side.arrays import has_fp64, to_numpy
from align_hooks.torch_side.objects import Tensor

IN_CACHE, BLOCK = 1 << 18, 1 << 20
"""Elements that are measured at a time on a host, 2 MB in fp64, and on an accelerator."""
Key: TypeAlias = tuple[str, int]
"""The name of a value and its micro-batch."""


class ActivationNumbers(Struct):
    """The numbers of the values of one step, on their device."""

    seen: dict[Key, None] = field(default_factory=dict)
    """The values in the order in which they were seen."""
    waiting: dict[object, list[tuple[Key, Tensor, Tensor | None, Tensor]]] = field(default_factory=dict)
    """Values of one shape, type and place that wait, copied, with their signs."""
    held: int = 0
    """Elements of all values that wait."""
    made: list[tuple[list[Key], Tensor]] = field(default_factory=list)
    """Values, and their numbers ``[values, NUMBERS]``, fp64."""

    def add(self, key: Key, value: Tensor, rows: Tensor | None, columns: Tensor) -> None:
        """Measure a value ``[tokens, width]``, at once or later.

        ``rows`` are the signs of its tokens, int8 ``[PROJECTIONS + 1, tokens]``, the last all +1; None where every sign is +1.
        ``columns`` are those of its columns, int8 ``[PROJECTIONS, width]``."""
        self.seen[key] = None
        if not has_fp64(value.device):
            signs = row_signs(None, len(value)) if rows is None else rows[:-1].T.cpu().numpy()
            self.made.append(([key], torch.from_numpy(measured(to_numpy(value), signs, columns.T.cpu().numpy()))[None]))
            return
        most = at_once(value)
        if 2 * value.numel() > most:
            self.made.append(([key], numbers_of(value[None], rows, columns)))
            return
        stream = torch.cuda.current_stream(value.device) if value.is_cuda else None  # another's copies may not be there yet
        kind = value.shape, value.dtype, id(rows), id(columns), getattr(stream, "cuda_stream", 0)
        alike = self.waiting.setdefault(kind, [])
        alike.append((key, value.clone(), rows, columns))
        self.held += value.numel()
        if len(alike) * value.numel() >= most:
            self._measure(kind)
        elif self.held >= 4 * most:  # experts' values have many shapes
            self._measure(max(self.waiting, key=lambda kind: sum(copy.numel() for _, copy, _, _ in self.waiting[kind])))

    def _measure(self, kind: object) -> None:
        keys, copies, rows, columns = zip(*self.waiting.pop(kind), strict=True)
        self.held -= sum(copy.numel() for copy in copies)
        self.made.append((list(keys), numbers_of(torch.stack(copies), rows[0], columns[0])))

    def taken(self) -> tuple[list[Key], Tensor]:
        """Return all values and their numbers ``[values, NUMBERS]``; there must be some."""
        for kind in list(self.waiting):
            self._measure(kind)
        keys, parts = zip(*self.made, strict=True)
        return [key for of_part in keys for key in of_part], torch.cat([part.to(parts[0].device) for part in parts])


def at_once(values: Tensor) -> int:
    """Return how many elements are measured at a time where values are."""
    return IN_CACHE if values.is_cpu else BLOCK


def numbers_of(values: Tensor, rows: Tensor | None, columns: Tensor) -> Tensor:
    """Return the numbers of values ``[values, tokens, width]``, fp64 ``[values, NUMBERS]``; signs are those of
    :meth:`ActivationNumbers.add`."""
    count, tokens, width = values.shape
    of_block = max(at_once(values) // max(count * width, 1), 1)
    cuts = [slice(start, start + of_block) for start in range(0, tokens if width else 0, of_block)]
    wide = columns.double()
    parts = [_of_block(values[:, cut], rows if rows is None else rows[:, cut].double(), wide) for cut in cuts]
    if len(parts) == 1:
        return parts[0]
    stacked = torch.zeros(len(parts) + 1, count, NUMBERS, dtype=torch.float64, device=values.device)
    stacked[:, :, LEAST].fill_(torch.inf)
    stacked[:, :, MOST].fill_(-torch.inf)
    for index, part in enumerate(parts):
        stacked[index] = part
    total = stacked[:-1].sum(dim=0)
    total[:, LEAST], total[:, MOST] = stacked[:, :, LEAST].amin(dim=0), stacked[:, :, MOST].amax(dim=0)
    return total


def _of_block(values: Tensor, rows: Tensor | None, columns: Tensor) -> Tensor:
    least, most, others = extremes(values.flatten(1))
    wide = values.double()
    flat = wide.flatten(1)
    # tokens are added up first: the products of two tall matrices take twice the time
    by_column = wide.sum(dim=1, keepdim=True) if rows is None else rows @ wide
    signed = (by_column[:, :PROJECTIONS] * columns).sum(dim=2)
    size = torch.full_like(least, flat.shape[1])
    squares = torch.dot(flat[0], flat[0])[None] if len(flat) == 1 else torch.linalg.vecdot(flat, flat)  # the first in one pass
    return torch.cat([torch.stack([size, others, least, most, by_column[:, -1].sum(dim=1), squares], dim=1), signed], dim=1)


def extremes(flat: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the smallest and the largest finite element of each row, and the number of the others, fp64 ``[rows]``."""
    if flat.is_cpu:  # no masks where all are finite; asking a device would be a transfer
        least, most = flat.amin(dim=1), flat.amax(dim=1)  # both at once, by rows, take ten times as long
        if torch.isfinite(least).all() and torch.isfinite(most).all():  # NaN is both the smallest and the largest
            return least.double(), most.double(), torch.zeros_like(least, dtype=torch.float64)
    finite = torch.isfinite(flat)
    least, most = torch.where(finite, flat, torch.inf).amin(dim=1), torch.where(finite, flat, -torch.inf).amax(dim=1)
    return least.double(), most.double(), (~finite).sum(dim=1).double()
