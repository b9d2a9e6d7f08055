"""MindSpeed, which replaces and decorates functions of Megatron, wrapped ones among them: it patches first, and our wrappers come last.

MindSpeed keeps a target's object, and puts its own function there and wherever ``sys.modules`` has the same object under the same name. A
replacement (``ChainedOptimizer.step`` in most versions, MindSpeed-LLM's ``GPTModel``, ``train_step`` by flag) would lose our wrapper; a
decorator around our wrapper would hide its effect on the result. So MindSpeed patches Megatron without our wrappers.

Patch point: the methods of ``mindspeed.patch_utils`` that apply and remove every patch of MindSpeed and MindSpeed-LLM, one or all, however
often (``repatch`` removes and applies all; removal came with MindSpeed 2.2). ``mindspeed.megatron_adaptor`` is too late: it patches while
it is imported. Imports neither torch nor megatron: MindSpeed patches before either is complete.
"""

from types import ModuleType

from align_hooks.errors import AttachError
from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result
from align_hooks.hooking.patch_log import Wrapper
from align_hooks.torch_side.session import TorchSession

PATCHERS = {"MindSpeedPatchesManager": ("apply_patches", "remove_patches"), "Patch": ("apply_patch", "remove_patch")}


def install(session: TorchSession, patch_utils: ModuleType) -> None:
    """Suspend our wrappers whenever MindSpeed patches; raise AttachError where MindSpeed lacks the patch points."""

    def around(wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
        with session.patch_log.suspended():
            return wrapped(*args, **kwargs)

    for name, patchers in PATCHERS.items():
        owner = getattr(patch_utils, name, None)
        methods = vars(owner) if isinstance(owner, type) else {}
        if patchers[0] not in methods:
            raise AttachError(f"hook 'mindspeed': {patch_utils.__name__} has no {name}.{patchers[0]}; run with MindSpeed 1.0 or newer")
        for patcher in filter(methods.__contains__, patchers):
            session.patch_log.replace(owner, patcher, Wrapper(methods[patcher], around))
