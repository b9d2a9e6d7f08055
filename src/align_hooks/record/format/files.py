"""One file of a record as it stands on disk: read whole, or refused as a RecordError that names it. Nothing is unpickled."""

from __future__ import annotations

import io
import json
import math
import tokenize
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from align_hooks.errors import RecordError, shown
from align_hooks.process.storage import PIECE, OpenFile, is_remote, opened, reading
from align_hooks.record.format import digests
from align_hooks.record.format.layout import Array, JsonObject
from align_hooks.record.format.stored_tensor import CHANGED, STORED, StoredTensor, widened
from align_hooks.regular import is_within, listed, refuse_swollen

LARGEST_JSON = 1 << 29
"""Bytes of the largest JSON file that is read: the parameter table of a rank that holds a million pieces."""
LONGEST_LINE = 1 << 28
"""Bytes of the longest row that is read: sketches of half a million pieces."""
LONGEST_HEADER = 100_000_000
"""Bytes of the longest header of a safetensors file, by its format."""
QUOTED = 200
"""Characters of a library's error that a message repeats."""
UNREADABLE = (
    *(OSError, ValueError, EOFError, MemoryError, OverflowError, SyntaxError, TypeError, tokenize.TokenError, RecursionError),
    SystemError,  # of Python 3.12's own tokenizer
)
"""What numpy raises for a broken header, which it parses as Python."""
DIGESTS = "xxh3_128"
"""The key of the tensors' digests in the metadata of a safetensors file."""


@contextmanager
def readable(path: Path, way_out: str = "") -> Iterator[None]:
    """Raise what reading a file raises as RecordError, which names the file and ends with ``way_out``."""
    try:
        yield
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"{path} cannot be read: {in_words(error)}{way_out}") from None


def read_json(path: Path, digest: str | None = None, *, within: Path | None = None) -> JsonObject:
    """Return a JSON object; checks the ``digest`` of the file. Another tool's is read ``within`` the folder that was named."""
    content = _bytes(path, within)
    _check(content, digest, path)
    return parsed(content, path)


def read_sealed(path: Path) -> JsonObject:
    """Return a JSON object that holds its own digest."""
    content = _bytes(path)
    with readable(path, "; copy it again, or record the run again"):
        return digests.opened(content)


def parsed(text: bytes, path: Path) -> JsonObject:
    """Return the object of a JSON text."""
    with readable(path):
        content = json.loads(text)
    if not isinstance(content, dict):
        raise RecordError(f"{path} holds no JSON object")
    return content


def read_lines(path: Path, start: int = 0) -> Iterator[bytes]:
    """Yield the lines of a file of rows from a byte on, with their ends; none where there is no file.

    A line that a killed process left torn has no end. Raises RecordError for a line that is longer than any row.
    """
    if not path.exists():
        return
    with readable(path):
        if not path.is_file():
            raise RecordError(f"{path} is no file of a record: it is not a regular file")
        with reading(path, start) as file:
            while line := file.readline(LONGEST_LINE):
                if len(line) == LONGEST_LINE:
                    raise RecordError(f"{path} holds a line of more than {LONGEST_LINE} bytes, which is no row of a record; copy it again")
                yield line


def no_row(path: Path, number: int, why: str = "") -> RecordError:
    """Return the error for a line that is no row, without the line, as the file may be anybody's."""
    return RecordError(f"{path}:{number} is no row of a record{why}; copy the record again, or record it again")


def list_folder(path: Path) -> list[Path]:
    """Return the entries of a folder that another tool wrote, by name; raises RecordError where it cannot be listed, or has no end."""
    with readable(path, "; name a directory that you may read"):
        return listed(path)


def is_folder_in(path: Path, folder: Path) -> bool:
    """Return whether a name in another tool's folder is a folder; raises RecordError where a link leads out of the outer one."""
    if path.is_symlink() and not is_within(path, folder):
        raise RecordError(f"{path} is a link that leads out of {folder}; copy what it leads to")
    return path.is_dir()


def in_words(error: BaseException) -> str:
    """Return the text of an error, in one line of at most :data:`QUOTED` characters."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text[:QUOTED].split()) or type(error).__name__


def _bytes(path: Path, within: Path | None = None) -> bytes:
    """A JSON text. Its first and last byte are checked before memory is taken for the others."""
    try:
        with opened(path, within) as file:
            if file.size > LARGEST_JSON or (file.size > PIECE and not _looks_like_an_object(file)):
                raise RecordError(f"{path} is no JSON object of a record, or larger than {LARGEST_JSON} bytes; copy it again")
            text = bytes(file.read(0, file.size))
        if within is not None:
            refuse_swollen(text)
        return text
    except FileNotFoundError:
        raise RecordError(f"{path} is missing; copy it again, or record the run again") from None
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} cannot be read: {in_words(error)}") from None


def _looks_like_an_object(file: OpenFile) -> bool:
    """Whether the first and last byte of a text are those of an object; only a line's end may follow."""
    return file.read(0, 1) + file.read(file.size - 2, 2).strip()[-1:] == b"{}"


def _check(content: bytes | memoryview, digest: str | None, path: Path) -> None:
    if digest is not None and digests.xxh3(content) != digest:
        raise RecordError(f"{path} {CHANGED}")


def read_array(path: Path, digest: str | None = None, *, headers_only: bool = False, within: Path | None = None) -> Array:
    """Return a ``.npy`` array; checks the ``digest`` of the file.

    With ``headers_only``, an array on a file system stays mapped, with header and length checked.
    """
    # mapped in any case: a header that promises more than the file holds is refused before memory is taken
    try:
        if is_remote(path):
            return _array_of_storage(path, digest)
        with opened(path, within) as file:
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)
            _refuse_all_but_numbers(mapped, mapped.offset + mapped.nbytes if isinstance(mapped, np.memmap) else 0, file.size)
            if digest is not None and not headers_only and digests.xxh3_of_pieces(file.blocks(0, file.size, PIECE)) != digest:
                raise RecordError(f"{path} {CHANGED}")
        return mapped if headers_only else np.array(mapped)
    except FileNotFoundError:
        raise RecordError(f"{path} is missing; copy it again, or record the run again") from None
    except UNREADABLE as error:
        raise RecordError(f"{path} is not a whole .npy array ({in_words(error)}); pickled arrays are never loaded") from None


def _array_of_storage(path: Path, digest: str | None) -> Array:
    """Return an array from object storage, where one request returns the full file."""
    with opened(path) as file:
        content = io.BytesIO(file.read(0, file.size))
    _check(content.getbuffer(), digest, path)
    array: Array = np.load(content, allow_pickle=False)
    _refuse_all_but_numbers(array, content.tell(), len(content.getbuffer()))
    return array


def _refuse_all_but_numbers(array: object, end: int, size: int) -> None:
    """Raise ValueError unless this is an array of numbers that ends where its file does."""
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
        raise ValueError("not a single array of numbers")
    if end != size:
        raise ValueError("its size is not what its header says")


class TensorFile:
    """One safetensors file, its header parsed once; raises RecordError where the file is not whole, or was replaced.

    Tensors are read by their place in the file (:mod:`.stored_tensor`) and not through the library, whose handle maps the file and reads
    no bf16 without another package, which would be a dependency of ours that may move numpy.
    """

    def __init__(
        self,
        path: Path,
        digest: str | None = None,
        *,
        types: Sequence[str] = ("F32",),
        remedy: str = "record the step again",
        within: Path | None = None,
    ) -> None:
        """Read the header, whose ``digest`` is that of all tensors' digests; None for another tool's file.

        A tensor has one of ``types`` of :data:`STORED`, in a record only fp32. Every refusal ends with ``remedy``. No link of another
        tool's file may leave the folder ``within``.
        """
        self.path, self._types, self._remedy = path, types, remedy
        try:
            with opened(path, within) as file:
                self._known = file.identity
                header, self._tensors = _header(file)
            _check(len(header).to_bytes(8, "little") + header, digest, path)
            metadata = self._tensors.pop("__metadata__", None) or {}
            _refuse_torn(self._tensors)
            self._digests = json.loads(metadata.get(DIGESTS, "{}"))
            self.metadata: dict[str, str] = dict(metadata)
        except (OSError, ValueError, RecursionError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise RecordError(f"{path} is not a whole safetensors file ({in_words(error)}); {remedy}") from None
        self._start = 8 + len(header)
        if not isinstance(self._digests, dict) or (digest is not None and self._digests.keys() != self._tensors.keys()):
            raise RecordError(f"{path} does not hold the digest of each of its tensors; {remedy}")

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor, without reading it."""
        return tuple(self._tensors[name]["shape"])

    def kind(self, name: str) -> str:
        """Return the stored type of a tensor, by its name in the format."""
        return str(self._tensors[name]["dtype"])

    def part(self, name: str) -> StoredTensor:
        """Return a tensor's place; raises RecordError for a type that is not among the file's ``types``."""
        kind = self.kind(name)
        if kind not in self._types or kind not in STORED:
            raise RecordError(
                f"{self.path}: {shown(name)} is {shown(kind)}, only {', '.join(self._types)} can be read here; {self._remedy}"
            )
        start, stop = (self._start + end for end in self._tensors[name]["data_offsets"])
        return StoredTensor(self.path, self._known, name, kind, self.shape(name), start, stop, self._digests.get(name), self._remedy)

    def read(self, name: str) -> Array:
        """Return one tensor as fp32; raises RecordError as :meth:`part` does, and where its bytes were changed."""
        return widened(self.stored(name), self.kind(name))

    def stored(self, name: str) -> Array:
        """Return one tensor as stored, a bf16 as its bits."""
        return self.part(name).stored()


EMPTY = (32).to_bytes(8, "little") + b'{"__metadata__":{"format":"pt"}}'
"""A file without a tensor, of a rank that holds copies alone. Before 0.4.4 the library writes such a file wrong and cannot read it."""


def _header(file: OpenFile) -> tuple[bytes, JsonObject]:
    """Return the header of a safetensors file, as text and parsed; raises ValueError where it does not fit the size of the file."""
    space = file.size - 8
    size = int.from_bytes(file.read(0, 8), "little")
    if size > min(space, LONGEST_HEADER):
        raise ValueError("it is shorter than its header")
    header = bytes(file.read(8, size))
    refuse_swollen(header)
    tensors = json.loads(header)
    stops = [tensor["data_offsets"][1] for name, tensor in tensors.items() if name != "__metadata__"]
    if max(stops, default=0) != space - size:
        raise ValueError("its size is not what its header says")
    return header, tensors


def _refuse_torn(tensors: JsonObject) -> None:
    """Raise ValueError unless each tensor has the bytes of its type and shape, one after the other from the first byte on: the format
    allows neither holes nor shared bytes."""
    end = 0
    for start, stop, name in sorted((*tensor["data_offsets"], name) for name, tensor in tensors.items()):
        kind, shape = tensors[name]["dtype"], tensors[name]["shape"]
        whole = all(type(number) is int and number >= 0 for number in (start, stop, *shape)) and start == end <= stop
        if not whole or (kind in STORED and stop - start != math.prod(shape) * np.dtype(STORED[kind]).itemsize):
            raise ValueError(f"{name} has not the bytes of its type and shape")
        end = stop
