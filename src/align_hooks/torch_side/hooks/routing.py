"""A router's logits, and the experts of each token.

Patch point: ``TopKRouter.routing``, which returns the layer's final map of tokens to experts, after the choice of the highest scores,
groups, biases, fused kernels and dropped tokens. ``topk_routing_with_score_function`` runs before tokens are dropped, and has another call
in each version; the token dispatcher has permuted tokens. The logits are the argument: ``gating``, which makes them, is no module with
hooks. A replay needs the scores, which neither has: :class:`~align_hooks.torch_side.routing.RecordedExperts` stands at Megatron's own
replay.
"""

import torch

from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result
from align_hooks.quantities.batches import BATCHES
from align_hooks.quantities.routing import ROUTING
from align_hooks.torch_side.activations import router_logits
from align_hooks.torch_side.packing import rows_of
from align_hooks.torch_side.routing import are_captured, chosen_by, own_tokens, routing_map_of
from align_hooks.torch_side.session import TorchSession


def wrap(session: TorchSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``TopKRouter.routing``, record the numbers of its logits, and keep its own choice of experts, on the device."""
    logits = args[0] if args else kwargs["logits"]
    if session.current.probes is not None and session.recording.is_on:
        with session.recording.isolate_failures("activations"):
            router_logits(session, instance, logits)
    result = wrapped(*args, **kwargs)
    counted, kept = (session.recording.wants(kind) for kind in (BATCHES, ROUTING))
    name = session.routers.get(instance)
    trained = instance.training and torch.is_grad_enabled()  # a pass without gradients is an evaluation, or to be recomputed
    if name is None or not trained or not (counted or kept) or are_captured():
        return result
    with session.recording.isolate_failures("the experts of each token"):
        positions, rows = logits.shape[:2]
        of_all = routing_map_of(instance, result[0].detach(), result[1].detach())
        routing_map = own_tokens(of_all, positions * rows, session.place)
        if counted:
            session.current.attempt.expert_counts[name] = session.current.attempt.expert_counts.get(name, 0) + routing_map.sum(dim=0)
        if kept:
            chosen = chosen_by(instance, routing_map)
            if session.packed:
                of_rows = chosen.view(rows_of(session.place, positions), -1, chosen.shape[1])
            else:
                of_rows = chosen.view(positions, rows, -1).transpose(0, 1)
            session.current.attempt.chosen_experts.setdefault(name, []).append(of_rows)
    return result
