"""The routers of MindFormers' newer models: their choices of experts, and recorded choices in their place.

Patch point: the operators ``topk`` and ``afb_topk`` of a ``TopKRouter`` (1.9), which choose groups of experts and then experts. Later code
is inside ``construct``, which graph mode compiles from its text; the token dispatcher has permuted the tokens. As in
:mod:`align_hooks.ms_side.reducer` a Cell of ours is compiled in the place of the original, from the first ``on_train_step_begin`` on, which
has the batch of the graph. Tokens are ``[1, rows · sequence, …]``, row by row, so the model must be called with the full batch.
"""

from collections.abc import Callable

import mindspore
import numpy as np
from mindspore import Parameter, nn, ops

from align_hooks.errors import RefusedRun
from align_hooks.ms_side.choice import UNTOUCHED, Choice
from align_hooks.ms_side.model import Model, model_of
from align_hooks.ms_side.objects import Cell
from align_hooks.ms_side.own_parameters import own_array, set_unregistered, switch
from align_hooks.ms_side.session import MsSession
from align_hooks.ms_side.token_losses import is_called_whole
from align_hooks.quantities.batches import BATCHES
from align_hooks.quantities.routing import ROUTING
from align_hooks.replay.routing import Router
from align_hooks.settings import PREFIX

ROUTER = "TopKRouter"
CHOOSE = ("topk", "afb_topk")
"""The operators of a router that choose; the second where it has a bias and no groups."""
REPLAY = f"{PREFIX}REPLAY_ROUTING"


class Choose(nn.Cell):
    """Calls an operator that chooses, keeps its choice, and may replace it by given experts.

    A router calls the Cell with the scores of its experts, ``[1, tokens, experts]``, after a call with the scores of groups, if any; scores
    of experts outside the chosen groups are then 0. A router with groups and no bias weighs experts by these scores, so the Cell returns
    the groups of the given experts, one for each, and the router's own choice is neither seen nor kept."""

    kept: Parameter
    given: Parameter
    giving: Parameter

    def __init__(self, original: Cell, choice: Choice, *, keeps: bool, gives: bool) -> None:
        super().__init__(auto_prefix=False)
        self.original = original
        self.experts, self.chosen = choice.facts.experts, choice.facts.chosen
        self.group_size = choice.facts.experts // max(choice.groups, 1)
        self.gives, self.gives_groups = gives, gives and choice.is_led
        self.keeps = keeps and not self.gives_groups
        self.shape = tuple(choice.kept.shape)
        self.select, self.gather, self.assign, self.cast = ops.Select(), ops.GatherD(), ops.Assign(), ops.Cast()
        self.cat = ops.Concat(axis=2)
        set_unregistered(self, kept=choice.kept, given=choice.given, giving=choice.giving)

    def construct(self, scores, count):  # type: ignore[no-untyped-def]
        """Return the highest scores and their indices, or those of the given experts; compiled from this text."""
        values, index = self.original(scores, count)
        if scores.shape[2] == self.experts:
            if self.keeps and index.shape == self.shape:
                index = ops.depend(index, self.assign(self.kept, self.cast(index, mindspore.int32)))
            if self.gives:
                values = self.select(self.giving, self.gather(scores, 2, self.given), values)
                index = self.select(self.giving, self.cast(self.given, index.dtype), index)
        elif self.gives_groups:
            own = index
            for _ in range(self.chosen - count):
                own = self.cat((own, index[:, :, :1]))
            index = self.select(self.giving, self.cast(self.given // self.group_size, index.dtype), own)
        return values, index


def routers(model: Model) -> list[Cell]:
    """Return the routers of a model, in the order of its Cells."""
    return [cell for _, cell in model.network.cells_and_names() if type(cell).__name__ == ROUTER]


def groups_of(router: Cell) -> int:
    """Return the number of a router's groups of experts; 0 without groups, as before MindFormers 1.8."""
    return int(router.num_groups) if getattr(router, "enable_group_limited", False) else 0


def is_led(router: Cell) -> bool:
    """Return whether a router has groups, and weighs experts by the scores of their choice."""
    return bool(groups_of(router)) and not getattr(router, "moe_router_enable_expert_bias", False)


def refuse_unrouted(session: MsSession) -> None:
    """Refuse, before training, to record or replay routing without experts, or in a job that routes parts of a batch."""
    asked = bool(session.settings.steps(ROUTING))
    if not asked and session.routing is None:
        return
    variable, found = f"{PREFIX}ROUTING" if asked else REPLAY, routers(model_of(session.train_cell))
    if not found:
        raise RefusedRun(f"{variable}: this model has no {ROUTER}; unset it")
    if asked and session.routing is not None and any(map(is_led, found)):
        raise RefusedRun(f"{PREFIX}ROUTING beside {REPLAY}: routers with groups and no bias do not show their own choice; unset the first")
    if session.sizes is not None or session.launch.world_size > 1 or not is_called_whole(session.train_cell):
        raise RefusedRun(f"{variable} is for a job of MindFormers on one device, whose model is called with the whole batch; unset it")


def choices_of(session: MsSession, tokens: Callable[[], int]) -> list[Choice]:
    """Put Cells into all routers for a batch of ``tokens()`` tokens, and return their choices; empty where none is kept or given."""
    settings, model = session.settings, model_of(session.train_cell)
    keeps = bool(settings.steps(BATCHES) or settings.steps(ROUTING)) and session.recording.writer is not None
    gives = session.routing is not None
    if not (keeps or gives) or not is_called_whole(session.train_cell):
        return []
    found = named(session, model)
    count = tokens() if found else 0
    choices = []
    for name, router in found.items():
        facts = facts_of(router)
        shape = (1, count, facts.chosen)
        kept = own_array(f"experts.{name}", np.full(shape, UNTOUCHED, np.int32))
        given = own_array(f"given.{name}", np.zeros(shape, np.int32))
        choice = Choice(name, facts, groups_of(router), is_led(router), kept, given, giving=switch(f"giving.{name}"))
        for operator in CHOOSE:
            if hasattr(router, operator):
                setattr(router, operator, Choose(getattr(router, operator), choice, keeps=keeps, gives=gives))
        choices.append(choice)
    return choices


def named(session: MsSession, model: Model) -> dict[str, Cell]:
    """Map the names of routers' weights, without ``.weight``, to the routers, in the order of the model's Cells."""
    assert session.parameters is not None
    found = {}
    for router in routers(model):
        fused = model.fused(router.weight.name, router.weight.shape, session.parameters.dims)
        name = next(iter(fused.pieces)) if fused is not None else router.weight.name
        found[name.removesuffix(".weight")] = router
    return found


def facts_of(router: Cell) -> Router:
    """Return a router's numbers of experts and of chosen experts; raise RefusedRun where groups and experts are equally many."""
    facts = Router(int(router.expert_dim), int(router.num_experts_chosen))
    if groups_of(router) == facts.experts:
        raise RefusedRun(f"{router.weight.name}: as many groups as experts; set moe_router_num_groups to 1, which is the same")
    return facts


def check_replay(session: MsSession, planned: range, tokens: int | None) -> None:
    """Refuse, before training, recorded experts that do not fit the model or the ``planned`` steps of ``tokens``, if known."""
    if session.routing is not None:
        found = named(session, model_of(session.train_cell))
        session.check_routing({name: facts_of(router) for name, router in found.items()}, planned, tokens)


def give_experts(session: MsSession, step: int) -> None:
    """Send the tokens of a step to the recorded experts; in a step that is not replayed the routers choose."""
    replay = session.routing
    if replay is None:
        return
    replayed = step in replay.steps
    for choice in session.choices:
        experts = replay.experts(step, choice.name, choice.facts) if replayed else None
        if experts is not None and experts.size != choice.given.size:
            raise RefusedRun(
                f"{REPLAY}={replay.source}: step {step} has experts of {experts.shape[0] * experts.shape[1]} tokens in {choice.name}, "
                f"this run routes {choice.given.shape[1]}; train on the batches of that run"
            )
        choice.give(experts)
    if replayed:
        replay.made.add(step)
