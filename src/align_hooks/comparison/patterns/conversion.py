"""Explain weights that a conversion between frameworks got wrong, by trying known mistakes on the arrays.

A conversion is wrong exactly: the same numbers are at other places, under other signs, under another name, or were rounded. So nothing is
estimated; every statement holds for every element, to the bit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from align_hooks.comparison.metrics.limits import ROUNDED
from align_hooks.comparison.metrics.measures import rounded_to
from align_hooks.messages import Message, message
from align_hooks.record.format.layout import Array

SAME_NORM = 1e-6
"""Relative; tensors whose norms are further apart are not the same numbers."""
SAME_SUM = 1e-11
"""Relative to the norm; signed sums of the same numbers, added up in another order."""
SAME_SQUARES = 2 * ROUNDED
"""Relative; squared norms of the same numbers, by two recorders."""
LARGEST = 100_000_000
"""Elements up to which a norm identifies numbers: squared norms of so many random ones differ by 1e-4, 100 times ``SAME_SQUARES``."""
LARGEST_HEAD = 1024
"""Rows within which rotary halves are tried."""


class Mistake(Struct, frozen=True):
    """What a conversion did to the candidate's tensor ``name``."""

    name: str
    words: Message
    taken: str | None = None
    """The reference's tensor with the same numbers; None without one."""


def mistake(ours: Mapping[str, Array], theirs: Mapping[str, Array], name: str, sizes: Mapping[str, float]) -> Mistake | None:
    """Return the known mistake that made the candidate's tensor ``name``; None without one.

    ``sizes`` are the norms of all of the reference's tensors. Only tensors of the candidate's norm are read."""
    before, after = ours[name], theirs[name]
    words = next(_known(name, before, after), None)
    if words is not None:
        return Mistake(name, words)
    size = float(np.linalg.norm(after.astype(np.float64)))
    alike = (source for source in sizes if source != name and abs(sizes[source] - size) <= SAME_NORM * size)
    return next((_taken(name, source) for source in alike if np.array_equal(ours[source], after)), None)


def exchanged(mistakes: Sequence[Mistake]) -> list[Message]:
    """Return the mistakes in words; two exchanged tensors are one sentence."""
    takes = {mistake.name: mistake.taken for mistake in mistakes if mistake.taken is not None}
    pairs = {name: source for name, source in takes.items() if takes.get(source) == name}
    apart = [mistake.words for mistake in mistakes if mistake.name not in pairs]
    return [message("conversion.exchanged", name=name, other=source) for name, source in pairs.items() if name < source] + apart


def mistake_by_sketches(
    ours: Mapping[str, Array], theirs: Mapping[str, Array], name: str, shapes: Mapping[str, tuple[int, ...]]
) -> Mistake | None:
    """Return the mistake by sketches: another tensor of the shape, a flipped sign, or the same numbers by their norm."""
    before, after = ours[name], theirs[name]
    if not before[0] or not after[0]:
        return None
    if _same(before, np.concatenate([after[:1], -after[1:]])):
        return Mistake(name, message("conversion.sign_turned", name=name))
    alike = [source for source in ours if source != name and shapes[source] == shapes[name] and _same(ours[source], after)]
    if len(alike) == 1:
        return _taken(name, alike[0])
    same = math.prod(shapes[name]) <= LARGEST and abs(after[0] - before[0]) <= SAME_SQUARES * before[0]
    return Mistake(name, message("conversion.same_numbers", name=name)) if same else None


def _taken(name: str, source: str) -> Mistake:
    return Mistake(name, message("conversion.another_tensor", name=name, other=source), source)


def _same(a: Array, b: Array) -> bool:
    return bool(np.abs(a[1:] - b[1:]).max() <= SAME_SUM * np.sqrt(a[0]) and abs(a[0] - b[0]) <= SAME_SQUARES * a[0])


def _known(name: str, before: Array, after: Array) -> Iterator[Message]:
    """Yield every known mistake that makes ``after`` of ``before``, the tensor ``name``."""
    if np.array_equal(-before, after):
        yield message("conversion.sign_turned", name=name)
    if before.ndim == 2 and before.shape[0] == before.shape[1] and np.array_equal(before.T, after):
        yield message("conversion.transposed", name=name)
    if after.size > 1 and (after == after.flat[0]).all() and not (before == before.flat[0]).all():
        yield message("conversion.not_loaded", name=name, value=float(after.flat[0]))
    with np.errstate(over="ignore"):
        # bfloat16 keeps the upper 16 bits
        halves = {"bfloat16": rounded_to(before, 16), "float16": before.astype(np.float16).astype(np.float32)}
    for kind, rounded in halves.items():
        if np.array_equal(after, rounded):
            yield message("conversion.rounded", name=name, type=kind)
    for axis in range(before.ndim if before.size else 0):
        order = _order(np.moveaxis(before, axis, 0), np.moveaxis(after, axis, 0))
        if order is None:
            continue
        if axis > 1:
            yield message("conversion.places_in_another_order", name=name, axis=axis, order=order)
        else:
            yield message("conversion.columns_in_another_order" if axis else "conversion.rows_in_another_order", name=name, order=order)


def _order(before: Array, after: Array) -> Message | None:
    """Say in which order the rows of ``after`` are those of ``before``; None where they are not the same rows."""
    ours, theirs = _keys(before), _keys(after)
    orders = _known_orders(len(before), ours, theirs)
    return next((words for order, words in orders if np.array_equal(ours[order], theirs) and np.array_equal(before[order], after)), None)


def _known_orders(size: int, ours: Array, theirs: Array) -> Iterator[tuple[NDArray[np.int64], Message]]:
    """Yield orders that conversions make, then the order that the rows themselves give."""
    plain = np.arange(size)
    for shift in np.flatnonzero(ours == theirs[0])[:1].tolist() if size else ():
        yield (plain + shift) % size, message("conversion.off", count=min(shift, size - shift))
    for block in (rows for rows in range(4, min(size, LARGEST_HEAD) + 1, 2) if size % rows == 0):
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
    """Return a number for each row that identifies it: the sum of its elements under random weights."""
    flat = rows.reshape(len(rows), -1).astype(np.float64, order="C")  # one layout on either side: sums are equal to the bit
    key: Array = flat @ np.random.default_rng(0).standard_normal(flat.shape[1])
    return key
