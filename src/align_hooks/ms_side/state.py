"""The state at a step's start beside weights and moments (:mod:`~align_hooks.record.format.state` and its ``random_states``).

A checkpoint holds all of it: the optimizer's count of updates, which is also the position of the learning rate, the loss scaler's counts,
and buffers that training moves. MindFormers keeps no position of its data; the digest of a step's tokens shows them.

MindSpore's default generator seeds all draws outside a compiled graph, and draws of ``mint`` inside. The states of older operators'
kernels, and of micro-batches inside the compiled step, cannot be read.
"""

import functools

import mindspore

from align_hooks.ms_side.arrays import number, to_numpy
from align_hooks.ms_side.model import CellParameters
from align_hooks.ms_side.objects import Cell, Optimizer
from align_hooks.ms_side.optimizer import updates_made
from align_hooks.ms_side.session import MsSession
from align_hooks.record.format.random_states import PythonAndNumpy, digest
from align_hooks.record.format.state import BUFFER, GROWTH, UPDATES

PYTHON_AND_NUMPY = PythonAndNumpy()


def at_step(optimizer: Optimizer, parameters: CellParameters | None, scaler: Cell = None) -> dict[str, float | str]:
    """Return the counts and digests at a step's start; ``scaler`` is the Cell that moves a loss scale."""
    state: dict[str, float | str] = {UPDATES: float(updates_made(optimizer))}
    if scaler is not None and hasattr(scaler, "cur_iter"):  # DynamicLossScaleUpdateCell
        state[GROWTH] = number(scaler.cur_iter) - number(scaler.last_overflow_iter)
    for buffer in parameters.buffers if parameters is not None else ():
        state[f"{BUFFER}{buffer.fused.native}"] = digest(to_numpy(buffer.model))
    return state


def keep(session: MsSession, optimizer: Optimizer, scaler: Cell = None) -> None:
    """Keep the digests of the generators, and the counts, for the row of the step that begins."""
    best_effort, read = session.recording.best_effort, functools.partial(at_step, optimizer, session.parameters, scaler)
    session.random = best_effort("the random states", generators, {})
    session.state = best_effort("the state that the step starts from", read, {})


def generators() -> dict[str, str]:
    """Map each generator to the digest of its state, without advancing it."""
    digests = PYTHON_AND_NUMPY.read() | {"mindspore seed": digest(repr(mindspore.get_seed()).encode())}
    if hasattr(mindspore, "get_rng_state"):  # from 2.3 on
        digests["mindspore"] = digest(to_numpy(mindspore.get_rng_state()))
    return digests
