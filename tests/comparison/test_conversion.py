"""What a conversion did to a weight."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from align_hooks.comparison.patterns.conversion import Mistake, exchanged, mistake, mistake_by_sketches
from align_hooks.messages import Argument, Message, message

Array = NDArray[np.float32]
Q, K, NORM = "q_proj", "k_proj", "norm"
RANDOM = np.random.default_rng(2)
OURS: dict[str, Array] = {
    name: RANDOM.standard_normal(shape).astype(np.float32) for name, shape in ((Q, (16, 16)), (K, (16, 16)), (NORM, 16))
}
SIZES = {name: float(np.linalg.norm(array)) for name, array in OURS.items()}


def interleaved(one: Array) -> Array:
    return one.reshape(2, 2, 4, -1).swapaxes(1, 2).reshape(one.shape)


def order(id: str, **arguments: int) -> dict[str, Argument]:
    return {"order": message(id, **arguments)}


def bfloat16(one: Array) -> Array:
    return (one.view(np.uint32) + 0x8000 & 0xFFFF0000).astype(np.uint32).view(np.float32)


HALVED = np.argsort(interleaved(np.arange(16)[:, None])[:, 0])
EXCHANGED = [0, 5, 2, 3, 4, 1, *range(6, 16)]
ROWS = "conversion.rows_in_another_order"
MISTAKES: dict[str, tuple[str, Callable[[Array], Array], str, dict[str, Argument]]] = {
    "sign": (Q, lambda array: -array, "conversion.sign_turned", {}),
    "transposed": (Q, lambda array: array.T, "conversion.transposed", {}),
    "other": (Q, lambda array: OURS[K], "conversion.another_tensor", {"other": K}),
    "ones": (NORM, np.ones_like, "conversion.not_loaded", {"value": 1.0}),
    "bfloat16": (Q, bfloat16, "conversion.rounded", {"type": "bfloat16"}),
    "float16": (Q, lambda array: array.astype(np.float16).astype(np.float32), "conversion.rounded", {"type": "float16"}),
    "rolled": (Q, lambda array: np.roll(array, 3, axis=0), ROWS, order("conversion.off", count=3)),
    "columns": (Q, lambda array: np.roll(array, -1, axis=1), "conversion.columns_in_another_order", order("conversion.off", count=1)),
    "interleaved": (Q, interleaved, ROWS, order("conversion.interleaved", block=8)),
    "halved": (Q, lambda array: array[HALVED], ROWS, order("conversion.cut_into_halves", block=8)),
    "two rows": (Q, lambda array: array[EXCHANGED], ROWS, order("conversion.moved", count=2, all=16, first=1, before=5)),
    "a vector": (NORM, lambda array: array[::-1], ROWS, order("conversion.moved", count=16, all=16, first=0, before=15)),
}


@pytest.mark.parametrize(("name", "change", "id", "arguments"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told(name: str, change: Callable[[Array], Array], id: str, arguments: dict[str, Argument]) -> None:
    theirs = OURS | {name: np.ascontiguousarray(change(OURS[name]))}
    taken = K if id == "conversion.another_tensor" else None
    assert mistake(OURS, theirs, name, SIZES) == Mistake(name, Message(id, {"name": name, **arguments}), taken)


@pytest.mark.parametrize(
    "change", [lambda array: array * 1.5, lambda array: array + 1e-3, lambda array: array * 0 + np.nan], ids=["scaled", "moved", "nan"]
)
def test_what_is_none_of_them_is_not_explained(change: Callable[[Array], Array]) -> None:
    assert mistake(OURS, OURS | {Q: change(OURS[Q])}, Q, SIZES) is None


def test_rows_that_are_alike_do_not_hide_a_known_order() -> None:
    array = OURS[Q].copy()
    array[[1, 9]] = 0
    outcome = mistake({Q: array}, {Q: np.ascontiguousarray(interleaved(array))}, Q, {Q: 1.0})
    assert outcome.words.arguments["order"] == message("conversion.interleaved", block=8)


def test_a_tensor_of_more_axes_is_told_of_too() -> None:
    array = RANDOM.standard_normal((2, 3, 5)).astype(np.float32)
    words = message("conversion.places_in_another_order", name=Q, axis=2, order=message("conversion.off", count=1))
    assert mistake({Q: array}, {Q: np.roll(array, 1, axis=2)}, Q, {Q: 1.0}) == Mistake(Q, words)


def sums(**tensors: Array) -> dict[str, Array]:
    return {name: np.concatenate([[np.square(array).sum()], [array.sum()] * 16]) for name, array in tensors.items()}


def taken(name: str, other: str) -> Mistake:
    return Mistake(name, message("conversion.another_tensor", name=name, other=other), other)


def test_a_sketch_is_of_another_tensor_only_where_that_is_the_only_one_of_its_shape() -> None:
    ones, zeros = np.ones(4, np.float32), np.zeros(4, np.float32)
    shapes = {"a": (4,), "b": (4,), "c": (4,), "d": (2, 2)}
    ours = sums(a=2 * ones, b=ones, c=ones, d=ones)
    assert mistake_by_sketches(ours, sums(a=ones), "a", shapes) is None  # b or c
    assert mistake_by_sketches(ours, sums(a=zeros), "a", shapes) is None
    assert mistake_by_sketches(sums(a=2 * ones, b=ones, d=ones), sums(a=ones), "a", shapes) == taken("a", "b")


def test_two_recorders_norms_of_the_same_numbers_are_a_rounding_apart() -> None:
    ours, shapes = sums(a=RANDOM.standard_normal(64), b=RANDOM.standard_normal(64)), {"a": (64,), "b": (64,)}
    rounded = {name: sketch * np.array([1 + 1e-7] + [1.0] * 16) for name, sketch in ours.items()}
    turned, moved = ({"a": rounded["a"] * np.array([1.0] + [factor] * 16)} for factor in (-1.0, 0.5))
    assert mistake_by_sketches(ours, {"a": rounded["b"]}, "a", shapes) == taken("a", "b")
    assert mistake_by_sketches(ours, turned, "a", shapes) == Mistake("a", message("conversion.sign_turned", name="a"))
    assert mistake_by_sketches(ours, moved, "a", shapes) == Mistake("a", message("conversion.same_numbers", name="a"))
    large = {"a": (50_000, 40_000), "b": (64,)}  # of so many numbers any two norms may be as close
    assert mistake_by_sketches(ours, moved, "a", large) is None


def test_two_that_took_each_others_place_are_one_sentence() -> None:
    transposed = Mistake("d", message("conversion.transposed", name="d"))
    outcome = exchanged([taken("a", "b"), taken("b", "a"), taken("c", "a"), transposed])
    assert outcome == [message("conversion.exchanged", name="a", other="b"), taken("c", "a").words, transposed.words]
    assert exchanged([]) == []
    odd = taken("a", "b: it is the reference's a")
    assert exchanged([odd, taken("b", "a")]) == [odd.words, taken("b", "a").words]
