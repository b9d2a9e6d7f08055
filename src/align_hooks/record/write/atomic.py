"""Atomic files: each is written under a temporary name, synced and renamed; writers return the digest.

A file system may lack hard links or the sync of directories; :func:`weaknesses` names what is lost.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from errno import EACCES, EBADF, EINVAL, EISDIR, EMLINK, ENOSYS, ENOTSUP, ENOTTY, EOPNOTSUPP, EPERM, EXDEV
from pathlib import Path

from align_hooks.process.paths import well_formed
from align_hooks.record.format import digests
from align_hooks.record.format.folder import TEMPORARY
from align_hooks.record.format.layout import Array
from align_hooks.record.format.storage_limitations import NO_LINKS, NO_SYNC

AT_ONCE = 1024
"""Buffers that one ``writev`` of Linux takes."""
UNSUPPORTED = {EPERM, EACCES, EINVAL, ENOSYS, ENOTSUP, EOPNOTSUPP, EBADF, EISDIR, EMLINK, EXDEV, ENOTTY}
"""Errors of file systems without hard links, or without the sync of a directory."""


def replace(path: Path, write: Callable[[Path], str]) -> str:
    """Replace ``path`` by a temporary file that ``write`` fills; ``write`` returns the digest."""
    return _write_aside(path, write, lambda temporary: temporary.replace(path))


def create(path: Path, content: Mapping[str, object]) -> None:
    """Write a sealed object; raises FileExistsError where ``path`` exists."""
    sealed = digests.seal(encoded(json_text(content)))

    def link(temporary: Path) -> None:
        if not _supported(lambda: os.link(temporary, path)):
            _write(path, sealed)

    _write_aside(path, lambda temporary: _write(temporary, sealed), link)


def _write_aside(path: Path, write: Callable[[Path], str], publish: Callable[[Path], object]) -> str:
    """Let ``write`` fill a temporary file beside ``path`` and ``publish`` rename it; return the digest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_name(path)
    try:
        temporary.unlink(missing_ok=True)
        digest = write(temporary)
        sync_path(temporary)
        publish(temporary)
    finally:
        temporary.unlink(missing_ok=True)
    sync_path(path.parent)
    return digest


def write_json(path: Path, content: Mapping[str, object]) -> str:
    """Write ``content`` as indented JSON."""
    return write_text(path, json_text(content))


def write_sealed(path: Path, content: Mapping[str, object]) -> str:
    """Write ``content`` as indented JSON with its digest as the last member."""
    return write_bytes(path, digests.seal(encoded(json_text(content))))


def write_text(path: Path, text: str) -> str:
    """Write ``text``."""
    return write_bytes(path, encoded(text))


def write_bytes(path: Path, content: bytes) -> str:
    """Write ``content``."""
    return replace(path, lambda temporary: _write(temporary, content))


def write_array(path: Path, array: Array) -> str:
    """Write ``array`` as ``.npy``, without pickling."""
    import numpy  # not with the module: `align-hooks run` writes text alone, and starts in half the time without numpy

    def write(temporary: Path) -> str:
        with temporary.open("xb") as file:
            digesting = digests.Digesting(file)
            numpy.save(digesting, array, allow_pickle=False)
        return digesting.digest()

    return replace(path, write)


def write_buffers(path: Path, buffers: Sequence[bytes | memoryview]) -> None:
    """Write a new file from many buffers in few calls, since each call releases and takes the GIL."""
    left = [memoryview(buffer) for buffer in buffers if len(buffer)]
    with path.open("xb", buffering=0) as file:
        while left:
            written = os.writev(file.fileno(), left[:AT_ONCE])
            while left and written >= len(left[0]):
                written -= len(left.pop(0))
            if written:
                left[0] = left[0][written:]


def json_text(content: object, *, indent: int | None = 1) -> str:
    """Return strict JSON: NaN and infinities become strings that ``float()`` reads back."""
    return json.dumps(_strict(content), indent=indent, allow_nan=False, ensure_ascii=False)


def encoded(text: str) -> bytes:
    """Return a text as UTF-8."""
    return text.encode("utf-8", "backslashreplace")  # a surrogate, a byte of a name, becomes JSON's escape


def sync(descriptor: int) -> bool:
    """Sync an open file; return whether the file system can."""
    return _supported(lambda: os.fsync(descriptor))


def weaknesses(path: Path) -> Iterator[str]:
    """Yield the features that the file system of ``path`` lacks, by a trial beside ``path``."""
    probe, link = (temporary_name(path.with_name(f"{path.name}.{purpose}")) for purpose in ("probe", "link"))
    try:
        for file in (probe, link):
            file.unlink(missing_ok=True)
        _write(probe, b"")
        if not _supported(lambda: os.link(probe, link)):
            yield NO_LINKS
        if not (sync_path(probe) and sync_path(path.parent)):
            yield NO_SYNC
    finally:
        for file in (probe, link):
            file.unlink(missing_ok=True)


def _supported(call: Callable[[], object]) -> bool:
    """Make a system call; return whether the file system supports it. Raises every other OSError."""
    try:
        call()
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        return False
    return True


def temporary_name(path: Path) -> Path:
    """Return the temporary name of ``path``."""
    return path.with_name(f".{path.name[:100]}.{os.getpid()}{TEMPORARY}")  # cut, as a name may have the largest length already


def _strict(value: object) -> object:
    if isinstance(value, Mapping):
        return {well_formed(str(key)): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    if isinstance(value, str):
        return well_formed(value)
    if hasattr(value, "item"):  # perhaps a scalar of numpy
        import numpy  # not with the module, as in write_array

        value = value.item() if isinstance(value, numpy.generic) else value
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def _write(path: Path, content: bytes) -> str:
    try:
        with path.open("xb") as file:
            file.write(content)
    except FileExistsError:
        raise
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return digests.xxh3(content)


def sync_path(path: Path) -> bool:
    """Sync a file, or a directory's entries; return whether the file system can."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return sync(descriptor)
    finally:
        os.close(descriptor)
