"""MindSpore's ``.ckpt``: the protobuf messages of its ``checkpoint.proto``, read and written without protobuf.

::

    Checkpoint { repeated Value value = 1 }    Value { string tag = 1; TensorProto tensor = 2 }
    TensorProto { repeated int64 dims = 1; string tensor_type = 2; bytes tensor_content = 3 }

A file is a list of values; a large tensor is several adjacent values with the same tag. Opening a file reads all but the numbers, which are
read tensor by tensor.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from io import BufferedReader
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

import numpy as np
from msgspec import Struct

from align_hooks.checkpoints.checkpoint import KINDS, LazyTensor, size_of
from align_hooks.errors import RecordError, shown
from align_hooks.record.format.digests import bytes_of
from align_hooks.record.format.files import in_words, readable
from align_hooks.record.format.layout import Array
from align_hooks.record.write import atomic
from align_hooks.regular import open_regular

TYPES = {"Float64": "F64", "Float32": "F32", "Float16": "F16", "BFloat16": "BF16"}
"""MindSpore's name of a type of weights to ours."""
TYPE_OF = {kind: name for name, kind in TYPES.items()}
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
"""Wire types of protobuf."""
SLICE = 512 * 1024 * 1024
"""Most bytes of a tensor in one value, as in MindSpore."""
CHECKSUM = b"crc_num"
"""Text 17 bytes before the end of a file that was saved with ``crc_check``."""
LONGEST_NAME, MOST_VALUES = 1 << 16, 1_000_000


class _Part(Struct, frozen=True):
    """A value: a tensor, or a slice of a tensor."""

    name: str
    dims: tuple[int, ...]
    type: str
    start: int
    """The first byte of the numbers in the file."""
    size: int


def ckpt_tensors(path: Path) -> dict[str, LazyTensor]:
    """Return name to tensor of a ``.ckpt``; raises RecordError for a file that is no complete checkpoint."""
    try:
        with BufferedReader(open_regular(path, path.parent)) as file:
            parts = list(_parts(file))
    except (OSError, ValueError) as error:
        why = f"{path} is no whole MindSpore checkpoint ({shown(in_words(error))})"
        raise RecordError(f"{why}; copy it again, or save it without enc_key") from None
    named: dict[str, list[_Part]] = {}
    for name, of_name in groupby(parts, key=lambda part: part.name):
        if name in named:
            raise RecordError(f"{path}: {shown(name)} is there twice; keep one model in a file")
        named[name] = list(of_name)
    return {name: _tensor(path, of_name) for name, of_name in named.items()}


def _tensor(path: Path, parts: Sequence[_Part]) -> LazyTensor:
    first = parts[0]
    kind = TYPES.get(first.type, first.type)
    shape = () if first.dims == (0,) else first.dims
    size = sum(part.size for part in parts)
    unequal = any((part.dims, part.type) != (first.dims, first.type) for part in parts)
    if unequal or (kind in KINDS and math.prod(shape) * size_of(kind) != size):
        why = f"of shape {list(shape)} and type {shown(first.type)} has {size} bytes"
        raise RecordError(f"{path}: {shown(first.name)} {why}; copy the file again")
    return LazyTensor(shape, kind, partial(_read, path, parts, shape, kind))


def _read(path: Path, parts: Sequence[_Part], shape: tuple[int, ...], kind: str) -> Array:
    result = np.empty(math.prod(shape) * size_of(kind), np.uint8)
    filled = 0
    with readable(path), BufferedReader(open_regular(path, path.parent)) as file:
        for part in parts:
            file.seek(part.start)
            filled += file.readinto(memoryview(result)[filled : filled + part.size])
    if filled != result.size:
        raise RecordError(f"{path} was cut short while it was being read; start again once nobody writes it")
    numbers: Array = result.view(KINDS[kind]).reshape(shape)
    return numbers


def _parts(file: BinaryIO) -> Iterator[_Part]:
    """Yield the values of a file; raises ValueError for a malformed file."""
    end = os.fstat(file.fileno()).st_size
    if end > 17:
        file.seek(end - 17)
        end -= 17 * (file.read(len(CHECKSUM)) == CHECKSUM)
    for count, (number, wire, start, stop) in enumerate(_fields(file, 0, end)):
        if count > MOST_VALUES:
            raise ValueError(f"it holds more than {MOST_VALUES} values")
        if (number, wire) != (1, LENGTH):
            raise ValueError(f"at byte {start} it holds what is no value")
        yield _value(file, start, stop)


def _value(file: BinaryIO, place: int, end: int) -> _Part:
    fields = {number: (start, stop) for number, wire, start, stop in _fields(file, place, end) if wire == LENGTH}
    if not fields.keys() >= {1, 2}:
        raise ValueError("a value is no tensor")
    name, dims = _text(file, *fields[1]), list[int]()
    kind, content = None, (0, 0)
    for number, wire, start, stop in _fields(file, *fields[2]):
        if number == 1:  # one size, or several packed
            if wire not in (VARINT, LENGTH) or stop - start > 100:
                raise ValueError("sizes are no numbers")
            while start < stop:
                size, start = _varint(file, start, stop)
                dims.append(size)
        elif (number, wire) == (2, LENGTH):
            kind = _text(file, start, stop)
        elif (number, wire) == (3, LENGTH):
            content = (start, stop)
    if kind is None or len(dims) > 8 or any(dim >= 1 << 48 for dim in dims):
        raise ValueError(f"{shown(name)} is no tensor")
    return _Part(name, tuple(dims), kind, content[0], content[1] - content[0])


def _fields(file: BinaryIO, place: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield number, wire type, start and end of each field of a message."""
    while place < end:
        key, start = _varint(file, place, end)
        wire = key & 7
        if wire == VARINT:
            stop = _varint(file, start, end)[1]
        elif wire == LENGTH:
            size, start = _varint(file, start, end)
            stop = start + size
        elif wire in (FIXED64, FIXED32):
            stop = start + (8 if wire == FIXED64 else 4)
        else:
            raise ValueError(f"at byte {place} it holds no field")
        if stop > end:
            raise ValueError(f"it ends at byte {end}, before what begins at {start}")
        yield key >> 3, wire, start, stop
        place = stop


def _varint(file: BinaryIO, place: int, end: int) -> tuple[int, int]:
    file.seek(place)
    number = 0
    for index, byte in enumerate(file.read(min(10, end - place))):
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return number, place + index + 1
    raise ValueError(f"at byte {place} it holds no number")


def _text(file: BinaryIO, start: int, stop: int) -> str:
    if stop - start > LONGEST_NAME:
        raise ValueError(f"at byte {start} it holds a name of {stop - start} bytes")
    file.seek(start)
    return file.read(stop - start).decode()


def write_ckpt(path: Path, tensors: Mapping[str, LazyTensor], *, slice_: int = SLICE) -> None:
    """Write a ``.ckpt`` of these tensors, in their order, and sync it."""
    with path.open("xb") as file:
        for name, output in tensors.items():
            content = bytes_of(output.read())
            dims = b"".join(bytes([1 << 3 | VARINT]) + _encoded(size) for size in output.shape)
            described, tag = dims + _bytes(2, TYPE_OF[output.kind].encode()), _bytes(1, name.encode())
            for start in range(0, max(len(content), 1), slice_):
                part = content[start : start + slice_]
                tensor = described + _head(3, len(part))
                value = tag + _head(2, len(tensor) + len(part)) + tensor
                file.write(_head(1, len(value) + len(part)) + value)
                file.write(part)
            del content  # before the next tensor is made
        file.flush()
        atomic.sync(file.fileno())


def _encoded(number: int) -> bytes:
    text = bytearray()
    while number > 0x7F:
        text.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*text, number))


def _head(field: int, size: int) -> bytes:
    return bytes([field << 3 | LENGTH]) + _encoded(size)


def _bytes(field: int, content: bytes) -> bytes:
    return _head(field, len(content)) + content
