"""A checkpoint of Megatron's, from which the job may be started again.

Seam: ``save_checkpoint``, through which the training loop makes every checkpoint. Its steps are written before it is made: a rank that
is killed after it would lack the last of them, and the start that resumes from it makes later steps alone.
"""

from __future__ import annotations

from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result
from align_hooks.torch_side.session import TorchSession


def wrap(session: TorchSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``save_checkpoint`` once the record is on disk."""
    session.recording.writing.drain()
    return wrapped(*args, **kwargs)
