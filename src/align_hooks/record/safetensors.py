"""The head of a safetensors file, for files that are written tensor by tensor.

The library's writer copies every tensor into one object first, and holds Python's lock while it writes: a thread that writes beside
training would stop it. Reading is the library's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence


def head(tensors: Iterable[tuple[str, str, Sequence[int], int]], metadata: Mapping[str, str]) -> bytes:
    """The size of the header and the header, for tensors that follow in this order: name, type, shape and bytes of each."""
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    end = 0
    for name, kind, shape, size in tensors:
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that numbers are aligned
    return len(text).to_bytes(8, "little") + text
