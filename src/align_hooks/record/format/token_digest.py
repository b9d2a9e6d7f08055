"""A digest of the tokens of every step, for runs whose batches are not recorded.

The digest shows a sampler that begins anew or repeats a batch. It is a sum of products mod 2**64, which a device
adds up in any order, and one number comes to the host. A token's id + 1 (so that an id of 0 counts) is multiplied by
a number of its position, a row's sum by one of its row: two batches have equal digests once in 2**52.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from align_hooks.names.blocks import Array

CALLED = "the digest of the tokens"
"""The name of the digest in the warning of a recorder that goes on without."""
BITS = 52
"""Bits of a digest: fp64, in which all numbers of a step cross to the host, holds no more."""
POSITIONS, ROWS = 1 << 40, 2 << 40
"""The first numbers of positions and of rows, so that the ranges are disjoint."""


@functools.lru_cache(maxsize=64)
def multipliers(count: int, begin: int) -> NDArray[np.int64]:
    """Return pseudo-random odd numbers, ``[count]``: splitmix64's finaliser (Steele, Lea and Flood, 2014) from ``begin`` on."""
    numbers = np.arange(begin, begin + count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    return ((numbers ^ (numbers >> np.uint64(31))) | np.uint64(1)).view(np.int64)


def digest(*micro_batches: Array) -> str:
    """Return the digest of a rank's tokens of a step, ``[rows, sequence]`` each, in the order of consumption."""
    sums = [((tokens.astype(np.int64) + 1) * multipliers(tokens.shape[1], POSITIONS)).sum(1) for tokens in micro_batches]
    of_rows = np.concatenate(sums)
    return text(int((of_rows * multipliers(len(of_rows), ROWS)).sum()) >> (64 - BITS))


def text(number: int) -> str:
    """Return 13 hexadecimal digits of ``number``, a signed sum without its lower 12 bits."""
    return f"{number % (1 << BITS):0{BITS // 4}x}"
