"""Megatron's global norm, and the gradients that it includes.

Patch point: ``get_grad_norm_fp32``, which every optimizer calls. Its arguments are Megatron's own choice of the gradients that count, each
element once, by other rules than our parameter table's: if their exact norm is ours, no shard was lost or counted twice. Our norms of these
tensors exist already, so nothing is read again.

Megatron's norm may be far from exact: without Transformer Engine and Apex it is an fp32 ``torch.norm``. So this rank's norm by Megatron's
kernel is kept too, which distinguishes a wrong norm from an inexact one. The kernel is called by ``multi_tensor_applier``, under that name
of the module in 0.9 to 0.19.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from megatron.core.optimizer import clip_grads

from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result, bound
from align_hooks.quantities.local_norms import LOCAL_NORMS
from align_hooks.torch_side.arrays import bypass_device_rewriting
from align_hooks.torch_side.fully_sharded import is_sharded, shard
from align_hooks.torch_side.objects import Group
from align_hooks.torch_side.session import FrameworkNorm, TorchSession


def wrap(session: TorchSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``get_grad_norm_fp32``, and note its gradients and its result on steps whose norms are wanted."""
    injected = session.injection is not None and session.step in session.injection.steps
    if not session.recording.wants(LOCAL_NORMS) or session.recording.writer is None or injected:
        return wrapped(*args, **kwargs)
    with listened(session) as heard:
        norm = wrapped(*args, **kwargs)
    with session.recording.isolate_failures("the global norm"), bypass_device_rewriting(session):
        call = bound(wrapped, args, kwargs).arguments
        if call.get("norm_type", 2) == 2:
            included = call["grads_for_norm"]
            given = [included] if isinstance(included, torch.Tensor) else list(included)
            first, ranks = ranks_of(call.get("grad_stats_parallel_group"), given)
            tensors = [shard(tensor) for tensor in given]
            known = frozenset((tensor.data_ptr(), tensor.numel()) for tensor in tensors)
            taken = FrameworkNorm(norm, again(heard, tensors), *places(session, tensors), first, ranks, known)
            # an optimizer may ask for a norm again, which is no further part of the global one
            if not any(map(taken.repeats, session.current.framework_norms)):
                session.current.framework_norms.append(taken)
    return norm


@contextmanager
def listened(session: TorchSession) -> Iterator[list[torch.Tensor]]:
    """Collect the norms that Megatron's kernel returns to ``multi_tensor_applier``."""
    heard: list[torch.Tensor] = []
    applier = clip_grads.multi_tensor_applier

    def listening(kernel: Callable[..., Result], *args: object) -> Result:
        result = applier(kernel, *args)
        with session.recording.isolate_failures("the global norm"):
            if kernel is clip_grads.l2_norm_impl:
                heard.append(result[0].detach().clone())
        return result

    clip_grads.multi_tensor_applier = listening
    try:
        yield heard
    finally:
        clip_grads.multi_tensor_applier = applier


def again(heard: list[torch.Tensor], tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return this rank's norm as Megatron computed it, or compute it again by Megatron's kernel."""
    if len(heard) == 1 or not tensors:
        return heard[0] if heard else torch.zeros(1)
    overflow = torch.zeros(1, dtype=torch.int, device=tensors[0].device)
    norm: torch.Tensor = clip_grads.multi_tensor_applier(clip_grads.l2_norm_impl, overflow, [tensors], False)[0]
    return norm


def places(session: TorchSession, tensors: Iterable[torch.Tensor]) -> tuple[list[int], torch.Tensor]:
    """Return the indices of tensors among the gradients whose norms we computed, and the squared norm of all other tensors."""
    known = {(gradient.data_ptr(), gradient.numel()): index for index, (_, gradient) in enumerate(session.current.gradients)}
    found, others = [], torch.zeros((), dtype=torch.float64)
    for tensor in tensors:
        place = known.get((tensor.data_ptr(), tensor.numel()))
        if place is not None:
            found.append(place)
        elif tensor.numel():
            others = others.to(tensor.device) + torch.linalg.vector_norm(tensor, dtype=torch.float64).square()
    return found, others


def ranks_of(group: Group | None, gradients: Sequence[torch.Tensor] = ()) -> tuple[int, int]:
    """Return the lowest of the ranks whose squares Megatron adds up, and their number."""
    if not torch.distributed.is_initialized():
        return 0, 1
    ranks = torch.distributed.get_process_group_ranks(group if group is not None else torch.distributed.group.WORLD)
    if any(map(is_sharded, gradients)):  # over the shards too: with the group, which is of the model's other axes, these are all ranks
        return 0, torch.distributed.get_world_size()
    return min(ranks), len(ranks)
