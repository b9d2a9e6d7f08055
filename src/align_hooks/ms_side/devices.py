"""Accelerators that MindSpore sees, and their memory."""

import os
from collections.abc import Iterator

import mindspore

from align_hooks.errors import RefusedRun
from align_hooks.process.processor import processor


def devices() -> Iterator[dict[str, str | int | None]]:
    """Yield each accelerator with its free and its total memory in bytes, None where the device does not say."""
    for kind in ("Ascend", "GPU"):
        if not mindspore.hal.is_available(kind):
            continue
        for index in range(mindspore.hal.device_count(kind)):
            device = mindspore.hal.get_device_properties(index, kind)
            free, total = getattr(device, "free_memory", None), getattr(device, "total_memory", None)
            yield {"name": f"{kind}:{index} {getattr(device, 'name', '')}".strip(), "free": free or None, "total": total or None}


def refuse_large(what: str, needed: int, way_out: str) -> None:
    """Refuse a run in which the ``needed`` bytes do not fit the parameters' device, where the device says how much is free."""
    if mindspore.get_context("device_target") == "CPU":
        free: int | None = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    else:
        properties = mindspore.hal.get_device_properties(mindspore.get_context("device_id"))
        free = getattr(properties, "free_memory", None) or getattr(properties, "total_memory", None)
    if free is not None and needed > free:
        raise RefusedRun(f"{what} {needed / 1e9:.1f} GB and the device has {free / 1e9:.1f} GB free; {way_out}")


def device_name() -> str | None:
    """Return the name of the accelerator that this process uses, or of the processor; None where the device does not say."""
    if mindspore.get_context("device_target") == "CPU":
        return processor()
    properties = mindspore.hal.get_device_properties(mindspore.get_context("device_id"))
    return str(getattr(properties, "name", None) or "") or None
