"""MindFormers' trainer without a graph, which is refused before its first step.

Seam: ``train`` of ``mindformers.pynative.trainer.Trainer`` (1.9, 2.1). It builds its own models and its own training step and never comes
to ``build_context`` or to a training cell, where the other hooks are: it would train to its end, and nothing would be recorded. It needs
hyper-parallel, which the package index has not, so nothing of it could be tried.
"""

from __future__ import annotations

from align_hooks.errors import RefusedRun
from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result
from align_hooks.ms_side.session import MsSession


def refuse(session: MsSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Refuse the run, whatever was asked for."""
    raise RefusedRun(
        "mindformers.pynative.trainer.Trainer trains in PYNATIVE_MODE, where nothing can be recorded or changed; "
        "train by mindformers.Trainer with context.mode: 0 in the YAML, or unset the variables"
    )
