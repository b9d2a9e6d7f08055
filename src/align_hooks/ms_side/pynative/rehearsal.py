"""The PyNative trainer on a machine with no accelerator: plain operators in the place of those that MindSpore's CPU lacks.

Patch point: the names of MindSpore that models take when they are built, and those that modules of MindFormers took when they were
imported. Nothing is replaced before a PyNative trainer is being made, as the static graph compiles the originals.
"""

import sys

import mindspore

from align_hooks.ms_side.objects import Cell
from align_hooks.ms_side.pynative.operators import twins
from align_hooks.ms_side.session import MsSession

WHY = "ALIGN_HOOKS_DEVICE=cpu"
PACKAGE = "mindformers"


def rehearse(session: MsSession) -> None:
    """Choose the CPU, and put the operators in place, logged for undoing."""
    mindspore.set_device("CPU")
    # kernels that run behind the next operator's back read memory that it has freed already
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE, pynative_synchronize=True)
    named, replace = set(), session.patch_log.replace
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == PACKAGE]
    for owner, name, twin, _ in list(twins()):
        original = getattr(owner, name, None)
        replace(owner, name, twin)
        named.add(name)
        for module in modules if original is not None else ():
            for alias in [alias for alias, held in vars(module).items() if held is original]:
                replace(module, alias, twin)
    from mindformers.pynative.transformers.attention import Attention

    # it repeats keys as if they were [batch, heads, ...]; the operator takes keys that queries share
    replace(Attention, "_repeat_kv", lambda attention, x, repeats: x)
    session.override(f"{len(named) + 1} operators of MindSpore", "no kernel or a wrong one", "plain ones of the same arithmetic", WHY)


def contiguous(network: Cell) -> None:
    """Have gradients stored row by row: one that comes through a view is otherwise added up in the wrong order from the second time on."""
    for parameter in network.trainable_params():
        parameter.register_hook(lambda gradient: gradient.contiguous())
