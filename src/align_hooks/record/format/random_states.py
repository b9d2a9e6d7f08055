"""Digests of the states of random generators, and how a row of scalars keeps them.

Two runs draw the same numbers where their generators' states are equal, so eight bytes of a digest replace the kilobytes of a
state. Imports no framework; ``torch_side/state.py`` and ``ms_side/state.py`` list the generators.
"""

from __future__ import annotations

import hashlib
import random
from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np

SIZE = 8
"""Bytes of a digest: two different states have equal digests once in 2**64."""


def digest(state: bytes) -> str:
    """The BLAKE2b digest of a generator's state, 16 hexadecimal digits."""
    return hashlib.blake2b(state, digest_size=SIZE).hexdigest()


def of_python_and_numpy() -> dict[str, str]:
    """Digests of the generators behind ``random`` and ``numpy.random``; neither is moved by this."""
    version, words, gauss = random.getstate()
    name, keys, *position = np.random.get_state()
    return {
        "python": digest(array("Q", words).tobytes() + repr((version, gauss)).encode()),
        "numpy": digest(np.asarray(keys).tobytes() + repr((name, *position)).encode()),
    }


def changes(seen: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """What a row keeps of digests in the order in which they were taken: the first whole, then the generators that moved since. Entries
    after the last move are left out, so that a step without dropout costs one entry, however many micro-batches it has."""
    kept: list[dict[str, str]] = []
    before: Mapping[str, str] = {}
    for digests in seen:
        kept.append({name: value for name, value in digests.items() if before.get(name) != value})
        before = {**before, **digests}
    while len(kept) > 1 and not kept[-1]:
        kept.pop()
    return kept


def whole(kept: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Every generator's digest at the start of the step, then of each micro-batch up to the last that a generator moved before, from the
    entries that :func:`changes` ``kept``."""
    none: dict[str, str] = {}
    return list(accumulate(kept, lambda digests, moved: {**digests, **moved}, initial=none))[1:]
