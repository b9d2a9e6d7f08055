"""Accelerators that MindSpore sees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mindspore


def devices() -> Iterator[dict[str, Any]]:
    """Each accelerator with its free and its whole memory, in bytes; what the device does not tell is None."""
    for kind in ("Ascend", "GPU"):
        if not mindspore.hal.is_available(kind):
            continue
        for index in range(mindspore.hal.device_count(kind)):
            known = mindspore.hal.get_device_properties(index, kind)
            free, total = getattr(known, "free_memory", None), getattr(known, "total_memory", None)
            yield {"name": f"{kind}:{index} {getattr(known, 'name', '')}".strip(), "free": free or None, "total": total or None}
