"""MindFormers' trainer without a graph, which is refused before its first step.

Patch point: ``train`` of ``mindformers.pynative.trainer.Trainer`` (1.9, 2.1). It builds its own models and training step and never calls
``build_context`` or a training cell, where the other hooks are, so nothing would be recorded. It needs hyper-parallel, which the package
index lacks, and is untested.
"""

from align_hooks.errors import RefusedRun
from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result
from align_hooks.ms_side.session import MsSession


def refuse(session: MsSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Refuse the run, whatever was asked for."""
    raise RefusedRun(
        "mindformers.pynative.trainer.Trainer trains in PYNATIVE_MODE, where nothing can be recorded or changed; "
        "train by mindformers.Trainer with context.mode: 0 in the YAML, or unset the variables"
    )
