"""Hugging Face's stacks: tensors that hold those of all experts of a layer, transposed, the rows of several pieces in turn.

Canonical names are of one expert. A stack is ``[experts, columns, pieces · rows]``, or of biases ``[experts, pieces · rows]``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

import numpy as np
from msgspec import Struct

from align_hooks.names.blocks import Array
from align_hooks.names.table import numbers_in, pattern_of

Stacks = Mapping[str, Sequence[str]]
"""Name of a stack to those of an expert's pieces, with placeholders for numbers."""
MOST = 10_000
"""Most experts of a layer; a tensor of more is no stack."""


class StackSlot(Struct, frozen=True):
    """The place of one expert's piece in a stack."""

    stack: str
    """The stack's name."""
    expert: int
    piece: int
    pieces: int
    """The number of an expert's pieces."""

    def shape(self, of_stack: Sequence[int]) -> tuple[int, ...]:
        """Return the piece's shape by the stack's."""
        *columns, rows = of_stack[1:]
        return (rows // self.pieces, *columns)

    def cut(self, stack: Array) -> Array:
        """Return the piece from the stack."""
        return np.ascontiguousarray(stack[self.expert].T[self.piece :: self.pieces])


def slots(shapes: Mapping[str, Sequence[int]], stacks: Stacks) -> dict[str, StackSlot]:
    """Return canonical name to place, for the stacks among tensors of these ``shapes``."""
    found: dict[str, StackSlot] = {}
    for name, (stack, pieces) in product(shapes, stacks.items()):
        numbers, experts = numbers_in(name, pattern_of(stack)), next(iter(shapes[name]), 0)
        if numbers is not None and experts <= MOST:
            places = product(range(experts), enumerate(pieces))
            found |= {own.format(**numbers, expert=expert): StackSlot(name, expert, at, len(pieces)) for expert, (at, own) in places}
    return found


def stacked_names(names: Iterable[str], stacks: Stacks) -> dict[str, list[list[str]]]:
    """Return each stack that canonical tensors make up, with the names of each expert's pieces."""
    found: dict[str, dict[int, list[str]]] = defaultdict(dict)
    for name in names:
        for stack, (first, *others) in stacks.items():
            if (numbers := numbers_in(name, pattern_of(first))) is not None:
                found[stack.format(**numbers)][numbers["expert"]] = [name, *(other.format(**numbers) for other in others)]
    return {stack: [pieces for _, pieces in sorted(of_experts.items())] for stack, of_experts in found.items()}


def stacked(experts: Iterable[Sequence[Array]]) -> Array:
    """Return the stack of experts' pieces, the inverse of :meth:`StackSlot.cut`."""
    rows = (np.stack(pieces, axis=1).reshape(-1, *pieces[0].shape[1:]).T for pieces in experts)
    return np.stack(list(rows))
