"""The routers of a built Megatron model: their names, their choices of experts, and recorded choices in their place."""

from collections.abc import Mapping

import torch
from megatron.core.transformer.moe.router import TopKRouter

from align_hooks.errors import RefusedRun
from align_hooks.names.blocks import Array
from align_hooks.quantities.routing import ROUTING
from align_hooks.record.format.sequence import Slices, part_of, positions_of
from align_hooks.record.write.step_files import StepChoices
from align_hooks.replay.routing import Router, RoutingReplay
from align_hooks.settings import PREFIX
from align_hooks.torch_side.arrays import to_numpy
from align_hooks.torch_side.model import Parameters
from align_hooks.torch_side.objects import Module
from align_hooks.torch_side.place import first_row, rank_slices, rows_of_step
from align_hooks.torch_side.refusals import captured
from align_hooks.torch_side.run_arguments import get_args
from align_hooks.torch_side.session import TorchSession

REPLAY = f"{PREFIX}REPLAY_ROUTING"
OTHERWISE = {"sinkhorn": "--moe-router-load-balancing-type sinkhorn", "quantile_balancing": "quantile balancing"}
"""Megatron's ways to choose experts other than by the highest scores."""


def routers_of(chunks: tuple[Module, ...], parameters: Parameters) -> dict[Module, str]:
    """Map this rank's routers to the names of their weights without ``.weight``."""
    names = {id(parameter.model): next(iter(parameter.whole.pieces)) for parameter in parameters if len(parameter.whole.pieces) == 1}
    routers = (module for chunk in chunks for module in chunk.modules() if isinstance(module, TopKRouter))
    return {router: names[id(router.weight)].removesuffix(".weight") for router in routers if id(router.weight) in names}


def routing_map_of(router: Module, weights: torch.Tensor, routing_map: torch.Tensor) -> torch.Tensor:
    """Return the bool map ``[tokens, experts]`` of a router's own choice, from the weights and the map that the router returned."""
    own = router.router_replay.own if isinstance(getattr(router, "router_replay", None), RecordedExperts) else None
    if own is not None:
        return torch.zeros_like(routing_map, dtype=torch.bool).scatter(1, own, True)
    # experts filled up to their capacity have tokens of weight 0
    return routing_map.bool() & (weights != 0) if router.config.moe_pad_expert_input_to_capacity else routing_map


def own_tokens(routing_map: torch.Tensor, tokens: int, place: Mapping[str, int]) -> torch.Tensor:
    """Return the rows of a map ``[tokens, experts]`` that are this rank's own ``tokens``."""
    if len(routing_map) == tokens:
        return routing_map
    # with --moe-token-dispatcher-type alltoall_seq a router gathers the logits of all tensor-parallel ranks, rank after rank
    if len(routing_map) != tokens * place["tp_size"]:
        raise RefusedRun(
            f"a router chose the experts of {len(routing_map)} tokens, this rank has {tokens}; choose another token dispatcher"
        )
    return routing_map[tokens * place["tp"] : tokens * (place["tp"] + 1)]


def are_captured() -> bool:
    """Return whether CUDA graphs replay the layers with experts; a hook of a router then runs only while its graph is captured."""
    args = get_args()
    return bool(args.num_experts and captured(lambda name: getattr(args, name, None)))


def refuse_unrouted(session: TorchSession) -> None:
    """Refuse to record or replay the routing of a model that has no experts on any rank, or passes a router several times."""
    args, asked = get_args(), bool(session.settings.steps(ROUTING))
    if not asked and session.routing is None:
        return
    variable = f"{PREFIX}ROUTING" if asked else REPLAY
    if not args.num_experts:
        raise RefusedRun(f"{variable}: this model has no experts; unset it")
    if getattr(args, "mtp_use_repeated_layer", False) and (args.mtp_num_layers or 0) > 1:
        raise RefusedRun(f"{variable}: --mtp-use-repeated-layer passes a router several times a micro-batch; drop it, or unset {variable}")


def chosen_by(router: Module, routing_map: torch.Tensor) -> torch.Tensor:
    """Convert a bool map ``[tokens, experts]`` to each token's experts, int16 ``[tokens, experts a token]``, ascending, -1 for none."""
    experts = routing_map.shape[1]
    backwards = torch.arange(experts, 0, -1, dtype=torch.int16, device=routing_map.device)
    highest = torch.where(routing_map.bool(), backwards, torch.zeros_like(backwards)).topk(router.topk, dim=1).values
    return torch.where(highest > 0, experts - highest, torch.full_like(highest, -1))


def routed_slices(session: TorchSession) -> Slices | None:
    """Return the slices [start, stop) of the sequence that this rank routes; None for all positions."""
    place, args = session.place, get_args()
    cut = place["tp_size"] if args.sequence_parallel else 1
    return None if place["cp_size"] == cut == 1 else part_of(rank_slices(place, args.seq_length), place["tp"] if cut > 1 else 0, cut)


def choices(session: TorchSession) -> StepChoices | None:
    """Return the experts of the ended step's tokens, on the host; raise RefusedRun where this rank has routers and none was seen."""
    chosen = session.current.attempt.chosen_experts
    if session.routers and not chosen:
        raise RefusedRun(f"{PREFIX}ROUTING: no router was seen to choose in this step; a captured graph replays it without Python")
    experts = {name: to_numpy(torch.cat(parts)) for name, parts in chosen.items()}
    return StepChoices(experts, [len(part) for part in next(iter(chosen.values()), [])], routed_slices(session))


class RecordedExperts:
    """Takes the place of a router's ``router_replay``, of which Megatron requests experts once a forward pass."""

    def __init__(self, session: TorchSession, replay: RoutingReplay, router: Module, name: str) -> None:
        self.session, self.replay, self.router, self.name = session, replay, router, name
        self.own: torch.Tensor | None = None  # the router's own choice in the last replayed pass, for the record
        self.facts = Router(int(router.config.num_moe_experts), int(router.topk))

    def get_replay_topk(self, scores, topk, num_groups=None, group_topk=None, default_compute_topk=None):  # type: ignore[no-untyped-def]
        """Return scores and numbers of the recorded experts, or the router's own choice in a step that is not replayed."""
        session, step = self.session, self.session.step
        own = default_compute_topk(scores, topk, num_groups=num_groups, group_topk=group_topk)
        self.own = None
        if step is None or step not in self.replay.steps or not self.router.training:
            return own
        self.own = own[1]
        pass_of = (self.name, torch.is_grad_enabled())  # recomputed micro-batches have a second pass, with gradients, in the same order
        experts = self.experts(step, session.current.attempt.passes[pass_of], len(scores))
        session.current.attempt.passes[pass_of] += 1
        self.replay.made.add(step)
        chosen = torch.from_numpy(experts.astype("int64")).to(scores.device)
        return scores.gather(1, chosen), chosen

    def experts(self, step: int, micro_batch: int, tokens: int) -> Array:
        """Return the experts of a micro-batch's tokens on this rank, ``[tokens, experts a token]``, in the order position, row; of packed
        samples in the order row, position."""
        rows = get_args().micro_batch_size
        first = first_row(self.session.place, micro_batch, rows)
        layer = self.replay.experts(step, self.name, self.facts)[first : first + rows]
        slices = routed_slices(self.session)
        layer = layer if slices is None else layer[:, positions_of(slices)]
        ordered = layer if self.session.packed else layer.transpose(1, 0, 2)
        experts = ordered.reshape(-1, layer.shape[2])
        if len(experts) != tokens:
            raise RefusedRun(
                f"{REPLAY}={self.replay.source}: step {step} has experts of {len(experts)} tokens of micro-batch {micro_batch} "
                f"in {self.name}, this run routes {tokens}; train on the batches of that run, in its order"
            )
        return experts


def give_experts(session: TorchSession, planned: range) -> None:
    """Give every router of this rank the recorded experts in the ``planned`` steps; refuse, before training, what cannot be replayed."""
    args, replay = get_args(), session.routing
    if replay is None:
        return
    for router in session.routers:
        if not hasattr(router, "router_replay"):
            raise RefusedRun(f"{REPLAY}: routers of this Megatron-LM ask for no recorded experts; use 0.16 or newer, or unset it")
        if otherwise := OTHERWISE.get(str(getattr(router, "routing_type", ""))):
            raise RefusedRun(f"{REPLAY}: {otherwise} chooses experts otherwise; choose another, or unset {REPLAY}")
        if router.config.moe_router_fusion:
            router.config.moe_router_fusion = False
            session.override("moe_router_fusion", True, False, f"{REPLAY}: the fused router asks for no recorded experts")
    replays = {router: RecordedExperts(session, replay, router, name) for router, name in session.routers.items()}
    rows = rows_of_step(args)
    tokens = None if rows is None else rows * args.seq_length
    session.check_routing({item.name: item.facts for item in replays.values()}, planned, tokens)
    for router, item in replays.items():
        router.router_replay = item
