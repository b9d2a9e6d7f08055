"""Accelerators that MindSpore sees."""

from collections.abc import Iterator

import mindspore


def devices() -> Iterator[dict[str, str | int | None]]:
    """Each accelerator with its free and its total memory in bytes, None where the device does not tell it."""
    for kind in ("Ascend", "GPU"):
        if not mindspore.hal.is_available(kind):
            continue
        for index in range(mindspore.hal.device_count(kind)):
            device = mindspore.hal.get_device_properties(index, kind)
            free, total = getattr(device, "free_memory", None), getattr(device, "total_memory", None)
            yield {"name": f"{kind}:{index} {getattr(device, 'name', '')}".strip(), "free": free or None, "total": total or None}
