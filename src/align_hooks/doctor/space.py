"""Free disk and memory against what the settings will need."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from align_hooks.doctor.size import Size
from align_hooks.doctor.variables import existing
from align_hooks.record.plan import ELEMENT, TOKEN, batches, tensors
from align_hooks.settings import PREFIX, Settings

WRITTEN = ("gradients", "weights", "optimizer_state")
ON_DEVICE = ("gradients", "sketches")


def disk(settings: Settings, size: Size | None) -> tuple[str, str]:
    """What recording writes and what is free, and the problem where that is not enough; both empty where nothing is recorded."""
    if settings.run is None:
        return "", ""
    base = existing(settings.run)
    free = shutil.disk_usage(base).free
    there = f"{base} has {billions(free)}B free"
    wanted = [kind for kind in (*WRITTEN, "batches") if getattr(settings, kind)]
    if not wanted:
        return f"{there}; no tensor and no batch is recorded", ""
    lacking = unknown(settings, size)
    steps = planned(settings, size)
    if size is None or (lacking and (size.elements or size.tokens) is None):
        return f"{there}; {lacking}", ""
    least = range(_last(settings) if steps is None else steps)
    sets, count = tensors(settings, least), batches(settings, least)
    taken = _bytes(settings, size, least)
    parts = [f"{sets} times {billions(size.elements or 0)} parameters in fp32"] * bool(sets and size.elements)
    parts += [f"{count} batches of {size.tokens} tokens"] * bool(count and size.tokens)
    needed, at_least = sum(taken), "at least " if lacking else ""
    said = f"{there}; recording takes {at_least}{billions(needed)}B ({', '.join(parts)}; {size.source})"
    if needed <= free:
        return said, ""
    tensor_kinds = [kind for kind in WRITTEN if kind in wanted]
    kinds = [*tensor_kinds, "batches"] if taken[0] >= taken[1] else ["batches", *tensor_kinds]
    names = ", ".join(PREFIX + kind.upper() for kind in kinds if kind in wanted)
    return said, f"recording takes {at_least}{billions(needed)}B and {there}; choose fewer steps in {names}, or another disk"


def unknown(settings: Settings, size: Size | None) -> str:
    """What it is that nobody tells of what recording takes, and who could tell; empty where nothing is missing."""
    tensor_kinds = [kind for kind in WRITTEN if getattr(settings, kind)]
    if settings.run is None or not (tensor_kinds or settings.batches):
        return ""
    if size is None:
        return "what recording takes is not known: name what is to be run, or a recorded run of that model, align-hooks doctor FILE"
    if tensor_kinds and size.elements is None:
        return f"what recording takes is not known: {size.source} does not tell the size of the model; name a recorded run of it"
    if settings.batches and size.tokens is None:
        return f"what recording takes is not known: {size.source} does not tell how many tokens a step has; name a recorded run of it"
    if planned(settings, size) is None:
        first, second = (sum(_bytes(settings, size, range(steps))) for steps in (1, 2))
        one = billions(second - first)
        return f"what recording takes is not known: {size.source} does not tell how many steps are made; each takes {one}B"
    return ""


def _bytes(settings: Settings, size: Size, steps: range) -> tuple[int, int]:
    """What the tensors of ``steps`` take, and the batches."""
    return ELEMENT * (size.elements or 0) * tensors(settings, steps), TOKEN * (size.tokens or 0) * batches(settings, steps)


def _last(settings: Settings) -> int:
    """Steps that are made at the least: those that are asked for by number, or one."""
    asked = [getattr(settings, kind).ranges for kind in (*WRITTEN, "batches")]
    return max((part[-1] + 1 for ranges in asked for part in ranges or () if part), default=1)


def planned(settings: Settings, size: Size | None) -> int | None:
    """Steps that a run may make, as far as the settings ask for any of them; None where ``all`` are asked for and nobody says how many."""
    asked = [getattr(settings, kind) for kind in (*WRITTEN, "batches") if getattr(settings, kind)]
    if size is not None and size.steps is not None:
        return size.steps
    if any(steps.ranges is None for steps in asked):
        return None
    return max((part[-1] + 1 for steps in asked for part in steps.ranges if part), default=0)


def memory(side: str, settings: Settings, size: Size | None, devices: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """What capturing takes of the host's and of the device's memory, each with the problem where that is more than there is."""
    if size is None or size.elements is None:
        return
    part = ELEMENT * size.elements // size.parts
    cut = f" of {size.parts} that tensor and pipeline parallelism make" if size.parts > 1 else ""
    if any(getattr(settings, kind) for kind in WRITTEN):
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
        told = f"to write tensors each rank holds its part{cut} in host memory, at most {billions(part)}B; {billions(free)}B are free"
        short = f"{told}; record {PREFIX}SKETCHES in the place of tensors, or cut the model further"
        yield told, short if part > free else ""
    captured = any(getattr(settings, kind) for kind in ON_DEVICE) + (settings.inject_gradients is not None)
    if side == "ms" and captured:
        kept = "gradients" if captured == 1 else "gradients, its own and injected ones,"
        needed, least = captured * part, min((one["free"] for one in devices if one["free"]), default=None)
        told = f"MindFormers keeps {kept} on the device: {billions(needed)}B a rank"
        told += "" if least is None else f"; {billions(least)}B are free"
        short = f"{told}; keep {PREFIX}LOCAL_NORMS alone, which needs 1/8192 of it"
        yield told, short if least is not None and needed > least else ""


def billions(number: float) -> str:
    """A count as people write it: ``7.24 G``, ``31.2 M``."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number / 1e3:.3g} k" if number >= 1e3 else f"{number:.0f} "
