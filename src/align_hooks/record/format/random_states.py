"""Digests of the states of random generators, and their form in a row of scalars.

Equal states draw equal numbers, so eight bytes of a digest replace the kilobytes of a state. Imports no framework;
``torch_side/state.py`` and ``ms_side/state.py`` list the generators.
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
    """Return the BLAKE2b digest of a generator's state, 16 hexadecimal digits."""
    return hashlib.blake2b(state, digest_size=SIZE).hexdigest()


def of_python_and_numpy() -> dict[str, str]:
    """Return digests of the generators behind ``random`` and ``numpy.random``, without a draw."""
    version, words, gauss = random.getstate()
    name, keys, *position = np.random.get_state()
    return {
        "python": digest(array("Q", words).tobytes() + repr((version, gauss)).encode()),
        "numpy": digest(np.asarray(keys).tobytes() + repr((name, *position)).encode()),
    }


def changes(seen: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Return the first digests, then the generators that moved at each later moment, up to the last move."""
    kept: list[dict[str, str]] = []
    before: Mapping[str, str] = {}
    for digests in seen:
        kept.append({name: value for name, value in digests.items() if before.get(name) != value})
        before = {**before, **digests}
    while len(kept) > 1 and not kept[-1]:  # a step without dropout costs one entry, however many micro-batches it has
        kept.pop()
    return kept


def whole(kept: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Return every generator's digest at the start of the step, then of each micro-batch; inverts :func:`changes`."""
    none: dict[str, str] = {}
    return list(accumulate(kept, lambda digests, moved: {**digests, **moved}, initial=none))[1:]
