"""What a conversion did to a weight."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from align_hooks.compare.conversion import told

Array = NDArray[np.float32]
Q, K, NORM = "q_proj", "k_proj", "norm"
RANDOM = np.random.default_rng(2)
OURS: dict[str, Array] = {
    Q: RANDOM.standard_normal((16, 16)).astype(np.float32),
    K: RANDOM.standard_normal((16, 16)).astype(np.float32),
    NORM: RANDOM.standard_normal(16).astype(np.float32),
}


def interleaved(one: Array) -> Array:
    return one.reshape(2, 2, 4, -1).swapaxes(1, 2).reshape(one.shape)


MISTAKES: dict[str, tuple[str, Callable[[Array], Array], str]] = {
    "sign": (Q, lambda one: -one, "its sign is turned"),
    "transposed": (Q, lambda one: one.T, "it is transposed"),
    "other": (Q, lambda one: OURS[K], "it is the reference's k_proj"),
    "ones": (NORM, np.ones_like, "every element is 1: it was not loaded"),
    "bfloat16": (Q, lambda one: (one.view(np.uint32) + 0x8000 & 0xFFFF0000).astype(np.uint32).view(np.float32), "rounded to bfloat16"),
    "float16": (Q, lambda one: one.astype(np.float16).astype(np.float32), "it was rounded to float16"),
    "rolled": (Q, lambda one: np.roll(one, 3, axis=0), "its rows stand in another order, 3 off"),
    "columns": (Q, lambda one: np.roll(one, -1, axis=1), "its columns stand in another order, 1 off"),
    "interleaved": (Q, interleaved, "the halves of every 8 interleaved, as rotary embeddings of neighbours want them"),
    "halved": (Q, lambda one: one[np.argsort(interleaved(np.arange(16)[:, None])[:, 0])], "every 8 cut from neighbours into halves"),
    "two rows": (Q, lambda one: one[[0, 5, 2, 3, 4, 1, *range(6, 16)]], "2 of 16, first 1, which was 5"),
    "a vector": (NORM, lambda one: one[::-1], "its rows stand in another order"),
}


@pytest.mark.parametrize(("name", "change", "expected"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told(name: str, change: Callable[[Array], Array], expected: str) -> None:
    theirs = OURS | {name: np.ascontiguousarray(change(OURS[name]))}
    sizes = {name: float(np.linalg.norm(one)) for name, one in OURS.items()}
    assert expected in told(OURS, theirs, name, sizes)


@pytest.mark.parametrize(
    "change", [lambda one: one * 1.5, lambda one: one + 1e-3, lambda one: one * 0 + np.nan], ids=["scaled", "moved", "nan"]
)
def test_what_is_none_of_them_is_not_explained(change: Callable[[Array], Array]) -> None:
    sizes = {name: float(np.linalg.norm(one)) for name, one in OURS.items()}
    assert told(OURS, OURS | {Q: change(OURS[Q])}, Q, sizes) == ""
