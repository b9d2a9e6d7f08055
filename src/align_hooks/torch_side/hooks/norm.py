"""The global norm where Megatron takes it: the gradients that go in, and the norm that comes out.

Seam: ``get_grad_norm_fp32``, which every optimizer calls. Its arguments are Megatron's own choice of the gradients that count,
each element once, by other rules than our parameter table's: if their exact norm is ours, no shard was lost or counted
twice. Megatron's norm may be far from exact: the fallback without Transformer Engine and Apex is an fp32 ``torch.norm``. So the norm of
this rank's gradients is taken a second time in Megatron's way, which tells a wrong norm from an inexact one.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable

import torch
from megatron.core.optimizer import clip_grads

from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result
from align_hooks.quantities.local_norms import LOCAL_NORMS
from align_hooks.torch_side.arrays import squared_sum
from align_hooks.torch_side.objects import Group
from align_hooks.torch_side.session import TorchSession


def wrap(session: TorchSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``get_grad_norm_fp32``, and note its gradients and its result on steps whose norms are wanted."""
    norm = wrapped(*args, **kwargs)
    injected = session.injection is not None and session.step in session.injection.steps
    if session.recording.wants(LOCAL_NORMS) and session.recording.writer is not None and not injected:
        with session.recording.surviving("the global norm"):
            call = inspect.signature(wrapped).bind(*args, **kwargs).arguments
            if call.get("norm_type", 2) == 2:
                session.taken.append({"norm": norm} | again(call["grads_for_norm"]) | ranks_of(call.get("grad_stats_parallel_group")))
    return norm


def again(gradients: torch.Tensor | Iterable[torch.Tensor]) -> dict[str, torch.Tensor]:
    """This rank's squared norm of the same gradients: as Megatron takes it, and as we do."""
    tensors = [gradients] if isinstance(gradients, torch.Tensor) else list(gradients)
    if not tensors:
        return dict.fromkeys(("same", "exact"), torch.zeros((), dtype=torch.float64))
    exact = torch.stack([squared_sum(gradient) for gradient in tensors]).sum()
    return {"same": as_megatron(tensors).double().reshape(()).square(), "exact": exact}


def as_megatron(gradients: list[torch.Tensor]) -> torch.Tensor:
    """The norm that Megatron's kernel takes of this rank's gradients.

    Megatron's fallback, ``local_multi_tensor_l2_norm``, fetches the norm of each tensor to the host; here the same norms are put
    together on the device.
    """
    if clip_grads.l2_norm_impl is getattr(clip_grads, "local_multi_tensor_l2_norm", None):
        return torch.stack([torch.norm(gradient) for gradient in gradients]).norm()
    overflow = torch.zeros(1, dtype=torch.int, device=gradients[0].device)
    norm: torch.Tensor = clip_grads.multi_tensor_applier(clip_grads.l2_norm_impl, overflow, [gradients], False)[0]
    return norm


def ranks_of(group: Group | None) -> dict[str, int]:
    """The number of the ranks whose squares Megatron adds up, and the lowest of these ranks."""
    if not torch.distributed.is_initialized():
        return {"first": 0, "ranks": 1}
    ranks = torch.distributed.get_process_group_ranks(group if group is not None else torch.distributed.group.WORLD)
    return {"first": min(ranks), "ranks": len(ranks)}
