"""A stand-in for ``hyper_parallel`` on a machine with no accelerator, where the package is not installed.

MindFormers' PyNative trainer imports some sixty of its names, and on one card uses four: ``DTensor`` and ``HSDPModule``, to test objects
against, ``SkipDTensorDispatch``, a context, and ``enable_mindspore_backward_compat``, which gives tensors ``backward`` and ``grad`` by
MindSpore's own ``run_backward`` (``hyper_parallel/platform/mindspore/autograd_compat.py``). Every other name is an empty class.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

from align_hooks.ms_side.objects import Tensor
from align_hooks.ms_side.session import MsSession

NAME = "hyper_parallel"


def install(session: MsSession, module: ModuleType) -> None:
    """Answer imports of ``hyper_parallel`` where none is installed; ``module`` is MindSpore, which every importer imports first."""
    if importlib.util.find_spec(NAME) is None:
        sys.meta_path.append(StandIn())


def divides_models() -> bool:
    """Return whether the imported ``hyper_parallel`` divides a model among ranks, which an empty class of the stand-in does not."""
    return not isinstance(sys.modules.get(NAME), EmptyModule) or "fully_shard" in USED


class StandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and makes ``hyper_parallel`` and all modules below it."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a module of the package."""
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.partition(".")[0] == NAME else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return a module that has every name."""
        return EmptyModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: names are made when they are asked for."""


class EmptyModule(ModuleType):
    """A module that has every name: one of :data:`USED`, or a class that does nothing, the same in every module."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return USED.get(name) or EMPTY.setdefault(name, type(name, (), {"__init__": lambda self, *args, **options: None}))


EMPTY: dict[str, type] = {}


def backward(
    loss: Tensor,
    gradient: Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Sequence[Tensor] | None = None,
) -> None:
    """Add the gradients of ``loss`` to the leaves' ``grad``, as ``Tensor.backward`` of torch does."""
    from mindspore import ops
    from mindspore._c_expression import run_backward

    given = ops.ones_like(loss) if gradient is None else gradient
    run_backward((loss,), (given,), bool(retain_graph), create_graph, tuple(inputs or ()), allow_unreachable=True, accumulate_grad=True)


def give_backward() -> None:
    """Give MindSpore's tensors ``backward`` and the attributes of torch's autograd, and switch the recording of gradients on."""
    from mindspore._c_expression import TensorPy, pyboost_detach
    from mindspore.graph.api import _pynative_executor

    def stored(attribute: str) -> property:
        return property(lambda self: getattr(self, attribute), lambda self, value: setattr(self, attribute, value))

    _pynative_executor.set_grad_flag(True)
    for name in ("grad", "requires_grad", "is_leaf"):
        setattr(TensorPy, name, stored(f"_{name}"))
    TensorPy.detach = lambda self: pyboost_detach(self)
    TensorPy.retain_grad = lambda self: self._retain_grad()
    TensorPy.backward = backward


USED: dict[str, object] = {"enable_mindspore_backward_compat": give_backward, "SkipDTensorDispatch": contextlib.nullcontext}
"""Names that a job on one card calls."""
