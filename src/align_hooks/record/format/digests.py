"""Digests of what a record holds: xxh3 of 128 bits, which reads as fast as memory does.

They show that a record was changed, cut or mixed with another. They are no signature: whoever forges a record can make new digests. Rows,
manifests and ``run.json`` hold their own digest, which :func:`seal` puts into the JSON text, for no row lists them.
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
"""What stands before and after the digest of a sealed text, indented and in one line."""
ROW_END = len(b"".join(ENDS[1])) + LENGTH
"""Bytes at the end of a sealed row that are not sealed."""
WHOLE_ROW = re.compile(rb', "digest": "[0-9a-f]{32}"\}')
"""The end of a sealed row."""


class Unsealed(ValueError):
    """A text that is not what was sealed: it was changed, or cut, or never sealed."""


def xxh3(content: bytes | memoryview | Array) -> str:
    """The digest of bytes, 32 hexadecimal digits; of an array, that of its bytes in row-major order."""
    return xxh3_of_pieces([content if isinstance(content, bytes | memoryview) else bytes_of(content)])


def raw(content: bytes) -> bytes:
    """The same digest as its 16 bytes."""
    return xxhash.xxh3_128_digest(content)


def short(content: bytes) -> int:
    """A digest of 64 bits, for what is compared in memory and kept nowhere."""
    return xxhash.xxh3_64_intdigest(content)


def bytes_of(array: Array) -> memoryview:
    """The bytes of an array in row-major order."""
    return array.ravel().view("u1").data  # ravel copies what is not contiguous


def xxh3_of_pieces(pieces: Iterable[bytes | memoryview]) -> str:
    """The digest of bytes that come in pieces."""
    state = running()
    for piece in pieces:
        state.update(piece)
    return str(state.hexdigest())


def running() -> xxhash.xxh3_128:
    """A digest that is made piece by piece: ``update`` adds bytes, ``hexdigest`` is the digest of all so far."""
    return xxhash.xxh3_128()


class Digesting:
    """A binary file to write to, which knows the digest of what was written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._state = file, running()

    def write(self, data: bytes | memoryview) -> int:
        """Write ``data``; how many bytes were written."""
        self._state.update(data)
        return self._file.write(data)

    def digest(self) -> str:
        """The digest of all that was written so far."""
        return str(self._state.hexdigest())


def seal(text: bytes) -> bytes:
    """A JSON object's text with its digest as its last member."""
    indented = text.endswith(b"\n}")
    before, after = ENDS[0] if indented else ENDS[1]
    body = text.removesuffix(b"\n}" if indented else b"}")
    return body + before + xxh3(body).encode() + after


def opened(text: bytes) -> JsonObject:
    """The object of a sealed text, without the digest; raises Unsealed where the digest is not that of the text."""
    parts = _split(text)
    if parts is None or parts[1] != xxh3(parts[0]):
        raise Unsealed("it was changed since it was written (its digest differs)")
    content: JsonObject = json.loads(text)
    del content["digest"]
    return content


def body_of_row(line: bytes) -> bytes | None:
    """The sealed part of a row in one line, without its end; None where the digest is not that of the part, or there is none."""
    body, end = line[:-ROW_END], line[-ROW_END:]
    return body if end == b"".join((ENDS[1][0], xxhash.xxh3_128_hexdigest(body).encode(), ENDS[1][1])) else None


def _split(text: bytes) -> tuple[bytes, str] | None:
    """The sealed part of a text and its digest; None where the text does not end as a sealed text does."""
    for before, after in ENDS:
        size = LENGTH + len(after)
        if text.endswith(after) and text[:-size].endswith(before):
            return text[: -size - len(before)], text[-size:][:LENGTH].decode("ascii", "replace")
    return None
