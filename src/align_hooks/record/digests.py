"""Digests of what a record holds: xxh3 of 128 bits, which reads as fast as memory does.

They tell a record that was changed, cut or mixed with another from one that is as it was written. They are no signature: whoever
means to forge a record can make new ones. :func:`seal` puts one into a JSON text itself, where there is no row to hold it: in the
rows, the manifests and ``run.json``.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

LENGTH = 32
"""Hexadecimal digits of a digest."""
ENDS = ((b',\n "digest": "', b'"\n}'), (b', "digest": "', b'"}'))
"""What stands before and after the digest of a sealed text, indented and in one line."""
WHOLE_ROW = re.compile(rb', "digest": "[0-9a-f]{32}"\}')
"""The end of a sealed row."""


class Unsealed(ValueError):
    """A text that is not what was sealed: it was changed, or cut, or never sealed."""


def of(content: bytes | memoryview | NDArray[Any]) -> str:
    """The digest of bytes, 32 hexadecimal digits; of an array, which must be contiguous, that of its bytes."""
    data = content.view(np.uint8).reshape(-1).data if isinstance(content, np.ndarray) and content.size else content
    return xxhash.xxh3_128(b"" if isinstance(data, np.ndarray) else data).hexdigest()


class Digest:
    """The digest of what comes in pieces."""

    def __init__(self) -> None:
        self._state = xxhash.xxh3_128()

    def update(self, piece: Any) -> None:
        """Take one more piece."""
        self._state.update(piece)

    def digest(self) -> str:
        """That of all pieces so far."""
        return str(self._state.hexdigest())


class Digesting(Digest):
    """A binary file to write to, which knows the digest of what was written."""

    def __init__(self, file: Any) -> None:
        super().__init__()
        self._file = file

    def write(self, data: Any) -> int:
        """Write ``data``; how many bytes were written."""
        self.update(data)
        return int(self._file.write(data))


def seal(text: bytes) -> bytes:
    """A JSON object's text with its digest as its last member."""
    indented = text.endswith(b"\n}")
    before, after = ENDS[0] if indented else ENDS[1]
    body = text.removesuffix(b"\n}" if indented else b"}")
    return body + before + of(body).encode() + after


def is_sealed(text: bytes) -> bool:
    """Whether a text ends as a sealed one does."""
    return any(_split(text, *ends) is not None for ends in ENDS)


def opened(text: bytes) -> dict[str, Any]:
    """What a sealed text says, without the digest; raises Unsealed where the digest is not that of the text."""
    for before, after in ENDS:
        found = _split(text, before, after)
        if found is not None and found[1] == of(found[0]):
            content = json.loads(text)
            del content["digest"]
            return dict(content)
    raise Unsealed("it was changed since it was written (its digest differs)")


def _split(text: bytes, before: bytes, after: bytes) -> tuple[bytes, str] | None:
    size = LENGTH + len(after)
    if not text.endswith(after) or not text[:-size].endswith(before):
        return None
    return text[: -size - len(before)], text[-size:][:LENGTH].decode("ascii", "replace")
