"""A rank's part of a tensor in a file, which another process can read.

A part is read at once, or in blocks that stay in a processor's cache while they are compared. Either way its digest is
computed from the very bytes that are returned. Files are not mapped: a process that maps a file ends when the file is
cut short, and every page that it has read counts as its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from align_hooks.errors import RecordError
from align_hooks.process.storage import Identity, opened
from align_hooks.record.format import digests
from align_hooks.record.format.layout import Array

CHANGED = "was changed since it was recorded (its digest differs); copy it again, or record the step again"
FLOATING = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "BF16": "<u2"}
"""The floating types that are read, by their names in a safetensors file, as numpy reads their bytes."""
STORED = {**FLOATING, "I16": "<i2"}
"""All types that are read; experts are chosen by number."""
BLOCK = 1 << 16
"""Elements of a block. Two of them, in fp32 and in fp64, are 1.5 MB."""


class StoredTensor(Struct, frozen=True):
    """A tensor's bytes in a file."""

    path: Path
    known: Identity
    """Facts of the file when its header was read."""
    name: str
    kind: str
    """A key of :data:`STORED`."""
    shape: tuple[int, ...]
    start: int
    """The first byte."""
    stop: int
    """The end of the bytes."""
    digest: str | None
    """The digest of the bytes; None without one."""
    remedy: str
    """The end of every refusal."""

    def stored(self) -> Array:
        """Return the tensor as stored, a bf16 as its bits; raises RecordError where the file was replaced, or its bytes were changed."""
        data = np.empty((self.stop - self.start) // self._type.itemsize, self._type)
        at = 0
        for block in self._read():
            data.view(np.uint8)[at : at + len(block)] = block
            at += len(block)
        return data.reshape(self.shape)

    def blocks(self) -> Iterator[Array]:
        """Yield the elements as fp32 in row-major order, at most :data:`BLOCK` at a time, each block valid until the next.

        Raises RecordError as :meth:`stored` does, after the last block where a digest differs.
        """
        for block in self._read():
            yield widened(np.frombuffer(block, self._type), self.kind)

    @property
    def _type(self) -> np.dtype[Any]:
        return np.dtype(STORED[self.kind])

    def _read(self) -> Iterator[memoryview]:
        """Yield the bytes, :data:`BLOCK` elements at a time."""
        digest, left = digests.running(), self.stop - self.start
        try:
            with opened(self.path) as file:
                if file.identity != self.known:
                    raise RecordError(f"{self.path} was replaced while it was being read; start again once nobody writes it")
                for block in file.blocks(self.start, self.stop, BLOCK * self._type.itemsize):
                    digest.update(block)
                    left -= len(block)
                    yield block
        except (OSError, ValueError) as error:
            raise RecordError(f"{self.path}: {self.name} cannot be read ({error}); {self.remedy}") from None
        if left:
            raise RecordError(f"{self.path}: {self.name} cannot be read (the file ends before it does); {self.remedy}")
        if self.digest is not None and digest.hexdigest() != self.digest:
            raise RecordError(f"{self.path}: {self.name} {CHANGED}")


def widened(data: Array, kind: str) -> Array:
    """Return stored numbers in fp32; a bf16 is the upper half of the equal fp32 number."""
    if kind == "F32":
        return data
    if kind == "BF16":
        return (data.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(over="ignore"):  # a double beyond fp32 becomes infinity, which the loader of weights refuses by name
        return data.astype(np.float32, copy=False)


def head(tensors: Iterable[tuple[str, str, Sequence[int], int]], metadata: Mapping[str, str]) -> bytes:
    """Return the header of a safetensors file, after its size, for tensors in this order: name, type, shape and bytes of each."""
    # the library's writer copies every tensor into one object first, and holds Python's lock while it writes
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    end = 0
    for name, kind, shape, size in tensors:
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that numbers are aligned
    return len(text).to_bytes(8, "little") + text
