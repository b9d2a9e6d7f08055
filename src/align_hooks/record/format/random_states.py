"""Digests of the states of random generators, and their form in a row of scalars.

Equal states draw equal numbers, so eight bytes of a digest replace the kilobytes of a state. Imports no framework;
``torch_side/state.py`` and ``ms_side/state.py`` list the generators.
"""

from __future__ import annotations

import ctypes
import random
from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from align_hooks.names.blocks import Array
from align_hooks.record.format import digests

WORDS = 625
"""Words of 32 bits of numpy's ``mt19937_state``: 624 of the generator and its position among them."""


def digest(state: bytes | Array) -> str:
    """Return the xxh3 digest of a generator's state, 16 hexadecimal digits: two different states have equal ones once in 2**64."""
    return f"{digests.short(state):016x}"


class PythonAndNumpy:
    """Reader of the generators behind ``random`` and ``numpy.random``, which draws nothing and digests a state that moved.

    A state that is restored with the words of the last reading and another kept normal number is taken for that."""

    def __init__(self) -> None:
        self._state: tuple[object, ...] = ()
        self._words: bytes | None = None
        """numpy's words at its last reading; None where an equal state may have equal words and draw otherwise."""
        self._digests: dict[str, str] = {}

    def read(self) -> dict[str, str]:
        """Return the digest of either generator's state."""
        if (state := random.getstate()) != self._state:
            version, words, gauss = self._state = state
            self._digests["python"] = digest(array("Q", words).tobytes() + repr((version, gauss)).encode())
        if (now := _words()) is None or now != self._words:
            held: dict[str, Any] = np.random.get_state(legacy=False)  # takes 20 times as long as the words
            # one of two normal numbers is kept for the next call, which moves no word; it is kept by a draw of both, which does
            self._words = None if held["has_gauss"] else now
            words = held["state"].pop("key", b"")  # a text of an array may be a part of it
            self._digests["numpy"] = digest(bytes(words) + repr(held).encode())
        return dict(self._digests)


def _words() -> bytes | None:
    """Return the words of numpy's generator and its position, in place; None of another generator, or before numpy 1.24."""
    generator = getattr(np.random, "get_bit_generator", lambda: None)()
    return ctypes.string_at(generator.ctypes.state_address, 4 * WORDS) if isinstance(generator, np.random.MT19937) else None


def changes(seen: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Return the first digests, then the generators that moved at each later moment, up to the last move."""
    kept: list[dict[str, str]] = []
    before: Mapping[str, str] = {}
    for states in seen:
        kept.append({name: value for name, value in states.items() if before.get(name) != value})
        before = {**before, **states}
    while len(kept) > 1 and not kept[-1]:  # a step without dropout costs one entry, however many micro-batches it has
        kept.pop()
    return kept


def whole(kept: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Return every generator's digest at the start of the step, then of each micro-batch; inverts :func:`changes`."""
    none: dict[str, str] = {}
    return list(accumulate(kept, lambda digests, moved: {**digests, **moved}, initial=none))[1:]
