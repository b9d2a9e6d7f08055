"""MindSpeed, which replaces and decorates functions of Megatron, ours among them: it patches first, and we come last.

MindSpeed keeps the object that stood at a target, and puts its own function there and everywhere else in ``sys.modules`` where the same
object has the same name. A replacement (``ChainedOptimizer.step`` in most versions, MindSpeed-LLM's ``GPTModel``, ``train_step`` by
flag) would lose our wrapper. A decorator around our wrapper would hide what it does to the result. So MindSpeed's manager is given
Megatron without us.

Seam: the doors of ``mindspeed.patch_utils``, through which every patch of MindSpeed and MindSpeed-LLM goes, however often
(``repatch`` takes all back and applies them anew). ``mindspeed.megatron_adaptor`` is too late: it patches while it is imported. A
patch may be applied alone, so the single one is a door as well. Taking patches back came with MindSpeed 2.2.

Imports neither torch nor megatron: MindSpeed patches before either is complete.
"""

from __future__ import annotations

from types import ModuleType

from align_hooks.errors import AttachError
from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result
from align_hooks.hooking.ledger import Wrapper
from align_hooks.torch_side.session import TorchSession

DOORS = {"MindSpeedPatchesManager": ("apply_patches", "remove_patches"), "Patch": ("apply_patch", "remove_patch")}


def install(session: TorchSession, patch_utils: ModuleType) -> None:
    """Lift our wrappers whenever MindSpeed patches; raises AttachError where it has no such door."""

    def around(wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
        with session.ledger.lifted():
            return wrapped(*args, **kwargs)

    for name, doors in DOORS.items():
        owner = getattr(patch_utils, name, None)
        methods = vars(owner) if isinstance(owner, type) else {}
        if doors[0] not in methods:
            raise AttachError(f"hook 'mindspeed': {patch_utils.__name__} has no {name}.{doors[0]}; run with MindSpeed 1.0 or newer")
        for door in doors:
            if door in methods:
                session.ledger.replace(owner, door, Wrapper(methods[door], around))
