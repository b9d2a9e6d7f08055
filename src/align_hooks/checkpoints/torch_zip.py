"""The archives of ``torch.save``, read and written without torch: a zip file with uncompressed members.

``data.pkl`` describes the object; ``data/N`` are the bytes of a storage, and a tensor is a range of a storage with a shape. Tensors are
read one by one from the file, even where they share a storage, such as a buffer of all parameters.
"""

from __future__ import annotations

import math
import os
import struct
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from msgspec import Struct

from align_hooks.checkpoints.checkpoint import KINDS, LazyTensor, size_of
from align_hooks.checkpoints.pickles import Class, Object, Reference, classes, read_pickle
from align_hooks.errors import RecordError, shown
from align_hooks.record.format.digests import bytes_of
from align_hooks.record.format.files import in_words, readable
from align_hooks.record.format.layout import Array
from align_hooks.record.write import atomic
from align_hooks.regular import open_regular

STORAGES = {"torch.DoubleStorage": "F64", "torch.FloatStorage": "F32", "torch.HalfStorage": "F16", "torch.BFloat16Storage": "BF16"}
"""Storages of numbers that are weights."""
STORAGE_OF = {kind: name.removeprefix("torch.") for name, kind in STORAGES.items()}
REBUILT = ("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter")
LONGEST = 1 << 30
"""Most bytes of the description of an object."""
LOCAL = struct.Struct("<4s22x2H")
"""The header of a member: a mark, and the lengths of its name and its extra field."""
BROKEN = (OSError, ValueError, LookupError, TypeError, OverflowError, RuntimeError, zipfile.BadZipFile, struct.error)
"""Errors of a file that is no complete archive; zipfile's NotImplementedError is a RuntimeError."""
ALIGNED = 64
"""Bytes of which a multiple precedes each member, as in torch, so that a file can be mapped."""
PADDED = b"FB"
"""torch's mark of the padding before a member."""
LARGE = 1 << 31
"""Bytes above which a member needs the 64-bit form of its sizes."""


class _Window(RawIOBase):
    """A range of a file, as a file."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        self._file, self._start, self._size, self._at = file, start, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = max(0, offset + (0, self._at, self._size)[whence])
        return self._at

    def readinto(self, buffer: Any) -> int:
        self._file.seek(self._start + self._at)
        content = self._file.read(max(0, min(len(buffer), self._size - self._at)))
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)


class TorchTensor(Struct, frozen=True):
    """A tensor of an archive."""

    path: Path
    shape: tuple[int, ...]
    kind: str
    """The type of weights, or the name of any other storage."""
    start: int
    """The first byte in the file."""

    def read(self) -> Array:
        """Return the numbers, bf16 as bits."""
        return self.rows(0, math.prod(self.shape)).reshape(self.shape)

    def rows(self, start: int, stop: int) -> Array:
        """Return the elements [start, stop) in row-major order."""
        with readable(self.path), open_regular(self.path, self.path.parent) as file:
            data = np.fromfile(file, KINDS[self.kind], stop - start, offset=self.start + start * size_of(self.kind))
        if data.size != stop - start:
            raise RecordError(f"{self.path} was cut short while it was being read; start again once nobody writes it")
        return data


class TorchArchive:
    """One archive: a file, or the range [start, start + size) of a file."""

    def __init__(self, path: Path, allowed: Collection[str], start: int = 0, size: int | None = None) -> None:
        """Read the object, which may name torch's own classes and the ``allowed``; raises RecordError for no complete archive."""
        self.path = path
        try:
            with BufferedReader(open_regular(path, path.parent)) as file:
                end = os.fstat(file.fileno()).st_size
                size = end - start if size is None else size
                if start < 0 or size < 0 or start + size > end:
                    raise ValueError(f"it ends at {end}, before its bytes {start} to {start + size}")
                self._members = dict(_members(file, start, size))
                self.value = self._rebuilt(read_pickle(self._bytes(file, "data.pkl"), (*STORAGES, *classes("torch"), *allowed), path))
                if "byteorder" in self._members and self._bytes(file, "byteorder").strip() != b"little":
                    raise ValueError("its numbers are big-endian")
        except BROKEN as error:
            why = f"{path} is no whole archive of torch.save ({shown(in_words(error))})"
            raise RecordError(f"{why}; copy it again, or save it with a torch since 1.6") from None

    def _bytes(self, file: BinaryIO, name: str) -> bytes:
        start, size = self._members[name]
        if size > LONGEST:
            raise ValueError(f"{name} is longer than {LONGEST} bytes")
        file.seek(start)
        return file.read(size)

    def _rebuilt(self, value: Any) -> Any:
        """Return a value with tensors for their descriptions; containers are changed in place, each once."""
        seen: set[int] = set()
        top = [value]
        waiting: list[Any] = [top]
        while waiting:
            inside = waiting.pop()
            if id(inside) in seen:
                continue
            seen.add(id(inside))
            for key, item in list(inside.items() if isinstance(inside, dict) else enumerate(inside)):
                if isinstance(item, Object) and str(item.of) in REBUILT:
                    inside[key] = self._tensor(item)
                elif isinstance(item, dict | list):
                    waiting.append(item)
                elif isinstance(item, Object):
                    waiting += [item.state, item.items]
        return top[0]

    def _tensor(self, made: Object) -> TorchTensor:
        if made.of.name == "_rebuild_parameter":
            return self._tensor(made.made[0])
        storage, offset, shape, stride = made.made[:4]
        if not isinstance(storage, Reference) or not all(isinstance(one, int) and 0 <= one < 1 << 48 for one in (offset, *shape, *stride)):
            raise ValueError("a tensor is not described")
        _, of, key, _, count = storage.to
        if not isinstance(of, Class):
            raise ValueError("a storage has no type")
        (start, size), kind = self._members[f"data/{key}"], STORAGES.get(str(of), of.name)
        steps = zip(shape, stride, strides_of(shape), strict=True)
        # an axis of length 1 may have any stride
        if math.prod(shape) > 1 and any(own != usual and size != 1 for size, own, usual in steps):
            raise ValueError("a tensor's numbers do not lie one after the other")
        if kind in KINDS and not (count * size_of(kind) == size and offset + math.prod(shape) <= count):
            raise ValueError(f"a tensor of shape {list(shape)} does not fit in the {size} bytes of its storage")
        return TorchTensor(self.path, tuple(shape), kind, start + offset * (size_of(kind) if kind in KINDS else 1))


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _members(file: BinaryIO, start: int, size: int) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield name (without the archive's), start and size of each member; raises ValueError for a compressed or cut one."""
    window = BufferedReader(_Window(file, start, size))
    with zipfile.ZipFile(window) as archive:
        names: set[str] = set()
        for info in archive.infolist():
            name = info.filename.partition("/")[2]
            if name in names:
                raise ValueError(f"it holds {name} twice")
            names.add(name)
            if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size or info.flag_bits & 1:
                raise ValueError(f"{name} is compressed or locked, which torch.save never does")
            window.seek(info.header_offset)
            mark, named, extra = LOCAL.unpack(window.read(LOCAL.size))
            begin = info.header_offset + LOCAL.size + named + extra
            if mark != b"PK\3\4" or begin + info.file_size > size:
                raise ValueError(f"{name} is not within it")
            yield name, (start + begin, info.file_size)


def arguments(value: Any) -> dict[str, Any] | None:
    """Return Megatron-LM's arguments from a namespace or a dictionary; None for any other value."""
    if isinstance(value, Object) and str(value.of) == "argparse.Namespace":
        return {name: item for name, item in value.state.items() if not isinstance(item, Object | Class)}
    return dict(value) if isinstance(value, Mapping) else None


def write_archive(path: Path, name: str, value: Any) -> None:
    """Write the archive ``name`` of plain data and tensors for ``torch.load(weights_only=True)``, one tensor after the other."""
    tensors: list[LazyTensor] = []
    with path.open("xb") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            _write(archive, f"{name}/data.pkl", b"\x80\x02" + _pickled(value, tensors) + b".")
            _write(archive, f"{name}/byteorder", b"little")
            for key, tensor in enumerate(tensors):
                _write(archive, f"{name}/data/{key}", bytes_of(tensor.read()))
            _write(archive, f"{name}/version", b"3\n")
        file.flush()
        atomic.sync(file.fileno())


def _write(archive: zipfile.ZipFile, name: str, content: bytes | memoryview) -> None:
    info, large = zipfile.ZipInfo(name), len(content) >= LARGE
    assert archive.fp is not None
    begin = archive.fp.tell() + 30 + len(name.encode()) + 4 + (20 if large else 0)
    padding = -begin % ALIGNED
    info.extra = PADDED + struct.pack("<H", padding) + b"Z" * padding
    info.file_size = len(content)
    with archive.open(info, "w", force_zip64=large) as target:
        target.write(content)


def _pickled(value: Any, tensors: list[LazyTensor]) -> bytes:
    """Return plain data and tensors in a pickle of protocol 2, with only the opcodes of ``weights_only``; append the tensors."""
    if value is None or isinstance(value, bool):
        return {None: b"N", True: b"\x88", False: b"\x89"}[value]
    if isinstance(value, int):
        number = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        return b"\x8a" + bytes([len(number)]) + number
    if isinstance(value, float):
        return b"G" + struct.pack(">d", value)
    if isinstance(value, str):
        text = value.encode("utf-8", "surrogatepass")
        return b"X" + struct.pack("<I", len(text)) + text

    def members(values: Iterable[Any]) -> bytes:
        return b"".join(_pickled(each, tensors) for each in values)

    if isinstance(value, Mapping):
        return b"}(" + members(each for key, item in value.items() for each in (str(key), item)) + b"u"
    if isinstance(value, tuple):
        return b"(" + members(value) + b"t"
    if isinstance(value, list):
        return b"](" + members(value) + b"e"
    if not isinstance(value, LazyTensor):
        raise TypeError(f"{type(value).__name__} is no plain data")
    tensors.append(value)
    storage = b"(" + members(["storage"]) + f"ctorch\n{STORAGE_OF[value.kind]}\n".encode()
    storage += members([str(len(tensors) - 1), "cpu", math.prod(value.shape)]) + b"tQ"
    described = members([0, value.shape, strides_of(value.shape), False])
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + described + b"ccollections\nOrderedDict\n)RtR"
