"""What a step of a MindFormers run starts from beside weights and moments (:mod:`align_hooks.record.format.state`, and of its random
generators :mod:`align_hooks.record.format.random_states`).

All of it is what a checkpoint holds: the optimizer's count of updates, from which MindFormers takes the learning rate too, the loss
scaler's counts, and what training moves without a gradient. MindFormers keeps no position of its data: it counts on from the step at which
it was resumed. What it was given then is told by the digest of a step's tokens.

MindSpore's default generator seeds all draws outside of a compiled graph, and those of ``mint`` inside it. Kernels of older operators keep
a state of their own, which cannot be read. Micro-batches are inside the compiled step, so their states cannot be read either.
"""

from __future__ import annotations

import mindspore
import numpy as np

from align_hooks.ms_side.arrays import number, to_numpy
from align_hooks.ms_side.model import Parameters
from align_hooks.ms_side.objects import Cell
from align_hooks.ms_side.optimizer import updates_made
from align_hooks.record.format.random_states import digest, of_python_and_numpy
from align_hooks.record.format.state import BUFFER, GROWTH, UPDATES


def at_step(cell: Cell, parameters: Parameters | None) -> dict[str, float | str]:
    """The numbers and digests that a step of a training cell starts from."""
    state: dict[str, float | str] = {UPDATES: float(updates_made(cell.optimizer))}
    scaler = getattr(cell, "loss_scaling_manager", None)
    if scaler is not None and hasattr(scaler, "cur_iter"):  # DynamicLossScaleUpdateCell
        state[GROWTH] = number(scaler.cur_iter) - number(scaler.last_overflow_iter)
    for buffer in parameters.buffers if parameters is not None else ():
        state[f"{BUFFER}{buffer.fused.native}"] = digest(to_numpy(buffer.model).tobytes())
    return state


def generators() -> dict[str, str]:
    """Name of each generator to the digest of its state, read at the start of every step; reading moves none."""
    digests = of_python_and_numpy() | {"mindspore seed": digest(repr(mindspore.get_seed()).encode())}
    if hasattr(mindspore, "get_rng_state"):  # from 2.3 on
        digests["mindspore"] = digest(np.ascontiguousarray(to_numpy(mindspore.get_rng_state())).tobytes())
    return digests
