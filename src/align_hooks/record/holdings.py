"""What a run holds and how large it is: what to carry to the other cluster, and what is not there although it was asked for."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STEPS: dict[str, Callable[[Any], list[int]]] = {
    "scalars": lambda run: run.steps,
    "batches": lambda run: run.batch_steps(),
    "local_norms": lambda run: run.local_norm_steps(),
    "gradients": lambda run: run.gradient_steps(),
    "weights": lambda run: run.weight_steps(),
    "optimizer_state": lambda run: run.optimizer_state_steps(),
    "sketches/gradients": lambda run: list(run.sketch_file_steps("gradients")),
    "sketches/weights": lambda run: list(run.sketch_file_steps("weights")),
}
"""Every kind of thing that a run may hold, and the steps of which it does, on all ranks."""


@dataclass(frozen=True, slots=True)
class Holding:
    """``steps`` of which a kind is there on every rank, what was ``asked``, as the user wrote it, and ``bytes`` on disk of all ranks."""

    kind: str
    steps: tuple[int, ...]
    asked: str
    bytes: int


def holdings(run: Any) -> tuple[Holding, ...]:
    """Of a run, made by ``open_run``; kinds that were neither asked for nor are there are left out."""
    sizes = bytes_by_kind(run)
    settings = run.facts.get("settings") or {}
    found = []
    for kind, steps in STEPS.items():
        there = tuple(steps(run))
        asked = "all" if kind == "scalars" else str(settings.get(kind.partition("/")[0]) or "none")
        if there or asked != "none":
            found.append(Holding(kind, there, asked, sizes[kind]))
    return tuple(found)


def bytes_by_kind(run: Any) -> Counter[str]:
    """Bytes on disk by kind; what is none of them is ``other``. Links are not followed."""
    sizes: Counter[str] = Counter()
    for folder, _, names in os.walk(run.path):
        inside = Path(folder).relative_to(run.path).parts or (".",)
        for name in names:
            try:
                sizes[_kind(inside, name)] += Path(folder, name).lstat().st_size
            except FileNotFoundError:  # a file that a running job replaced
                continue
    return sizes


def _kind(inside: tuple[str, ...], name: str) -> str:
    """What a file belongs to, by its folders in the run and its name (:mod:`.layout`)."""
    if inside[0] in ("scalars", "local_norms"):
        return inside[0]
    if inside[0] == "sketches" and len(inside) > 1:
        return f"sketches/{inside[1]}"
    if not inside[0].startswith("step_"):
        return "batches" if name == "causal_attention_mask.npy" else "other"
    if len(inside) > 2:
        return inside[2] if inside[2] in STEPS else "other"
    return "gradients" if name == "gradients.safetensors" else "batches" if name.endswith((".npy", "batch.json")) else "other"


def ranges(steps: tuple[int, ...]) -> str:
    """Steps as people write them, ``0-9,20``; with a stride ``0-100/10``."""
    parts: list[str] = []
    at = 0
    while at < len(steps):
        stride = steps[at + 1] - steps[at] if at + 1 < len(steps) else 1
        end = at
        while end + 1 < len(steps) and steps[end + 1] - steps[end] == stride:
            end += 1
        if end == at or (end == at + 1 and stride > 1):
            end = at
            parts.append(str(steps[at]))
        else:
            parts.append(f"{steps[at]}-{steps[end]}" + (f"/{stride}" if stride > 1 else ""))
        at = end + 1
    return ",".join(parts)
