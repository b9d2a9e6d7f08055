"""One tensor of a dump, whichever tool made it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from align_hooks.checkpoints.checkpoint import KINDS, cast
from align_hooks.checkpoints.torch_zip import TorchArchive, TorchTensor
from align_hooks.errors import RecordError, shown
from align_hooks.record.format.files import read_array
from align_hooks.record.format.layout import Array

FORWARD, BACKWARD = "forward", "backward"
INPUT, OUTPUT = "input", "output"
AGAIN = "dump the step again"
MOST_ELEMENTS = 1 << 50
"""Upper bound of the elements of a tensor."""


class Statistics(Struct, frozen=True):
    """A tool's statistics of a tensor; None where the tool has none."""

    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    norm: float | None = None
    """The Euclidean norm."""


class DumpEntry(Struct, frozen=True):
    """One tensor of a dump."""

    name: str
    """The tool's own name, unique in a step."""
    module: str | None
    """The path of the module or Cell; None for a call of an API or a single operator."""
    direction: str
    side: str
    """``input`` or ``output``; in a backward pass, ``input`` is the gradient of an output."""
    index: str
    """The number among the inputs or outputs, or the name of an argument."""
    call: int
    """The number of the module's call in the step, which is the micro-batch."""
    step: int
    shape: tuple[int, ...]
    dtype: str
    statistics: Statistics
    tensor: Path | None = None
    """The file of the numbers; None where the dump has only statistics."""
    operator: str = ""
    moment: int = 0
    """A number that orders operators in time."""

    @property
    def elements(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def read(self) -> Array:
        """Return the numbers in fp32, or in fp64 where stored so; raises RecordError for missing ones, and for those of another shape."""
        if self.tensor is None:
            raise RecordError(f"{shown(self.name)} has statistics and no numbers in this dump; dump it with its tensors")
        array = read_tensor(self.tensor)
        if array.shape != self.shape:
            raise RecordError(f"{self.tensor} is {list(array.shape)}, the dump says {list(self.shape)}; {AGAIN}, into an empty directory")
        return array


class Dump(Struct, frozen=True):
    """The content of a dump."""

    path: Path
    tool: str
    side: str
    """``torch`` or ``ms``."""
    entries: tuple[DumpEntry, ...]
    classes: Mapping[str, str] = field(default_factory=dict)
    """Path of a module to its class."""
    notes: tuple[str, ...] = ()
    by_hand: bool = False
    """Whether a person chose the names."""


def read_tensor(path: Path) -> Array:
    """Return the tensor of a ``.npy`` file, or of a ``.pt`` without running its pickle; raises RecordError for any other content."""
    if path.suffix != ".pt":
        array = read_array(path, within=path.parent)
        if array.dtype.kind != "f":
            raise RecordError(f"{path} holds {array.dtype}, which is no number of an activation; {AGAIN}")
        return array if array.dtype.itemsize == 8 else array.astype("<f4")
    if not path.is_file():
        raise RecordError(f"{path} is missing; copy the whole dump, or {AGAIN}")
    value = TorchArchive(path, ()).value
    if not isinstance(value, TorchTensor) or value.kind not in KINDS:
        raise RecordError(f"{path} holds no tensor of floating-point numbers; {AGAIN}")
    return cast(value.read(), value.kind, "F64" if value.kind == "F64" else "F32")[0]
