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
        pairs = (line.partition(":") for line in CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines())
        known = {key.strip(): name.strip() for key, _, name in pairs}
        named = next((known[key] for key in NAMED if known.get(key)), None)
        if named is not None:
            return named
    return platform.machine()
