"""CaptureShards in the place of MindFormers' clipping, in graph mode: what it keeps and injects, where nothing is cut.

That MindSpore cuts it as it cuts the weights needs a device; what it computes does not. Afterwards, what a semi-automatic job may not do.
"""

from __future__ import annotations

import json
import os

import mindspore
import numpy as np
from mindformers.core.clip_grad import ClipGradNorm
from mindformers.core.optim import AdamW
from mindspore import Parameter, ParameterTuple, Tensor, nn

from align_hooks.errors import RefusedRun
from align_hooks.ms_side import model
from align_hooks.ms_side.feeding import Sizes
from align_hooks.ms_side.place import refuse_layouts
from align_hooks.ms_side.reducer import CaptureThenClip, Unreduced
from align_hooks.ms_side.shard_reducer import CaptureShards
from align_hooks.names.blocks import Blocks, Dims
from align_hooks.names.fused import Fused, Piece
from align_hooks.settings import Settings

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


def held(index: int, weight: Parameter, pieces: tuple[str, ...], rows: tuple[int, ...], counted: bool) -> model.Parameter:
    tail = weight.shape[1:]
    parts = tuple(
        Piece(piece, (count, *tail), ((0, count), *((0, size) for size in tail))) for piece, count in zip(pieces, rows, strict=True)
    )
    return model.Parameter(weight, Fused(weight.name, parts, Blocks(1, rows)), counted, index)


random = np.random.default_rng(0)
weights = [Parameter(Tensor(np.zeros(shape, np.float32)), name=name) for name, shape in (("other", (3,)), ("gate", (6, 4)), ("norm", (5,)))]
optimizer = AdamW(ParameterTuple(weights), learning_rate=1e-3)
shards = CaptureShards(optimizer, norms=True, gradients=True, inject=True)
parameters = model.Parameters(
    (held(1, weights[1], ("gate", "up"), (2, 4), True), held(2, weights[2], ("norm",), (5,), False)), Dims(1, 1, 1, 1, 1, 1), False, 1
)
own = [random.standard_normal(weight.shape).astype(np.float32) for weight in weights]
other = [np.zeros(3, np.float32), *(random.standard_normal(weight.shape).astype(np.float32) for weight in weights[1:])]
plain, cell = Cell(), Cell()
cell.clip_grad_norm = CaptureThenClip(shards.around(Unreduced()), cell.clip_grad_norm)


def clipped(cell: Cell, gradients: list[np.ndarray]) -> tuple[list[np.ndarray], float]:
    """What the cell returns, as arrays."""
    found, norm = cell(tuple(map(Tensor, gradients)))
    return [one.asnumpy() for one in found], float(norm.asnumpy())


def same(one: tuple[list[np.ndarray], float], two: tuple[list[np.ndarray], float]) -> bool:
    """Equal to the bit."""
    return one[1] == two[1] and all((left == right).all() for left, right in zip(one[0], two[0], strict=True))


said = {"untouched": same(clipped(plain, own), clipped(cell, own))}
shards.bind(parameters)
said["captured"] = all((kept.asnumpy() == gradient).all() for kept, gradient in zip(shards.buffers, own[1:], strict=True))
pieces = {"gate": own[1][:2], "up": own[1][2:], "norm": own[2]}
squared = {name: float(np.square(piece, dtype=np.float64).sum()) for name, piece in pieces.items()}
found = shards.squared_sums()
said["norms"] = found.keys() == squared.keys() and all(abs(found[name] - squared[name]) <= 1e-6 * squared[name] for name in squared)
filled = shards.fill(lambda fused: other[1] if fused.native == "gate" else other[2])
said["norm of what counts"] = abs(filled - float(np.linalg.norm(other[1]))) < 1e-5
said["injected"] = same(clipped(plain, other), clipped(cell, own))  # of another stage's weight the graph has no gradient: zeros here
said["own on record"] = all((kept.asnumpy() == gradient).all() for kept, gradient in zip(shards.buffers, own[1:], strict=True))
shards.fill(None)
said["own again"] = same(clipped(plain, own), clipped(cell, own))
said["memory"] = shards.bytes == 2 * 4 * (24 + 5)
said["no checkpoint"] = not any("align_hooks" in name for name in cell.parameters_dict())


def refused(word: str, sizes: Sizes, *, tied: bool = False, **switches: str) -> bool:
    """Whether a job of these sizes is refused for what the word names."""
    settings = Settings.from_environment({f"ALIGN_HOOKS_{name}": value for name, value in switches.items()})
    try:
        refuse_layouts(settings, sizes, type("Config", (), {"tie_word_embeddings": tied}))
    except RefusedRun as error:
        return word in str(error)
    return not word


mindspore.set_auto_parallel_context(gradients_mean=True)
said["mean"] = refused("gradients_mean", Sizes())
mindspore.set_auto_parallel_context(gradients_mean=False)
said["plain"] = refused("", Sizes(pp=2)) and refused("", Sizes(), tied=True)
said["tied"] = refused("tie_word_embeddings", Sizes(pp=2), tied=True)
said["local"] = refused("LOCAL_NORMS_POINT", Sizes(), LOCAL_NORMS="all", LOCAL_NORMS_POINT="local")
os.environ["PIPELINE_SLICE_SKIP_REDISTRIBUTION"] = "1"
said["skipped"] = refused("PIPELINE_SLICE_SKIP_REDISTRIBUTION", Sizes(pp=2))
del os.environ["PIPELINE_SLICE_SKIP_REDISTRIBUTION"]
mindspore.set_auto_parallel_context(pipeline_config={"pipeline_interleave": True, "pipeline_scheduler": "zero_bubble_v"})
said["scheduler"] = refused("zero_bubble_v", Sizes(pp=2))
try:
    CaptureShards(nn.SGD(weights), norms=True, gradients=False, inject=False)
except RefusedRun as error:
    said["optimizer"] = "clone_state" in str(error)
print("shard_door", json.dumps(said))
