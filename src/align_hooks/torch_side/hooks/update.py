"""The learning rate, the loss scale and the norm of the optimizer's step.

Patch point: ``step`` of the optimizer, which ``train_step`` calls. The learning rate is read before the call, for Megatron logs the
**next** step's rate, after the scheduler moved on; so is the loss scale, for ``prepare_grads`` updates it.
"""

import torch

from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result
from align_hooks.torch_side.hooks import own_loop
from align_hooks.torch_side.optimizer import leaf_optimizers
from align_hooks.torch_side.session import TorchSession


def wrap(session: TorchSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``MegatronOptimizer.step``, and keep its inputs and its norm before clipping."""
    if session.step is None or not session.recording.is_on:
        result = wrapped(*args, **kwargs)
        own_loop.end(session, instance, updated=bool(result[0]))
        return result
    with session.recording.isolate_failures("the update"):
        groups = [group for leaf in leaf_optimizers(instance) for group in leaf.optimizer.param_groups if group["params"]]
        rates = [float(group["lr"]) for group in groups]
        session.current.learning_rate = rates[0] if len(set(rates)) == 1 else rates
        session.current.update["loss_scale"] = instance.get_loss_scale().detach().clone()
    result = wrapped(*args, **kwargs)
    with session.recording.isolate_failures("the update"):
        clip, norm = instance.config.clip_grad, result[1]
        if not clip and session.parameters is not None:  # Megatron takes no norm: this rank's part of our own
            counted = ((each.fused, gradient) for each, gradient in session.parameters.gradients() if each.counted)
            session.current.update_norms, norm = session.parameters.counted_plan.norms(counted), None
        session.current.update |= {"grad_norm": norm.detach().clone() if isinstance(norm, torch.Tensor) else norm, "clip_grad": clip}
    own_loop.end(session, instance, updated=bool(result[0]))
    return result
