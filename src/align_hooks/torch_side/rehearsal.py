"""Megatron on a machine with no accelerator: what it asks of CUDA is answered by the CPU.

Megatron asserts a CUDA device all over and never asks whether the mathematics needs one. This stand-in answers device
queries, turns streams and events into nothing, lets the CPU's generator be the CUDA generator, and rewrites ``cuda``
devices to ``cpu`` in every torch call. It changes no arithmetic. What an argument switches off (fused kernels, NCCL) is
switched off by :mod:`align_hooks.torch_side.hooks.arguments`.

Seam: the end of ``import torch``, because Megatron binds names of ``torch.cuda`` while it is imported.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections import Counter
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

from align_hooks.torch_side.session import TorchSession

_FALSE = ("is_current_stream_capturing", "_is_in_bad_fork", "is_initialized")
_NOTHING = (
    "synchronize",
    "empty_cache",
    "set_device",
    "reset_peak_memory_stats",
    "_lazy_init",
    "init",
    "check_error",
    "ipc_collect",
    "set_stream",
)
_ZERO = (
    "memory_allocated",
    "memory_reserved",
    "max_memory_allocated",
    "max_memory_reserved",
    "current_device",
    "utilization",
    "device_memory_used",
)


class _Stream:
    """A CUDA stream or event on a machine where everything has already happened."""

    cuda_stream = 0
    device = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in ("wait_stream", "wait_event", "synchronize", "record", "wait", "record_event"):
            return lambda *args, **kwargs: self if name == "record_event" else None
        if name == "elapsed_time":
            return lambda *args: 0.0
        if name in ("query", "is_capturing"):
            return lambda: name == "query"
        raise AttributeError(name)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return (0, 0)

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def install(session: TorchSession, torch: ModuleType) -> None:
    """Put the stand-in over ``torch.cuda``; journalled, so that it can be undone."""
    # Dynamo would compile around the rewriting of devices below; Megatron's jitted helpers run eagerly without it.
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    replace = session.ledger.replace
    cpu = torch.default_generator
    stream = _Stream()

    def to_cpu_generator(seed: int) -> None:
        cpu.manual_seed(seed)

    answers: dict[str, Any] = {name: lambda *args, **kwargs: False for name in _FALSE}
    answers |= {name: lambda *args, **kwargs: None for name in _NOTHING}
    answers |= {name: lambda *args, **kwargs: 0 for name in _ZERO}
    answers |= {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_stream": lambda *args: stream,
        "default_stream": lambda *args: stream,
        "stream": lambda *args: contextlib.nullcontext(),
        "device": lambda *args: contextlib.nullcontext(),
        "Stream": _Stream,
        "Event": _Stream,
        "default_generators": (cpu,),
        "manual_seed": to_cpu_generator,
        "manual_seed_all": to_cpu_generator,
        "get_rng_state": lambda *args, **kwargs: cpu.get_state(),
        "set_rng_state": lambda state, *args, **kwargs: cpu.set_state(state),
        "initial_seed": cpu.initial_seed,
        "_lazy_call": lambda call, **kwargs: call(),
        "get_device_name": lambda *args: "cpu",
        "get_device_capability": lambda *args: (8, 0),
        "get_device_properties": lambda *args: SimpleNamespace(
            name="cpu", major=8, minor=0, total_memory=_memory(), multi_processor_count=1
        ),
        "mem_get_info": lambda *args: (_memory(), _memory()),
        "memory_stats": lambda *args: Counter(),
    }
    for name, answer in answers.items():
        replace(torch.cuda, name, answer)
    for name in ("get_rng_state", "set_rng_state", "manual_seed", "manual_seed_all"):
        replace(torch.cuda.random, name, answers[name])
    for name in ("range_push", "range_pop", "mark"):
        replace(torch.cuda.nvtx, name, lambda *args, **kwargs: None)
    replace(torch.Tensor, "cuda", lambda tensor, *args, **kwargs: tensor)
    replace(torch.nn.Module, "cuda", lambda module, *args, **kwargs: module)
    replace(torch.Tensor, "type", _type_as_cuda(torch.Tensor.type))
    if hasattr(torch, "accelerator"):
        for name, answer in (("synchronize", None), ("current_device_index", 0), ("current_stream", stream), ("set_stream", None)):
            if hasattr(torch.accelerator, name):
                replace(torch.accelerator, name, lambda *args, answer=answer: answer)
    replace(torch.utils.data.DataLoader, "__init__", _of_the_host(torch, torch.utils.data.DataLoader.__init__))
    replace(torch.distributed, "all_to_all_single", _with_plain_sizes(torch.distributed.all_to_all_single))
    _device_mode(torch).__enter__()
    session.override("device", "cuda", "cpu", "ALIGN_HOOKS_DEVICE=cpu")


def _type_as_cuda(original: Callable[..., Any]) -> Callable[..., Any]:
    """Megatron's clipping asserts the type names of CUDA tensors."""

    def type_(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(tensor, *args, **kwargs)
        return found.replace("torch.", "torch.cuda.", 1) if isinstance(found, str) and "cuda" not in found else found

    return type_


def _of_the_host(torch: ModuleType, original: Callable[..., None]) -> Callable[..., None]:
    """A data loader's pinning thread would talk to the driver. And a loader seeds itself from the host's generator, which on a device is
    not the one that dropout draws from. Here, where both would be one, a loader has its own; or a resumed run would draw other masks."""

    def of_the_host(loader: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("generator") is None:
            kwargs["generator"] = torch.Generator().manual_seed(torch.initial_seed())
        original(loader, *args, **kwargs | {"pin_memory": False})

    return of_the_host


def _with_plain_sizes(original: Callable[..., Any]) -> Callable[..., Any]:
    """Megatron fetches the sizes of an expert's share from the device as numbers, and on the host keeps a tensor, which torch refuses."""

    def all_to_all_single(*args: Any, **kwargs: Any) -> Any:
        for name in ("output_split_sizes", "input_split_sizes"):
            if hasattr(kwargs.get(name), "tolist"):
                kwargs[name] = kwargs[name].tolist()
        return original(*args, **kwargs)

    return all_to_all_single


def _device_mode(torch: ModuleType) -> Any:
    """A torch function mode that rewrites ``cuda`` devices in the arguments of every torch call."""
    from torch.overrides import TorchFunctionMode

    def to_cpu(value: Any) -> Any:
        if isinstance(value, torch.device) and value.type == "cuda":
            return torch.device("cpu")
        return "cpu" if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")) else value

    class CudaMeansCpu(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = {key: to_cpu(value) for key, value in (kwargs or {}).items()}
            if type(kwargs.get("device")) is int:
                kwargs["device"] = "cpu"
            if kwargs.get("pin_memory") is True:
                kwargs["pin_memory"] = False
            args = tuple(map(to_cpu, args))
            if func is torch.Tensor.to and len(args) > 1 and type(args[1]) is int:
                args = (args[0], "cpu", *args[2:])
            return func(*args, **kwargs)

    return CudaMeansCpu()


def install_helpers(session: TorchSession, utils: ModuleType) -> None:
    """Let Megatron use the data set helper that a wheel ships compiled: the wheel has no Makefile to build it again."""
    original = utils.compile_helpers

    def compile_helpers() -> None:
        if importlib.util.find_spec("megatron.core.datasets.helpers_cpp") is None:
            original()

    session.ledger.replace(utils, "compile_helpers", compile_helpers)


def install_fused_kernels(session: TorchSession, fused_kernels: ModuleType) -> None:
    """Let 0.12 to 0.16 start without nvcc: they ask it its version, and then have no kernel to build."""
    session.ledger.replace(fused_kernels, "load", lambda args: None)


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
