"""Accelerators that torch sees: GPUs, or NPUs through torch_npu."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import torch


def devices() -> Iterator[dict[str, Any]]:
    """Each accelerator with its free and its whole memory, in bytes."""
    if importlib.util.find_spec("torch_npu") is not None:
        importlib.import_module("torch_npu")
    for kind in ("cuda", "npu"):
        room = getattr(torch, kind, None)
        if room is None or not room.is_available():
            continue
        for index in range(room.device_count()):
            free, total = room.mem_get_info(index)
            yield {"name": f"{kind}:{index} {room.get_device_name(index)}", "free": free, "total": total}
