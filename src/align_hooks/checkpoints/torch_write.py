"""An archive for ``torch.load(weights_only=True)``, of tensors that are made one after the other."""

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
"""Bytes of which a multiple precedes each member, as in torch, so that a file can be mapped."""
PADDED = b"FB"
"""torch's mark of the padding before a member."""
LARGE = 1 << 31
"""Bytes above which a member needs the 64-bit form of its sizes."""
STORAGE_OF = {kind: name.removeprefix("torch.") for name, kind in STORAGES.items()}


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor to be written."""

    key: int
    """The number of the storage."""
    shape: tuple[int, ...]
    kind: str


def write_archive(path: Path, name: str, value: Any, tensors: Sequence[tuple[Tensor, Callable[[], Array]]]) -> None:
    """Write the archive ``name`` of a ``value``, in which :class:`Tensor` may stand, with the numbers of its tensors."""
    with path.open("xb") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            _write(archive, f"{name}/data.pkl", b"\x80\x02" + _pickled(value) + b".")
            _write(archive, f"{name}/byteorder", b"little")
            for tensor, make in tensors:
                size = math.prod(tensor.shape) * size_of(tensor.kind)
                with _opened(archive, f"{name}/data/{tensor.key}", size) as target:
                    target.write(bytes_of(make()))
            _write(archive, f"{name}/version", b"3\n")
        file.flush()
        atomic.sync(file.fileno())


def _write(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    with _opened(archive, name, len(content)) as target:
        target.write(content)


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
    """Return plain data and tensors in a pickle of protocol 2, with only the opcodes of ``weights_only``."""
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
