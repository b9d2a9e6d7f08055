"""Megatron on a machine with no accelerator: the CPU answers for CUDA.

Megatron asserts a CUDA device all over and never asks whether the mathematics needs one. This stand-in answers device
queries, turns streams and events into nothing, lets the CPU's generator be the CUDA generator, and rewrites ``cuda``
devices to ``cpu`` in every torch call. It changes no arithmetic. What an argument switches off (fused kernels, NCCL) is
switched off by :mod:`align_hooks.torch_side.hooks.arguments`.

Seam: the end of ``import torch``, because Megatron binds names of ``torch.cuda`` while it is imported.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
from collections import Counter
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

from align_hooks.hooking.hook import Args, Function, Kwargs, Result
from align_hooks.torch_side.objects import Tensor
from align_hooks.torch_side.session import TorchSession

CONSTANT = (
    (False, ("is_current_stream_capturing", "_is_in_bad_fork", "is_initialized")),
    (None, ("synchronize", "empty_cache", "set_device", "reset_peak_memory_stats", "ipc_collect", "set_stream")),
    (None, ("_lazy_init", "init", "check_error")),
    (0, ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved", "device_memory_used")),
    (0, ("current_device", "utilization")),
    (True, ("is_available",)),
    (1, ("device_count",)),
    ("cpu", ("get_device_name",)),
    ((8, 0), ("get_device_capability",)),
)
"""Answers of ``torch.cuda`` that are the same whatever is asked, each with the functions that give it."""


def _answering(value: object) -> Function:
    return lambda *args, **kwargs: value


class _Stream:
    """A CUDA stream or event on a machine where everything has already happened."""

    cuda_stream = device = 0
    wait_stream = wait_event = synchronize = record = wait = _answering(None)
    elapsed_time, query, is_capturing, priority_range = (_answering(value) for value in (0.0, True, False, (0, 0)))

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def record_event(self, *args: object) -> _Stream:
        return self

    __enter__, __exit__ = record_event, _answering(None)


def install(session: TorchSession, torch: ModuleType) -> None:
    """Put the stand-in over ``torch.cuda``; journalled, so that it can be undone."""
    # Dynamo would compile around the rewriting of devices below; Megatron's jitted helpers run eagerly without it.
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    replace = session.ledger.replace
    cpu = torch.default_generator
    stream = _Stream()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def to_cpu_generator(seed: int) -> None:
        cpu.manual_seed(seed)

    answers: dict[str, object] = {name: _answering(value) for value, names in CONSTANT for name in names} | {
        "current_stream": _answering(stream),
        "default_stream": _answering(stream),
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
        "get_device_properties": _answering(SimpleNamespace(name="cpu", major=8, minor=0, total_memory=memory, multi_processor_count=1)),
        "mem_get_info": _answering((memory, memory)),
        "memory_stats": lambda *args: Counter(),
    }
    for name, answer in answers.items():
        replace(torch.cuda, name, answer)
    for name in ("get_rng_state", "set_rng_state", "manual_seed", "manual_seed_all"):
        replace(torch.cuda.random, name, answers[name])
    for name in ("range_push", "range_pop", "mark"):
        replace(torch.cuda.nvtx, name, _answering(None))
    replace(torch.Tensor, "cuda", lambda tensor, *args, **kwargs: tensor)
    replace(torch.nn.Module, "cuda", lambda module, *args, **kwargs: module)
    session.ledger.surround(torch.Tensor, "type", _type_as_cuda)
    accelerator = getattr(torch, "accelerator", None)
    for name, value in (("synchronize", None), ("current_device_index", 0), ("current_stream", stream), ("set_stream", None)):
        if hasattr(accelerator, name):
            replace(accelerator, name, _answering(value))
    session.ledger.surround(torch.utils.data.DataLoader, "__init__", functools.partial(_of_the_host, torch))
    session.ledger.surround(torch.distributed, "all_to_all_single", _with_plain_sizes)
    _device_mode(torch).__enter__()
    session.override("device", "cuda", "cpu", "ALIGN_HOOKS_DEVICE=cpu")


def _type_as_cuda(original: Callable[..., object], tensor: Tensor, *args: object, **kwargs: object) -> object:
    """Megatron's clipping asserts the type names of CUDA tensors."""
    name = original(tensor, *args, **kwargs)
    return name.replace("torch.", "torch.cuda.", 1) if isinstance(name, str) and "cuda" not in name else name


def _of_the_host(torch: ModuleType, original: Function, loader: object, *args: object, **kwargs: object) -> None:
    """Build a data loader without a pinning thread, which would talk to the driver, and with a generator of its own.

    A loader seeds itself from the host's generator. On a device dropout draws from another generator; here both would be one, and a
    resumed run would draw other masks.
    """
    if kwargs.get("generator") is None:
        kwargs["generator"] = torch.Generator().manual_seed(torch.initial_seed())
    original(loader, *args, **kwargs | {"pin_memory": False})


def _with_plain_sizes(original: Function, *args: Tensor, **kwargs: Tensor) -> Result:
    """Megatron fetches the sizes of an expert's share from the device as numbers, and on the host keeps a tensor, which torch refuses."""
    for name in ("output_split_sizes", "input_split_sizes"):
        if hasattr(kwargs.get(name), "tolist"):
            kwargs[name] = kwargs[name].tolist()
    return original(*args, **kwargs)


def _device_mode(torch: ModuleType) -> contextlib.AbstractContextManager[object]:
    """A torch function mode that rewrites ``cuda`` devices in the arguments of every torch call."""
    from torch.overrides import TorchFunctionMode

    def to_cpu(value: object) -> object:
        if isinstance(value, torch.device) and value.type == "cuda":
            return torch.device("cpu")
        return "cpu" if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")) else value

    class CudaMeansCpu(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Function, types: object, args: Args = (), kwargs: Kwargs | None = None) -> Result:
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


def past(session: TorchSession) -> contextlib.AbstractContextManager[object]:
    """Where our own reading of tensors goes past the mode, which takes longer than most of its calls; outside of a rehearsal nothing.

    The mode asks Python about every call of torch and every attribute of a tensor: a hundred tensors that are looked at ten times are
    7 ms, which no accelerator has.
    """
    if session.settings.device != "cpu":
        return contextlib.nullcontext()
    import torch

    return contextlib.nullcontext() if not hasattr(torch._C, "DisableTorchFunction") else torch._C.DisableTorchFunction()


def install_helpers(session: TorchSession, utils: ModuleType) -> None:
    """Let Megatron use the data set helper that a wheel ships compiled: the wheel has no Makefile to build it again."""

    def compile_helpers(original: Function) -> None:
        if importlib.util.find_spec("megatron.core.datasets.helpers_cpp") is None:
            original()

    session.ledger.surround(utils, "compile_helpers", compile_helpers)


def install_fused_kernels(session: TorchSession, fused_kernels: ModuleType) -> None:
    """Let 0.12 to 0.16 start without nvcc: they ask for its version, and then have no kernel to build."""
    session.ledger.replace(fused_kernels, "load", _answering(None))
