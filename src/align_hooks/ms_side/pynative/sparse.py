"""The positions that sparse attention chooses for each token, recorded and replayed as the experts of tokens are.

Patch points: the return of ``CSAIndexer.construct`` (DeepSeek-V4), ``(positions [rows, sequence, chosen], their scores)``, and the
attribute ``topk`` of an indexer, by which it chooses without fused kernels. An early token has fewer positions behind it than are chosen;
the others, which attention masks, are recorded as the lowest that are not chosen, so that a choice is a set.
"""

import functools

import mindspore
import numpy as np
from mindspore import mint
from mindspore.graph.api import _no_grad

from align_hooks.errors import RefusedRun
from align_hooks.hooking.hook import Args, Function, Kwargs, Result
from align_hooks.ms_side.arrays import to_numpy
from align_hooks.ms_side.model import MINDFORMERS, built_class
from align_hooks.ms_side.objects import Cell, Tensor
from align_hooks.ms_side.pynative.routing import recorded_choice
from align_hooks.ms_side.session import MsSession
from align_hooks.names.blocks import Array
from align_hooks.quantities.routing import ROUTING
from align_hooks.replay.routing import Router
from align_hooks.settings import PREFIX

INDEXER = "CSAIndexer"
MASKED = -1e30
"""The score from which on a position is one that the token may see."""
MOST = np.iinfo(np.int16).max
"""Positions that a record can number."""


def indexers_of(session: MsSession, network: Cell) -> None:
    """Find the model's indexers, and name them by their place in the model; refuse a replay of what fused kernels choose."""
    length = int(session.config.model.seq_length)
    for place, cell in network.cells_and_names():
        keys = length // int(cell.compress_ratio) if built_class(cell).__name__ == INDEXER else 0
        if not 0 < keys <= MOST:
            continue
        name = f"{MINDFORMERS}:{place.removeprefix('model.')}"
        session.router_names[id(cell)] = name
        session.indexers[name] = Router(keys, min(int(cell.index_topk), keys))
        if session.routing is not None:
            if cell.apply_dsa_kernel_fusion:
                raise RefusedRun(f"{PREFIX}REPLAY_ROUTING: {place} chooses in a fused kernel; set apply_dsa_kernel_fusion: False")
            cell.topk = functools.partial(choose, session, cell.topk, name)


def wrap(session: MsSession, wrapped: Function, instance: Cell, args: Args, kwargs: Kwargs) -> Result:
    """Call ``CSAIndexer.construct``, and keep its choice, on the device."""
    result = wrapped(*args, **kwargs)
    micro_batch = session.micro_batch
    name = session.router_names.get(id(instance))
    if session.step is not None and micro_batch is not None and name is not None and session.recording.wants(ROUTING):
        micro_batch.positions.setdefault(name, (result[0].detach(), result[1].detach()))
    return result


def choose(session: MsSession, own: Function, name: str, x: Tensor, k: int, dim: int = -1) -> tuple[Tensor, Tensor]:
    """Return the recorded positions of the micro-batch with their scores, or what the indexer's own operator returns."""
    scores, positions = own(x, k=k, dim=dim)
    with session.recording.must_succeed():
        given = recorded_choice(session, name, session.indexers[name], x.shape[0] * x.shape[1])
        if given is None:
            return scores, positions
        assert session.micro_batch is not None
        session.micro_batch.positions.setdefault(name, (positions.detach(), scores.detach()))  # the indexer's own
        index = mindspore.Tensor(np.ascontiguousarray(given.reshape(*x.shape[:2], k), np.int64))
    return mint.gather(x, 2, index), index


def chosen(positions: Tensor, scores: Tensor) -> Array:
    """Return a choice on the host, int16 ``[rows, sequence, chosen]``, ascending."""
    with _no_grad():
        index, seen = to_numpy(positions).astype(np.int64), to_numpy(scores) > MASKED
    count = index.shape[-1]
    flat, visible = index.reshape(-1, count), seen.reshape(-1, count)
    for token in np.flatnonzero(~visible.all(axis=1)):
        taken = flat[token][visible[token]]
        free = np.setdiff1d(np.arange(2 * count), taken)  # as many as are missing, whatever is taken
        flat[token] = np.concatenate([taken, free[: count - len(taken)]])
    return np.sort(index, axis=2).astype(np.int16)
