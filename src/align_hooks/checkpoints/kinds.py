"""The types of stored weights, by their names in a safetensors file, and the conversion of types.

A bf16 number is kept as its sixteen bits, for numpy has no bf16. A copy keeps every bit, of a NaN too. Widening is exact. Narrowing rounds
once, to nearest, ties to even: from fp64 to bf16 too, where rounding to fp32 first would round twice.
"""

from __future__ import annotations

import numpy as np

from align_hooks.record.format.layout import Array
from align_hooks.record.format.stored_tensor import FLOATING

KINDS = FLOATING
"""Floating type to numpy's type of its bytes."""
NAMED = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
"""Name in torch and MindSpore to type, for the types of a destination."""
TORCH_NAMES = {"F64": "float64", **{kind: name for name, kind in NAMED.items()}}
BITS = {"F64": (11, 52), "F32": (8, 23), "F16": (5, 10), "BF16": (8, 7)}
"""Bits of exponent and of mantissa."""
BLOCK = 1 << 14
"""Numbers that are rounded at once, which bounds the memory for rounding."""


def size_of(kind: str) -> int:
    """Return the bytes of a number."""
    return np.dtype(KINDS[kind]).itemsize


def narrows(kind: str, to: str) -> bool:
    """Return whether some numbers of one type are none of the other."""
    return any(before > after for before, after in zip(BITS[kind], BITS[to], strict=True))


def cast(array: Array, kind: str, to: str) -> tuple[Array, int]:
    """Return an array in another type, and the number of finite elements that became infinite."""
    if kind == to:
        return array, 0
    flat, result = np.ascontiguousarray(array).reshape(-1), np.empty(array.size, KINDS[to])
    lost = 0
    for block in (slice(start, start + BLOCK) for start in range(0, array.size, BLOCK)):
        result[block] = _cast(flat[block], kind, to)
        if narrows(kind, to):
            lost += _infinite(result[block], to) - _infinite(flat[block], kind)
    return result.reshape(array.shape), lost


def _cast(numbers: Array, kind: str, to: str) -> Array:
    if kind == "BF16":
        numbers = (numbers.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        if to != "BF16":
            return numbers.astype(KINDS[to])
        near = numbers.astype(np.float32)
    bits, is_nan = near.view(np.uint32), np.isnan(numbers)
    if numbers.dtype == np.float64:
        # rounded to odd first (cut towards zero, the last bit set if inexact), so that rounding again is rounding once
        cut = bits - (np.abs(near.astype(np.float64)) > np.abs(numbers)).astype(np.uint32)
        inexact = cut.view(np.float32).astype(np.float64) != numbers
        bits = np.where(is_nan, bits, cut | inexact.astype(np.uint32))
    rounded = (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16
    quiet = bits >> 16 | 0x40  # the upper half of a NaN may be an infinity's
    return np.where(is_nan, quiet, rounded).astype(KINDS["BF16"])


def _infinite(numbers: Array, kind: str) -> int:
    return int(np.count_nonzero(numbers & 0x7FFF == 0x7F80 if kind == "BF16" else np.isinf(numbers)))
