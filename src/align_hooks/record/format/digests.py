"""Digests of the parts of a record: xxh3 of 128 bits, as fast as memory.

Digests show that a record was changed, cut or mixed with another; they are no signature. No row lists
rows, manifests and ``run.json``, so these hold their own digest, which :func:`seal` adds to the JSON text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import BinaryIO

import xxhash

from align_hooks.record.format.layout import Array, JsonObject

LENGTH = 32
"""Hexadecimal digits of a digest."""
ENDS = ((b',\n "digest": "', b'"\n}'), (b', "digest": "', b'"}'))
"""The text before and after the digest in a sealed text: indented, and in one line."""
ROW_END = len(b"".join(ENDS[1])) + LENGTH
"""Bytes at the end of a sealed row that are not sealed."""
_ROW_ENDING = b"%b".join(ENDS[1])
WHOLE_ROW = re.compile(rb', "digest": "[0-9a-f]{32}"\}')
"""The end of a sealed row."""


class Unsealed(ValueError):
    """A text was changed or cut after it was sealed, or was never sealed."""


def xxh3(content: bytes | memoryview | Array) -> str:
    """Return the digest of bytes, or of an array's bytes in row-major order: 32 hexadecimal digits."""
    return xxh3_of_pieces([bytes_of(content)])


def short(content: bytes | memoryview | Array) -> int:
    """Return a digest of 64 bits."""
    return xxhash.xxh3_64_intdigest(bytes_of(content))


def bytes_of(content: bytes | memoryview | Array) -> bytes | memoryview:
    """Return bytes as they are, and those of an array in row-major order."""
    return content if isinstance(content, bytes | memoryview) else content.ravel().view("u1").data  # ravel copies what is not contiguous


def xxh3_of_pieces(pieces: Iterable[bytes | memoryview]) -> str:
    """Return the digest of concatenated pieces."""
    state = running()
    for piece in pieces:
        state.update(piece)
    return str(state.hexdigest())


def running() -> xxhash.xxh3_128:
    """Return an incremental digest with ``update`` and ``hexdigest``."""
    return xxhash.xxh3_128()


class Digesting:
    """A binary file for writing that computes the digest of its content."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._state = file, running()

    def write(self, data: bytes | memoryview) -> int:
        """Write ``data`` and return the number of bytes written."""
        self._state.update(data)
        return self._file.write(data)

    def digest(self) -> str:
        """Return the digest of all bytes written so far."""
        return str(self._state.hexdigest())


def seal(text: bytes) -> bytes:
    """Return a JSON object's text with its digest as the last member."""
    indented = text.endswith(b"\n}")
    before, after = ENDS[0] if indented else ENDS[1]
    body = text.removesuffix(b"\n}" if indented else b"}")
    return body + before + xxh3(body).encode() + after


def opened(text: bytes) -> JsonObject:
    """Return the object of a sealed text, without the digest; raises Unsealed where the digest differs."""
    for before, after in ENDS:
        body = text[: -len(before) - LENGTH - len(after)]
        if text.endswith(after) and text[len(body) :] == before + xxh3(body).encode() + after:
            content: JsonObject = json.loads(text)
            del content["digest"]
            return content
    raise Unsealed("it was changed since it was written (its digest differs)")


def body_of_row(line: bytes) -> bytes | None:
    """Return the sealed part of a row in one line; None where its digest differs or is missing."""
    body = line[:-ROW_END]
    return body if line[-ROW_END:] == _ROW_ENDING % xxhash.xxh3_128_hexdigest(body).encode() else None
