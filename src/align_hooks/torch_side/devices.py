"""Accelerators that torch sees: GPUs, or NPUs through torch_npu."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator

import torch

from align_hooks.process.processor import processor

KINDS = ("cuda", "npu")
"""torch's libraries of accelerators, by their names in it."""


def devices() -> Iterator[dict[str, str | int]]:
    """Yield each accelerator with its free and its total memory in bytes."""
    if importlib.util.find_spec("torch_npu") is not None:
        importlib.import_module("torch_npu")
    for kind in KINDS:
        library = getattr(torch, kind, None)
        if library is None or not library.is_available():
            continue
        for index in range(library.device_count()):
            free, total = library.mem_get_info(index)
            yield {"name": f"{kind}:{index} {library.get_device_name(index)}", "free": free, "total": total}


def device_name(device: torch.device) -> str | None:
    """Return the name of the accelerator that a tensor lies on, or of the processor; None of a device that has none."""
    if device.type == "cpu":
        return processor()
    named: Callable[[torch.device], str] | None = getattr(getattr(torch, device.type, None), "get_device_name", None)
    return None if named is None else named(device)
