"""A digest of the tokens of a step, of every step, so that a run's data is known where its batches are not recorded.

It is the data sampler's position as the model saw it: a sampler that begins anew, or that repeats a batch, gives another. It is a sum of
products mod 2**64, which a device adds up in any order, and of which one number comes to the host. A token's id and 1, so that an id of 0
counts, is multiplied by a number of its position, the sum of a row by one of the row's number in the step: two batches have equal digests
once in 2**52. Imports no framework.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from align_hooks.names.blocks import Array

CALLED = "the digest of the tokens"
"""By what a recorder that cannot take it says that it goes on without."""
BITS = 52
"""Of a digest: as many as fp64 holds, in which all numbers of a step cross to the host."""
POSITIONS, ROWS = 1 << 40, 2 << 40
"""Where the numbers of positions and of rows begin, so that none is of both."""


def multipliers(count: int, begin: int) -> NDArray[np.int64]:
    """Odd numbers that look random, ``[count]``, of positions or of rows: the finaliser of splitmix64 (Steele, Lea and Flood, 2014) of
    ``begin`` and what follows it."""
    numbers = np.arange(begin, begin + count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    return ((numbers ^ (numbers >> np.uint64(31))) | np.uint64(1)).view(np.int64)


def digest(tokens: Array) -> str:
    """Of the tokens of a step on a rank, ``[rows, sequence]``, in the order in which they are consumed."""
    rows, length = tokens.shape
    of_rows = ((tokens.astype(np.int64) + 1) * multipliers(length, POSITIONS)).sum(1)
    return text(int((of_rows * multipliers(rows, ROWS)).sum()) >> (64 - BITS))


def text(number: int) -> str:
    """The upper 52 of a sum's 64 bits, as 13 hexadecimal digits; ``number`` is the sum without its lower bits, of either sign."""
    return f"{number % (1 << BITS):0{BITS // 4}x}"
