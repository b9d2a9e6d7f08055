"""The drivers of accelerators, from the files that they leave, without a framework. None was tried on a machine with a device."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

FILES = {
    "NVIDIA driver": ("/proc/driver/nvidia/version", r"Kernel Module.*?\s(?P<version>\d+\.[\d.]+)"),
    "Ascend driver": ("/usr/local/Ascend/driver/version.info", r"(?m)^Version=(?P<version>\S+)"),
    "CANN": ("/usr/local/Ascend/ascend-toolkit/latest/version.cfg", r"\[(?P<version>\d[^\]:]*)"),
}
"""Driver to its file and to what states its version there."""


def drivers(root: Path = Path("/")) -> Iterator[str]:
    """Yield each driver that is installed below ``root``, with its version where its file states one."""
    for name, (file, pattern) in FILES.items():
        with suppress(OSError):
            found = re.search(pattern, (root / file.lstrip("/")).read_text(encoding="utf-8", errors="replace"))
            yield f"{name} {found['version']}" if found else f"{name} of an unknown version"
