"""Files that are whole or absent: written under a temporary name, synced, renamed.

A reader, or a job that was killed, never meets half a file. Each function returns the digest of what it wrote. Where a file system
cannot link, or cannot sync a directory, what it has is used; :func:`weaknesses` says what is weaker then.
"""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from align_hooks.job.paths import well_formed
from align_hooks.record import digests
from align_hooks.record.folder import TEMPORARY
from align_hooks.record.weakness import Weakness

UNSUPPORTED = {
    errno.EPERM,
    errno.EACCES,
    errno.EINVAL,
    errno.ENOSYS,
    errno.ENOTSUP,
    errno.EOPNOTSUPP,
    errno.EBADF,
    errno.EISDIR,
    errno.EMLINK,
    errno.EXDEV,
    errno.ENOTTY,
}
"""What file systems answer that lack hard links, or that cannot sync a directory."""


def replace(path: Path, write: Callable[[Path], str]) -> str:
    """Make ``path`` hold what ``write`` puts into the temporary file it is handed; ``write`` returns its digest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    try:
        temporary.unlink(missing_ok=True)
        digest = write(temporary)
        _sync(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync(path.parent)
    return digest


def create(path: Path, content: Mapping[str, Any]) -> None:
    """Write a sealed object as :func:`write_sealed` does, but raise FileExistsError where ``path`` is taken."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary, text = _temporary(path), digests.seal(encoded(json_text(content)))
    try:
        temporary.unlink(missing_ok=True)
        _write(temporary, text)
        _sync(temporary)
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
            _write(path, text)
    finally:
        temporary.unlink(missing_ok=True)
    _sync(path.parent)


def write_json(path: Path, content: Mapping[str, Any]) -> str:
    """Write ``content`` as indented JSON."""
    return write_text(path, json_text(content))


def write_sealed(path: Path, content: Mapping[str, Any]) -> str:
    """Write ``content`` as indented JSON whose last member is its digest."""
    return write_bytes(path, digests.seal(encoded(json_text(content))))


def write_text(path: Path, text: str) -> str:
    """Write ``text``."""
    return write_bytes(path, encoded(text))


def write_bytes(path: Path, content: bytes) -> str:
    """Write ``content``."""
    return replace(path, lambda temporary: _write(temporary, content))


def write_array(path: Path, array: NDArray[Any]) -> str:
    """Write ``array`` as ``.npy``, without pickling."""

    def write(temporary: Path) -> str:
        with temporary.open("xb") as file:
            digesting = digests.Digesting(file)
            np.save(digesting, array, allow_pickle=False)
        return digesting.digest()

    return replace(path, write)


def json_text(content: Any, *, indent: int | None = 1) -> str:
    """Strict JSON: NaN and the infinities become the strings that ``float()`` reads back."""
    return json.dumps(_strict(content), indent=indent, allow_nan=False, ensure_ascii=False)


def encoded(text: str) -> bytes:
    """A text as UTF-8. What stands for the bytes of a name that is no UTF-8 becomes JSON's escape for it, which reads back as the same."""
    return text.encode("utf-8", "backslashreplace")


def sync(descriptor: int) -> bool:
    """Sync an open file; whether the file system can."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        return False
    return True


def weaknesses(path: Path) -> Iterator[str]:
    """What the file system of ``path`` cannot do of what a record rests on, and what is weaker for it, a sentence each; tried beside it."""
    probe, link = (_temporary(path.with_name(f"{path.name}.{what}")) for what in ("probe", "link"))
    try:
        for one in (probe, link):
            one.unlink(missing_ok=True)
        _write(probe, b"")
        try:
            os.link(probe, link)
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
            yield Weakness.NO_LINKS.value
        if not (_sync(probe) and _sync(path.parent)):
            yield Weakness.NO_SYNC.value
    finally:
        for one in (probe, link):
            one.unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    """The name under which ``path`` is written: short, as one that is as long as names may be has no room for more."""
    return path.with_name(f".{path.name[:100]}.{os.getpid()}{TEMPORARY}")


def _strict(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {well_formed(str(key)): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, np.generic):
        value = value.item()
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
    return digests.of(content)


def _sync(path: Path) -> bool:
    """Sync a file, or a directory's entries; whether the file system can."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return sync(descriptor)
    finally:
        os.close(descriptor)
