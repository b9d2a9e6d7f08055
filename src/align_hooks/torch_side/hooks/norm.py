"""The global norm where Megatron takes it: of which gradients, and what came out.

Seam: ``get_grad_norm_fp32``, which every optimizer calls. Its arguments are Megatron's own choice of the gradients that count,
each element once, made by other rules than our parameter table: if their exact norm is ours, no shard was lost or counted
twice. Its result may be far from exact (the fallback without Transformer Engine and Apex is an fp32 ``torch.norm``), so it is
taken a second time in the same way, on this rank's gradients, which tells a wrong norm from an inexact one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from megatron.core.optimizer import clip_grads

from align_hooks.quantities.local_norms import LOCAL_NORMS
from align_hooks.torch_side.arrays import squared_sum
from align_hooks.torch_side.session import TorchSession


def wrap(session: TorchSession) -> Callable[..., Any]:
    """A wrapper of ``get_grad_norm_fp32`` that notes what it was given and returned, on steps whose norms are wanted."""

    def around(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        norm = wrapped(*args, **kwargs)
        injected = session.injection is not None and session.step in session.injection.steps
        if session.recording.wants(LOCAL_NORMS) and session.recording.writer is not None and not injected:
            with session.recording.surviving("the global norm"):
                given = inspect.signature(wrapped).bind(*args, **kwargs).arguments
                if given.get("norm_type", 2) == 2:
                    session.taken.append({"norm": norm} | again(given["grads_for_norm"]) | ranks_of(given.get("grad_stats_parallel_group")))
        return norm

    return around


def again(gradients: Any) -> dict[str, torch.Tensor]:
    """This rank's squared norm of the same gradients: as Megatron takes it, and as we do."""
    found = [gradients] if isinstance(gradients, torch.Tensor) else list(gradients)
    device = found[0].device if found else "cpu"
    same = exact = torch.zeros((), dtype=torch.float64, device=device)
    if found:
        same = as_megatron(found).double().reshape(()).square()
        exact = torch.stack([squared_sum(gradient) for gradient in found]).sum()
    return {"same": same, "exact": exact}


def as_megatron(gradients: list[torch.Tensor]) -> torch.Tensor:
    """The norm that Megatron's kernel takes of this rank's gradients.

    Its fallback, ``local_multi_tensor_l2_norm``, fetches the norm of each tensor to the host: the same norms are put together here on
    the device.
    """
    if clip_grads.l2_norm_impl is getattr(clip_grads, "local_multi_tensor_l2_norm", None):
        return torch.stack([torch.norm(gradient) for gradient in gradients]).norm()
    overflow = torch.zeros(1, dtype=torch.int, device=gradients[0].device)
    norm: torch.Tensor = clip_grads.multi_tensor_applier(clip_grads.l2_norm_impl, overflow, [gradients], False)[0]
    return norm


def ranks_of(group: Any) -> dict[str, int]:
    """Which ranks' squares Megatron adds up: their number, and the lowest of them."""
    if not torch.distributed.is_initialized():
        return {"first": 0, "ranks": 1}
    ranks = torch.distributed.get_process_group_ranks(group if group is not None else torch.distributed.group.WORLD)
    return {"first": min(ranks), "ranks": len(ranks)}
