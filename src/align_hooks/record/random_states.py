"""Digests of the states of random generators: how they are taken, kept in a row of scalars, and read back.

Two runs draw the same numbers where their generators' states are the same, so eight bytes of a digest say as much as the kilobytes of a
state. Imports no framework; ``torch_side/random_states.py`` and ``ms_side/random_states.py`` say which generators there are.
"""

from __future__ import annotations

import hashlib
import random
from array import array
from collections.abc import Mapping, Sequence

import numpy as np

SIZE = 8
"""Bytes of a digest: two states of a run that differ have the same one once in 2**64."""


def digest(state: bytes) -> str:
    """The BLAKE2b digest of a generator's state, 16 hexadecimal digits."""
    return hashlib.blake2b(state, digest_size=SIZE).hexdigest()


def of_python_and_numpy() -> dict[str, str]:
    """Digests of the generators behind ``random`` and ``numpy.random``; neither is moved by this."""
    version, words, gauss = random.getstate()
    name, keys, *rest = np.random.get_state()
    return {
        "python": digest(array("Q", words).tobytes() + repr((version, gauss)).encode()),
        "numpy": digest(np.asarray(keys).tobytes() + repr((name, *rest)).encode()),
    }


def changes(seen: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """What is written of digests that were taken one after the other: the first whole, of each later one the generators that moved.

    What nothing moved after is left out, so that a step without dropout costs one entry, however many micro-batches it has.
    """
    kept: list[dict[str, str]] = []
    before: Mapping[str, str] = {}
    for one in seen:
        kept.append({name: value for name, value in one.items() if before.get(name) != value})
        before = {**before, **one}
    while len(kept) > 1 and not kept[-1]:
        kept.pop()
    return kept


def whole(kept: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Of what :func:`changes` kept, every generator's digest at the start of the step, then of each micro-batch up to the last that any
    generator moved before."""
    found: list[dict[str, str]] = []
    for one in kept:
        found.append({**(found[-1] if found else {}), **one})
    return found
