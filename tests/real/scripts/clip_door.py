"""CaptureThenClip as MFPipelineWithLossScaleCell compiles it: in the place of MindFormers' clipping, in graph mode."""

from __future__ import annotations

import json

import mindspore
import numpy as np
from mindformers.core.clip_grad import ClipGradNorm
from mindspore import Parameter, Tensor, nn

from align_hooks.ms_side import model
from align_hooks.ms_side.reducer import CaptureGradients, CaptureThenClip, Unreduced
from align_hooks.names.blocks import Blocks, Dims
from align_hooks.names.fused import Fused, Piece

mindspore.set_context(mode=mindspore.GRAPH_MODE)
mindspore.set_device("CPU")


class Cell(nn.Cell):
    """The part of the training cell's ``construct`` that clips."""

    def __init__(self) -> None:
        super().__init__()
        self.clip_grad_norm = ClipGradNorm(1.0)

    def construct(self, gradients):  # type: ignore[no-untyped-def]
        """Clipped gradients and the global norm."""
        return self.clip_grad_norm(gradients)


def held(name: str, pieces: tuple[str, ...], shape: tuple[int, ...], rows: tuple[int, ...]) -> model.Parameter:
    weight = Parameter(Tensor(np.zeros(shape, np.float32)), name=name)
    parts = tuple(
        Piece(piece, (count, *shape[1:]), ((0, count), *((0, size) for size in shape[1:])))
        for piece, count in zip(pieces, rows, strict=True)
    )
    return model.Parameter(weight, Fused(name, parts, Blocks(1, rows)))


random = np.random.default_rng(0)
parameters = model.Parameters((held("w_gate", ("gate", "up"), (6, 4), (2, 4)), held("norm", ("norm",), (5,), (5,))), Dims(1, 1, 1, 1, 1, 1))
own = [random.standard_normal(one.model.shape).astype(np.float32) for one in parameters]
other = {one.fused.native: random.standard_normal(one.model.shape).astype(np.float32) for one in parameters}
plain, cell = Cell(), Cell()
capture = CaptureGradients(Unreduced(), parameters, point="reduced", norms=True, gradients=True, inject=True)
cell.clip_grad_norm = CaptureThenClip(capture, cell.clip_grad_norm)


def clipped(cell: Cell, gradients: list[np.ndarray]) -> tuple[list[np.ndarray], float]:
    """What the cell returns, as arrays."""
    found, norm = cell(tuple(map(Tensor, gradients)))
    return [one.asnumpy() for one in found], float(norm.asnumpy())


def same(one: tuple[list[np.ndarray], float], two: tuple[list[np.ndarray], float]) -> bool:
    """Equal to the bit."""
    return one[1] == two[1] and all((left == right).all() for left, right in zip(one[0], two[0], strict=True))


said = {"untouched": same(clipped(plain, own), clipped(cell, own))}
said["captured"] = all((kept.asnumpy() == gradient).all() for kept, gradient in zip(capture.buffers, own, strict=True))
pieces = {"gate": own[0][:2], "up": own[0][2:], "norm": own[1]}
squared = {name: float(np.square(piece, dtype=np.float64).sum()) for name, piece in pieces.items()}
said["norms"] = all(abs(found - squared[name]) <= 1e-6 * squared[name] for name, found in capture.squared_sums().items())
capture.fill(lambda fused: other[fused.native])
said["injected"] = same(clipped(plain, list(other.values())), clipped(cell, own))
said["own on record"] = all((kept.asnumpy() == gradient).all() for kept, gradient in zip(capture.buffers, own, strict=True))
capture.fill(None)
said["own again"] = same(clipped(plain, own), clipped(cell, own))
said["clip norm shown"] = float(cell.clip_grad_norm.clip_norm.asnumpy().reshape(())) == 1.0
print("clip_door", json.dumps(said))
