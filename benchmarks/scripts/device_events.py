"""What a step asked of a device, by the events of torch's profiler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from torch.autograd import DeviceType


def counted(events: Iterable[Any]) -> Counter[str]:
    """Of the events of a profile: the ``operators`` that no other operator called, the ``kernels`` that ran on the device and the
    ``microseconds`` that they took, and the ``transfers`` to the host."""
    counts: Counter[str] = Counter()
    for event in events:
        if event.device_type == DeviceType.CPU:
            parent = event.cpu_parent
            counts["operators"] += event.name.startswith("aten::") and not (parent and parent.name.startswith("aten::"))
        elif getattr(event, "is_user_annotation", False):
            continue
        elif event.name.startswith("Memcpy"):
            counts["transfers"] += "DtoH" in event.name
        elif not event.name.startswith("Memset"):
            counts["kernels"] += 1
            counts["microseconds"] += event.time_range.elapsed_us()
    return counts
