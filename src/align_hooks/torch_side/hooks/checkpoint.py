"""A checkpoint of Megatron's, from which the job may be started again.

Patch point: ``save_checkpoint``, by which the training loop makes every checkpoint. The recorded steps are written first: a rank that is
killed after the checkpoint would lack some, and a job that resumes does not make them again.
"""

from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result
from align_hooks.torch_side.session import TorchSession


def wrap(session: TorchSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``save_checkpoint`` once the record is on disk."""
    session.recording.writing.drain()
    return wrapped(*args, **kwargs)
