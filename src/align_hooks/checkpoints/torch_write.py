"""An archive as ``torch.save`` writes it, of tensors that are made one after the other. ``torch.load(weights_only=True)`` reads it."""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from align_hooks.checkpoints.kinds import size_of
from align_hooks.checkpoints.torch_zip import STORAGES, strides_of
from align_hooks.record.format.digests import bytes_of
from align_hooks.record.format.layout import Array
from align_hooks.record.write import atomic

ALIGNED = 64
"""Every member begins at a multiple of so many bytes, as torch has it, so that a file can be mapped."""
PADDED = b"FB"
"""The mark that torch gives to the bytes that move a member there."""
LARGE = 1 << 31
"""Bytes above which a member needs the longer form of its sizes."""
STORAGE_OF = {kind: name.removeprefix("torch.") for name, kind in STORAGES.items()}


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor to be written; ``key`` is the number of its storage."""

    key: int
    shape: tuple[int, ...]
    kind: str


def write_archive(path: Path, name: str, value: Any, tensors: Sequence[tuple[Tensor, Callable[[], Array]]]) -> None:
    """Write ``value``, in which :class:`Tensor` may stand, with the numbers of its tensors. ``name`` is the archive's own name."""
    with path.open("xb") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            small = {"data.pkl": b"\x80\x02" + _pickled(value) + b".", "byteorder": b"little"}
            for member, content in small.items():
                with _opened(archive, f"{name}/{member}", len(content)) as target:
                    target.write(content)
            for tensor, make in tensors:
                size = math.prod(tensor.shape) * size_of(tensor.kind)
                with _opened(archive, f"{name}/data/{tensor.key}", size) as target:
                    target.write(bytes_of(make()))
            with _opened(archive, f"{name}/version", 2) as target:
                target.write(b"3\n")
        file.flush()
        atomic.sync(file.fileno())


def _opened(archive: zipfile.ZipFile, name: str, size: int) -> Any:
    info = zipfile.ZipInfo(name)
    large = size >= LARGE
    assert archive.fp is not None
    begin = archive.fp.tell() + 30 + len(name.encode()) + 4 + (20 if large else 0)
    padding = -begin % ALIGNED
    info.extra = PADDED + struct.pack("<H", padding) + b"Z" * padding
    info.file_size = size
    return archive.open(info, "w", force_zip64=large)


def _pickled(value: Any) -> bytes:
    """Plain data and tensors in a pickle of protocol 2, with no opcode but those that torch allows for weights alone."""
    if isinstance(value, Tensor):
        return _tensor(value)
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
    if isinstance(value, Mapping):
        return b"}(" + b"".join(_pickled(str(key)) + _pickled(item) for key, item in value.items()) + b"u"
    if isinstance(value, tuple):
        return b"(" + b"".join(map(_pickled, value)) + b"t"
    if isinstance(value, list):
        return b"](" + b"".join(map(_pickled, value)) + b"e"
    raise TypeError(f"{type(value).__name__} is no plain data")


def _tensor(tensor: Tensor) -> bytes:
    storage = b"(" + _pickled("storage") + f"ctorch\n{STORAGE_OF[tensor.kind]}\n".encode()
    storage += _pickled(str(tensor.key)) + _pickled("cpu") + _pickled(math.prod(tensor.shape)) + b"tQ"
    described = b"".join(map(_pickled, (0, tensor.shape, strides_of(tensor.shape), False)))
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + described + b"ccollections\nOrderedDict\n)RtR"
