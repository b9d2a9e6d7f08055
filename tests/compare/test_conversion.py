"""What a conversion did to a weight."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from align_hooks.compare.conversion import exchanged, told, told_of_sketches

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


def test_rows_that_are_alike_do_not_hide_a_known_order() -> None:
    one = OURS[Q].copy()
    one[[1, 9]] = 0
    assert "the halves of every 8 interleaved" in told({Q: one}, {Q: np.ascontiguousarray(interleaved(one))}, Q, {Q: 1.0})


def test_a_tensor_of_more_axes_is_told_of_too() -> None:
    one = RANDOM.standard_normal((2, 3, 5)).astype(np.float32)
    assert "its places along axis 2 stand in another order, 1 off" in told({Q: one}, {Q: np.roll(one, 1, axis=2)}, Q, {Q: 1.0})


def sums(**tensors: Array) -> dict[str, Array]:
    return {name: np.concatenate([[np.square(one).sum()], [one.sum()] * 16]) for name, one in tensors.items()}


def test_a_sketch_is_of_another_tensor_only_where_that_is_the_only_one_of_its_shape() -> None:
    ones, zeros = np.ones(4, np.float32), np.zeros(4, np.float32)
    shapes = {"a": (4,), "b": (4,), "c": (4,), "d": (2, 2)}
    ours = sums(a=2 * ones, b=ones, c=ones, d=ones)
    assert told_of_sketches(ours, sums(a=ones), "a", shapes) == ""  # b or c
    assert told_of_sketches(ours, sums(a=zeros), "a", shapes) == ""
    assert told_of_sketches(sums(a=2 * ones, b=ones, d=ones), sums(a=ones), "a", shapes) == "a: it is the reference's b"


def test_two_that_took_each_others_place_are_one_sentence() -> None:
    sentences = ["a: it is the reference's b", "b: it is the reference's a", "c: it is the reference's a", "d: it is transposed"]
    assert exchanged(sentences) == ["a and b are exchanged", "c: it is the reference's a", "d: it is transposed"]
    assert exchanged([]) == []
    assert exchanged(["a: it is the reference's b: it is the reference's c"]) == ["a: it is the reference's b: it is the reference's c"]
