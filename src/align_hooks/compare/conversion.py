"""What became of a weight on its way from one framework to the other: the mistakes that conversions make, each tried on the arrays.

A conversion that is wrong is wrong exactly: the same numbers stand at other places, under other signs, under another name, or were
rounded on the way. So nothing is estimated here; what is told holds for every element, to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from align_hooks.messages import Message, message

Array = NDArray[Any]
SAME_NORM = 1e-6
"""Relative; tensors whose norms are further apart are not the same numbers."""
SAME_SUM = 1e-11
"""Relative; sums of the same numbers, added up in another order."""
LARGEST_HEAD = 1024
"""Rows within which rotary halves are looked for."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """What a conversion did to the candidate's tensor ``name``, in words; ``taken`` is the reference's tensor whose numbers it has, None
    where these are its own."""

    name: str
    words: Message
    taken: str | None = None


def mistake(ours: Mapping[str, Array], theirs: Mapping[str, Array], name: str, sizes: Mapping[str, float]) -> Mistake | None:
    """What the candidate's tensor ``name`` is of the reference's; None where it is none of what is known.

    ``sizes`` are the norms of all of the reference's tensors, so that only those are read that the candidate's may be.
    """
    before, after = ours[name], theirs[name]
    words = next(_known(name, before, after), None)
    if words is not None:
        return Mistake(name, words)
    size = float(np.linalg.norm(after.astype(np.float64)))
    alike = (other for other in sizes if other != name and abs(sizes[other] - size) <= SAME_NORM * size)
    return next((_taken(name, other) for other in alike if np.array_equal(ours[other], after)), None)


def exchanged(mistakes: Sequence[Mistake]) -> list[Message]:
    """Mistakes of several tensors in words, two that took each other's place in one sentence."""
    takes = {each.name: each.taken for each in mistakes if each.taken is not None}
    pairs = {name: other for name, other in takes.items() if takes.get(other) == name}
    apart = [each.words for each in mistakes if each.name not in pairs]
    return [message("conversion.exchanged", name=name, other=other) for name, other in pairs.items() if name < other] + apart


def mistake_by_sketches(
    ours: Mapping[str, Array], theirs: Mapping[str, Array], name: str, shapes: Mapping[str, tuple[int, ...]]
) -> Mistake | None:
    """The same of sketches: another tensor of its shape, a turned sign, or the same numbers by their norm."""
    before, after = ours[name], theirs[name]
    if not before[0] or not after[0]:
        return None
    if _same(before, np.concatenate([after[:1], -after[1:]])):
        return Mistake(name, message("conversion.sign_turned", name=name))
    alike = [other for other in ours if other != name and shapes[other] == shapes[name] and _same(ours[other], after)]
    if len(alike) == 1:
        return _taken(name, alike[0])
    same = abs(after[0] - before[0]) <= SAME_SUM * before[0]
    return Mistake(name, message("conversion.same_numbers", name=name)) if same else None


def _taken(name: str, other: str) -> Mistake:
    return Mistake(name, message("conversion.another_tensor", name=name, other=other), other)


def _same(one: Array, other: Array) -> bool:
    return bool(np.abs(one[1:] - other[1:]).max() <= SAME_SUM * np.sqrt(one[0]) and abs(one[0] - other[0]) <= SAME_SUM * one[0])


def _known(name: str, one: Array, other: Array) -> Iterator[Message]:
    """Every known mistake that makes ``other`` of ``one``, the tensor ``name``."""
    if np.array_equal(-one, other):
        yield message("conversion.sign_turned", name=name)
    if one.ndim == 2 and one.shape[0] == one.shape[1] and np.array_equal(one.T, other):
        yield message("conversion.transposed", name=name)
    if other.size > 1 and (other == other.flat[0]).all() and not (one == one.flat[0]).all():
        yield message("conversion.not_loaded", name=name, value=float(other.flat[0]))
    for kind, kept in (("bfloat16", 16), ("float16", 0)):
        if np.array_equal(other, _rounded(one, kept)):
            yield message("conversion.rounded", name=name, type=kind)
    for axis in range(one.ndim if one.size else 0):
        order = _order(np.moveaxis(one, axis, 0), np.moveaxis(other, axis, 0))
        if order is not None:
            yield _in_another_order(name, axis, order)


def _in_another_order(name: str, axis: int, order: Message) -> Message:
    if axis > 1:
        return message("conversion.places_in_another_order", name=name, axis=axis, order=order)
    return message("conversion.columns_in_another_order" if axis else "conversion.rows_in_another_order", name=name, order=order)


def _rounded(array: Array, kept: int) -> Array:
    """fp32 by way of a type of half its size: bfloat16, which keeps the upper ``kept`` bits, or with 0 float16."""
    if not kept:
        with np.errstate(over="ignore"):
            return array.astype(np.float16).astype(np.float32)
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    nearest = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded: Array = (nearest & np.uint32(0xFFFF0000)).view(np.float32)
    return rounded


def _order(one: Array, other: Array) -> Message | None:
    """In which order the rows of ``other`` are those of ``one``, in words; None where they are not the same rows."""
    ours, theirs = (_keys(array) for array in (one, other))
    for order, words in _known_orders(len(one), ours, theirs):
        if np.array_equal(ours[order], theirs) and np.array_equal(one[order], other):
            return words
    return None


def _known_orders(size: int, ours: Array, theirs: Array) -> Iterator[tuple[NDArray[np.int64], Message]]:
    """Orders that conversions make, then whatever order the rows themselves tell."""
    plain = np.arange(size)
    for shift in np.flatnonzero(ours == theirs[0])[:1].tolist() if size else ():
        yield (plain + shift) % size, message("conversion.off", count=min(shift, size - shift))
    for block in (one for one in range(4, min(size, LARGEST_HEAD) + 1, 2) if size % one == 0):
        halves = plain.reshape(-1, 2, block // 2).swapaxes(1, 2).reshape(-1)
        yield halves, message("conversion.interleaved", block=block)
        yield np.argsort(halves), message("conversion.cut_into_halves", block=block)
    order = np.empty(size, np.int64)
    order[np.argsort(theirs, kind="stable")] = np.argsort(ours, kind="stable")
    moved = np.flatnonzero(order != plain)
    if len(moved):
        first = int(moved[0])
        yield order, message("conversion.moved", count=len(moved), all=size, first=first, before=int(order[first]))


def _keys(rows: Array) -> Array:
    """A number a row, which tells rows apart: its elements under weights of their own."""
    flat = rows.reshape(len(rows), -1).astype(np.float64, order="C")  # of one layout on either side: sums are equal to the bit
    key: Array = flat @ np.random.default_rng(0).standard_normal(flat.shape[1])
    return key
