"""What became of a weight on its way from one framework to the other: the mistakes that conversions make, each tried on the arrays.

A conversion that is wrong is wrong exactly: the same numbers stand at other places, under other signs, under another name, or were
rounded on the way. So nothing is estimated here; what is told holds for every element, to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
SAME_NORM = 1e-6
"""Relative; tensors whose norms are further apart are not the same numbers."""
SAME_SUM = 1e-11
"""Relative; sums of the same numbers, added up in another order."""
AXES = ("rows", "columns")
IS = "it is the reference's "
TAKEN = f": {IS}"
LARGEST_HEAD = 1024
"""Rows within which rotary halves are looked for."""


def told(ours: Mapping[str, Array], theirs: Mapping[str, Array], name: str, sizes: Mapping[str, float]) -> str:
    """What the candidate's tensor ``name`` is of the reference's, in words; empty where it is none of what is known.

    ``sizes`` are the norms of all of the reference's tensors, so that only those are read that the candidate's may be.
    """
    one, other = ours[name], theirs[name]
    found = next(_known(one, other), "")
    if not found:
        size = float(np.linalg.norm(other.astype(np.float64)))
        alike = (it for it in sizes if it != name and abs(sizes[it] - size) <= SAME_NORM * size)
        found = next((f"{IS}{it}" for it in alike if np.array_equal(ours[it], other)), "")
    return f"{name}: {found}" if found else ""


def exchanged(found: Sequence[str]) -> list[str]:
    """What was told of several tensors, two that took each other's place in one sentence."""
    takes = dict(one.partition(TAKEN)[::2] for one in found if TAKEN in one)
    pairs = {name: other for name, other in takes.items() if takes.get(other) == name}
    apart = [one for one in found if one.partition(TAKEN)[0] not in pairs]
    return [f"{name} and {other} are exchanged" for name, other in pairs.items() if name < other] + apart


def told_of_sketches(ours: Mapping[str, Array], theirs: Mapping[str, Array], name: str, shapes: Mapping[str, tuple[int, ...]]) -> str:
    """The same of sketches: another tensor of its shape, a turned sign, or the same numbers by their norm."""
    one, other = ours[name], theirs[name]
    if not one[0] or not other[0]:
        return ""
    if _same(one, np.concatenate([other[:1], -other[1:]])):
        return f"{name}: its sign is turned"
    found = [it for it in ours if it != name and shapes[it] == shapes[name] and _same(ours[it], other)]
    if len(found) == 1:
        return f"{name}: {IS}{found[0]}"
    same = abs(other[0] - one[0]) <= SAME_SUM * one[0]
    return f"{name}: the same numbers by its norm, at other places or under other signs" if same else ""


def _same(one: Array, other: Array) -> bool:
    return bool(np.abs(one[1:] - other[1:]).max() <= SAME_SUM * np.sqrt(one[0]) and abs(one[0] - other[0]) <= SAME_SUM * one[0])


def _known(one: Array, other: Array) -> Iterator[str]:
    """Every known mistake that makes ``other`` of ``one``."""
    if np.array_equal(-one, other):
        yield "its sign is turned"
    if one.ndim == 2 and one.shape[0] == one.shape[1] and np.array_equal(one.T, other):
        yield "it is transposed"
    if other.size > 1 and (other == other.flat[0]).all() and not (one == one.flat[0]).all():
        yield f"every element is {other.flat[0]:g}: it was not loaded"
    for kind, kept in (("bfloat16", 16), ("float16", 0)):
        if np.array_equal(other, _rounded(one, kept)):
            yield f"it was rounded to {kind}"
    for axis in range(one.ndim if one.size else 0):
        order = _order(np.moveaxis(one, axis, 0), np.moveaxis(other, axis, 0))
        if order:
            yield f"its {AXES[axis] if axis < 2 else f'places along axis {axis}'} stand in another order, {order}"


def _rounded(array: Array, kept: int) -> Array:
    """fp32 by way of a type of half its size: bfloat16, which keeps the upper ``kept`` bits, or with 0 float16."""
    if not kept:
        with np.errstate(over="ignore"):
            return array.astype(np.float16).astype(np.float32)
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    nearest = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded: Array = (nearest & np.uint32(0xFFFF0000)).view(np.float32)
    return rounded


def _order(one: Array, other: Array) -> str:
    """In which order the rows of ``other`` are those of ``one``, in words; empty where they are not the same rows."""
    ours, theirs = (_keys(array) for array in (one, other))
    for order, words in _known_orders(len(one), ours, theirs):
        if np.array_equal(ours[order], theirs) and np.array_equal(one[order], other):
            return words
    return ""


def _known_orders(size: int, ours: Array, theirs: Array) -> Iterator[tuple[NDArray[np.int64], str]]:
    """Orders that conversions make, then whatever order the rows themselves tell."""
    plain = np.arange(size)
    for shift in np.flatnonzero(ours == theirs[0])[:1].tolist() if size else ():
        yield (plain + shift) % size, f"{min(shift, size - shift)} off"
    for block in (one for one in range(4, min(size, LARGEST_HEAD) + 1, 2) if size % one == 0):
        halves = plain.reshape(-1, 2, block // 2).swapaxes(1, 2).reshape(-1)
        yield halves, f"the halves of every {block} interleaved, as rotary embeddings of neighbours want them"
        yield np.argsort(halves), f"every {block} cut from neighbours into halves, as rotary embeddings of halves want them"
    order = np.empty(size, np.int64)
    order[np.argsort(theirs, kind="stable")] = np.argsort(ours, kind="stable")
    moved = np.flatnonzero(order != plain)
    if len(moved):
        yield order, f"{len(moved)} of {size}, first {moved[0]}, which was {order[moved[0]]}"


def _keys(rows: Array) -> Array:
    """A number a row, which tells rows apart: its elements under weights of their own."""
    flat = rows.reshape(len(rows), -1).astype(np.float64, order="C")  # of one layout on either side: sums are equal to the bit
    key: Array = flat @ np.random.default_rng(0).standard_normal(flat.shape[1])
    return key
