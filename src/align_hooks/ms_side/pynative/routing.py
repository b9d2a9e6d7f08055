"""The routers of a PyNative model: their choices of experts, and recorded choices in their place.

Patch points: the return of ``TopKRouter.construct``, ``(weights, experts [sequence · rows, experts a token], counts)``, and the attribute
``topk`` of a router, by which it chooses groups and then experts. A hash layer chooses by a table of token ids instead.
"""

import functools

import mindspore
import numpy as np

from align_hooks.errors import RefusedRun
from align_hooks.hooking.hook import Args, Function, Kwargs, Result
from align_hooks.ms_side.model import built_class
from align_hooks.ms_side.objects import Cell, Tensor
from align_hooks.ms_side.session import MsSession
from align_hooks.names.blocks import Array
from align_hooks.quantities.batches import BATCHES
from align_hooks.quantities.routing import ROUTING
from align_hooks.replay.routing import Router
from align_hooks.settings import PREFIX

ROUTER = "TopKRouter"
REPLAY = f"{PREFIX}REPLAY_ROUTING"


def routers_of(session: MsSession, network: Cell) -> None:
    """Find the model's routers, and name them by their weights without ``.weight``; refuse what cannot be recorded or replayed."""
    assert session.parameters is not None
    names = {parameter.model.name: parameter.fused.pieces[0] for parameter in session.parameters}
    for _, cell in network.cells_and_names():
        if built_class(cell).__name__ == ROUTER:
            name = names.get(cell.weight.name, cell.weight.name).removesuffix(".weight")
            session.router_names[id(cell)] = name
            session.routers[name] = Router(int(cell.num_experts), int(cell.top_k))
            if session.routing is not None:
                if getattr(cell, "_debug_force_load_balance", False):
                    raise RefusedRun(f"{REPLAY}: moe_router_force_expert_balance gives {name} its experts in turn; set it to False")
                if not getattr(cell, "is_hash_layer", False):  # whose experts follow from the tokens
                    cell.topk = functools.partial(choose, session, cell.topk, name)
    asked = bool(session.settings.steps(ROUTING))
    if (asked or session.routing is not None) and not session.routers:
        raise RefusedRun(f"{f'{PREFIX}ROUTING' if asked else REPLAY}: this model has no {ROUTER}; unset it")


def wrap(session: MsSession, wrapped: Function, instance: Cell, args: Args, kwargs: Kwargs) -> Result:
    """Call ``TopKRouter.construct``, and keep its choice, on the device."""
    result = wrapped(*args, **kwargs)
    micro_batch = session.micro_batch
    wanted = session.recording.wants(BATCHES) or session.recording.wants(ROUTING)
    name = session.router_names.get(id(instance))
    if session.step is not None and micro_batch is not None and wanted and name is not None:
        micro_batch.experts.setdefault(name, result[1].detach())  # a pass that is recomputed chooses once more, and the same
    return result


def choose(session: MsSession, own: Function, name: str, x: Tensor, k: int, *args: object, **options: object) -> tuple[Tensor, Tensor]:
    """Return the recorded experts of the micro-batch, or what the router's own operator returns: for groups, and in other steps."""
    values, index = own(x, k, *args, **options)
    if session.routing is None or x.ndim != 2 or x.shape[1] != session.routers[name].experts:
        return values, index
    with session.recording.must_succeed():
        given = recorded_choice(session, name, session.routers[name], x.shape[0])
    if given is None:
        return values, index
    assert session.micro_batch is not None
    session.micro_batch.experts.setdefault(name, index.detach())  # recorded is what the router itself would choose
    by_position = given.transpose(1, 0, 2).reshape(-1, given.shape[2])
    return values, mindspore.Tensor(np.ascontiguousarray(by_position, np.int64))


def recorded_choice(session: MsSession, name: str, facts: Router, tokens: int) -> Array | None:
    """Return the recorded choice of the micro-batch, ``[rows, sequence, chosen]``; None in a step that is not replayed."""
    replay, current, step = session.routing, session.current, session.step
    if replay is None or current is None or step is None or step not in replay.steps:
        return None
    given = replay.experts(step, name, facts)[session.rows_of(len(current.micro_batches) - 1)]
    if given.shape[0] * given.shape[1] != tokens:
        raise RefusedRun(
            f"{REPLAY}={replay.source}: step {step} has a choice of {given.shape[0] * given.shape[1]} tokens in {name}, this run chooses "
            f"for {tokens}; train on the batches of that run"
        )
    replay.made.add(step)
    return given


def check_replay(session: MsSession, planned: range) -> None:
    """Refuse, before training, recorded experts that do not fit the model or the ``planned`` steps."""
    if session.routing is not None:
        config = session.config
        session.check_routing(
            session.routers | session.indexers, planned, int(config.training.global_batch_size) * int(config.model.seq_length)
        )
