"""The optimizer's step: the learning rate it used, the norm it clipped by, the loss scale it divided by.

Seam: ``step`` of the optimizer that ``train_step`` calls. Megatron logs the **next** step's learning rate, read after
the scheduler moved on; before this call it is still the one that will be used. The loss scale is likewise read before:
``prepare_grads`` updates it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from align_hooks.torch_side.arrays import squared_sum
from align_hooks.torch_side.optimizer import leaf_optimizers
from align_hooks.torch_side.session import TorchSession


def wrap(session: TorchSession) -> Callable[..., Any]:
    """A wrapper of ``MegatronOptimizer.step`` that notes its inputs and its norm."""

    def around(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        if session.step is None or not session.recording.is_on:
            return wrapped(*args, **kwargs)
        with session.recording.surviving("the update"):
            before(session, instance)
        result = wrapped(*args, **kwargs)
        with session.recording.surviving("the update"):
            after(session, instance, result[1])
        return result

    return around


def before(session: TorchSession, optimizer: Any) -> None:
    """Note what the update will use."""
    groups = [group for leaf in leaf_optimizers(optimizer) for group in leaf.optimizer.param_groups if group["params"]]
    session.update |= {"learning_rate": _one([group["lr"] for group in groups]), "loss_scale": optimizer.get_loss_scale().detach().clone()}


def after(session: TorchSession, optimizer: Any, norm: Any) -> None:
    """Note the norm before clipping, which Megatron takes only where it clips: otherwise it is ours, each rank's part of it here."""
    clip = optimizer.config.clip_grad
    if not clip and session.parameters is not None:
        counted = [squared_sum(gradient) for parameter, gradient in session.parameters.gradients() if parameter.counted]
        session.update |= {"squared": torch.stack(counted).sum() if counted else 0.0}
        norm = None
    session.update |= {"grad_norm": norm.detach().clone() if isinstance(norm, torch.Tensor) else norm, "clip_grad": clip}


def _one(rates: list[Any]) -> float | list[float]:
    """The learning rate, or one a group where groups differ."""
    numbers = [float(rate) for rate in rates]
    return numbers[0] if len(set(numbers)) == 1 else numbers
