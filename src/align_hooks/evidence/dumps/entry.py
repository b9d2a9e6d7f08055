"""One tensor of a dump, whichever tool made it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from align_hooks.checkpoints.kinds import KINDS, cast
from align_hooks.checkpoints.torch_zip import TorchArchive, TorchTensor
from align_hooks.errors import RecordError, shown
from align_hooks.record.format.layout import Array
from align_hooks.record.read.files import read_array

FORWARD, BACKWARD = "forward", "backward"
INPUT, OUTPUT = "input", "output"
AGAIN = "dump the step again"
MOST_ELEMENTS = 1 << 50
"""Elements of a tensor, and fewer."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a tool says of a tensor's numbers, in fp32 or as the tool calculates; None is not said. ``norm`` is the Euclidean norm."""

    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    norm: float | None = None


@dataclass(frozen=True, slots=True)
class DumpEntry:
    """One tensor of a dump.

    ``name`` is the tool's own, unique in a step. ``module`` is the path of the module or Cell, None for a call of an API or a single
    operator. ``index`` is the number among the inputs or outputs, or the name of an argument. Of a backward pass, ``input`` is the gradient
    of an output and ``output`` that of an input. ``call`` counts the calls of the module in a step, which are micro-batches. ``moment``
    orders operators by when they ran. ``tensor`` is the file of its numbers, or None.
    """

    name: str
    module: str | None
    direction: str
    side: str
    index: str
    call: int
    step: int
    shape: tuple[int, ...]
    dtype: str
    statistics: Statistics
    tensor: Path | None = None
    operator: str = ""
    moment: int = 0

    @property
    def elements(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    def read(self) -> Array:
        """Its numbers in fp32 (fp64 stays).

        :raises RecordError: the dump has no numbers of it, or a file that is not whole, no tensor, or of another shape than the dump says.
        """
        if self.tensor is None:
            raise RecordError(f"{shown(self.name)} has statistics and no numbers in this dump; dump it with its tensors")
        array = read_tensor(self.tensor)
        if array.shape != self.shape:
            raise RecordError(f"{self.tensor} is {list(array.shape)}, the dump says {list(self.shape)}; {AGAIN}, into an empty directory")
        return array


@dataclass(frozen=True, slots=True)
class Dump:
    """What a dump holds. ``side`` is ``torch`` or ``ms``. ``classes`` is the path of a module to its class. ``notes`` say what a reader
    should know. ``by_hand`` says that a person chose the names."""

    path: Path
    tool: str
    side: str
    entries: tuple[DumpEntry, ...]
    classes: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    by_hand: bool = False


def read_tensor(path: Path) -> Array:
    """The tensor of a ``.npy`` file, or of a ``.pt`` that torch saved, which is read as plain data: nothing of a pickle is run.

    :raises RecordError: the file is missing, not whole, or holds anything but one tensor of floating-point numbers.
    """
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
