"""The types that weights are stored in, by their names in a safetensors file, and the way from one to another.

numpy has no bf16, so one is kept as the sixteen bits that it is. Copying keeps every bit, of a NaN too. Widening is exact. Narrowing rounds
to nearest, ties to even, once: from fp64 to bf16 too, where rounding to fp32 first would round twice.
"""

from __future__ import annotations

import numpy as np

from align_hooks.record.format.layout import Array
from align_hooks.record.read.stored_tensor import FLOATING

KINDS = FLOATING
"""The floating types that are converted, as numpy reads their bytes."""
NAMED = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
"""The types that a destination may be written in, by the names that torch and MindSpore give them."""
TORCH_NAMES = {"F64": "float64", **{kind: name for name, kind in NAMED.items()}}
BITS = {"F64": (11, 52), "F32": (8, 23), "F16": (5, 10), "BF16": (8, 7)}
"""Bits of exponent and of mantissa."""
BLOCK = 1 << 14
"""Numbers that are rounded at once, so that what rounding needs beside the tensor is small."""


def size_of(kind: str) -> int:
    """Bytes of a number."""
    return np.dtype(KINDS[kind]).itemsize


def narrows(kind: str, to: str) -> bool:
    """Whether there are numbers of one type that the other does not have."""
    return any(before > after for before, after in zip(BITS[kind], BITS[to], strict=True))


def cast(array: Array, kind: str, to: str) -> tuple[Array, int]:
    """An array in another type, and how many of its finite numbers lie beyond that type's largest and became infinite."""
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
    if to != "BF16":
        with np.errstate(over="ignore", invalid="ignore"):
            return numbers.astype(KINDS[to])
    return _bf16(_odd(numbers) if numbers.dtype == np.float64 else numbers.astype(np.float32))


def _odd(numbers: Array) -> Array:
    """fp64 as fp32 cut towards zero, with the last bit set where anything was cut: rounded again, it gives what one rounding gives."""
    with np.errstate(over="ignore", invalid="ignore"):
        near = numbers.astype(np.float32)
    bits = near.view(np.uint32) - (np.abs(near.astype(np.float64)) > np.abs(numbers)).astype(np.uint32)
    inexact = bits.view(np.float32).astype(np.float64) != numbers
    rounded: Array = np.where(np.isnan(numbers), near.view(np.uint32), bits | inexact.astype(np.uint32)).view(np.float32)
    return rounded


def _bf16(numbers: Array) -> Array:
    bits = numbers.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16
    quiet = bits >> 16 | 0x40  # the upper half of a NaN may be an infinity's
    return np.where(np.isnan(numbers), quiet, rounded).astype(KINDS["BF16"])


def _infinite(numbers: Array, kind: str) -> int:
    if kind == "BF16":
        return int(np.count_nonzero(numbers & 0x7FFF == 0x7F80))
    return int(np.count_nonzero(np.isinf(numbers)))
