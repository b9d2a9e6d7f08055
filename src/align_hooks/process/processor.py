"""The processor of this machine, by name."""

from __future__ import annotations

import platform
from contextlib import suppress
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
NAMED = ("model name", "cpu model", "Model")
"""Keys under which kernels of several architectures name the processor."""


def processor() -> str:
    """Return the processor's name, else its architecture, such as ``aarch64``."""
    with suppress(OSError):
        for line in CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, name = line.partition(":")
            if key.strip() in NAMED and name.strip():
                return name.strip()
    return platform.machine()
