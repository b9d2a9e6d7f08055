"""What the scripts that try our doors in graph mode share: the part of a training cell that clips, and comparisons to the bit."""

import mindspore
import numpy as np
from mindformers.core.clip_grad import ClipGradNorm
from mindspore import Parameter, Tensor, nn

from align_hooks.ms_side import model
from align_hooks.names.blocks import Blocks
from align_hooks.names.fused import Fused, Piece

mindspore.set_context(mode=mindspore.GRAPH_MODE)
mindspore.set_device("CPU")
Clipped = tuple[list[np.ndarray], float]


class Cell(nn.Cell):
    """The part of the training cell's ``construct`` that clips."""

    def __init__(self) -> None:
        super().__init__()
        self.clip_grad_norm = ClipGradNorm(1.0)

    def construct(self, gradients):  # type: ignore[no-untyped-def]
        """Clipped gradients and the global norm."""
        return self.clip_grad_norm(gradients)


def zeros(name: str, *shape: int) -> Parameter:
    return Parameter(Tensor(np.zeros(shape, np.float32)), name=name)


def parameter(weight: Parameter, pieces: tuple[str, ...], rows: tuple[int, ...], *place: object) -> model.CellParameter:
    """A parameter of ours, of pieces that are so many rows of a weight."""
    tail = weight.shape[1:]
    boxes = [((0, count), *((0, size) for size in tail)) for count in rows]
    parts = tuple(Piece(piece, (count, *tail), box) for piece, count, box in zip(pieces, rows, boxes, strict=True))
    return model.CellParameter(weight, Fused(weight.name, parts, Blocks(1, rows)), *place)


def clipped(cell: Cell, gradients: list[np.ndarray]) -> Clipped:
    """What the cell returns, as arrays."""
    outputs, norm = cell(tuple(map(Tensor, gradients)))
    return [output.asnumpy() for output in outputs], float(norm.asnumpy())


def same(first: Clipped, second: Clipped) -> bool:
    """Equal to the bit."""
    return first[1] == second[1] and all_equal(first[0], second[0])


def all_equal(first: list[np.ndarray], second: list[np.ndarray]) -> bool:
    return all((left == right).all() for left, right in zip(first, second, strict=True))


def near(sums: dict[str, float], pieces: dict[str, np.ndarray]) -> bool:
    """Whether these are the sums of squares of the pieces."""
    right = {name: float(np.square(piece, dtype=np.float64).sum()) for name, piece in pieces.items()}
    return sums.keys() == right.keys() and all(abs(sums[name] - right[name]) <= 1e-6 * right[name] for name in right)
