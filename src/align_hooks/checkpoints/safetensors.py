"""Safetensors files, written tensor by tensor."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from align_hooks.checkpoints.kinds import KINDS, size_of
from align_hooks.record.format.digests import bytes_of
from align_hooks.record.format.files import TensorFile
from align_hooks.record.format.layout import Array
from align_hooks.record.format.stored_tensor import head
from align_hooks.record.write import atomic

REMEDY = "copy the whole checkpoint again"


@dataclass(frozen=True, slots=True)
class Output:
    """A tensor to be written."""

    name: str
    """The destination's own name."""
    shape: tuple[int, ...]
    kind: str
    make: Callable[[], Array]
    """Makes the numbers."""

    @property
    def size(self) -> int:
        """Bytes of the numbers."""
        return math.prod(self.shape) * size_of(self.kind)


def open_files(paths: Iterable[Path]) -> list[TensorFile]:
    """Open safetensors files; raises RecordError for a file cut short."""
    return [TensorFile(path, types=tuple(KINDS), remedy=REMEDY, within=path.parent) for path in paths]


def write_safetensors(path: Path, outputs: Sequence[Output], metadata: Mapping[str, str]) -> None:
    """Write a file of these tensors, in their order, and sync it."""
    with path.open("xb") as file:
        file.write(head(((output.name, output.kind, output.shape, output.size) for output in outputs), metadata))
        for output in outputs:
            file.write(bytes_of(output.make()))
        file.flush()
        atomic.sync(file.fileno())
