"""What a run holds and how large it is: what to carry to the other cluster, and what is not there although it was asked for."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from align_hooks.errors import RecordError
from align_hooks.messages import message
from align_hooks.record.problems import Problem, ProblemKind, unreadable
from align_hooks.record.reader import Run

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


def holdings(run: Run) -> tuple[Holding, ...]:
    """Of a run, made by ``open_run``; kinds that were neither asked for nor are there are left out."""
    sizes = bytes_by_kind(run)
    found = []
    for kind, steps in STEPS.items():
        there = tuple(steps(run))
        asked = "all" if kind == "scalars" else run.facts.settings.get(kind.partition("/")[0]) or "none"
        if there or asked != "none":
            found.append(Holding(kind, there, asked, sizes[kind]))
    return tuple(found)


def not_whole(run: Run) -> tuple[Problem, ...]:
    """What was asked for, could be there and is not, and files that are not whole. Of tensors only headers are read."""
    return (*_lacking(run), *_unreadable(run))


def _lacking(run: Run) -> Iterator[Problem]:
    if not run.made_by_hand and not run.steps:
        yield Problem(ProblemKind.NO_WHOLE_STEP, message("run.no_whole_step"))
    states = {*run.steps, *(step + 1 for step in run.steps)}
    for kind, steps in STEPS.items():
        asked = run.asked(kind.partition("/")[0]) if kind != "scalars" and not run.made_by_hand else ()
        could = states if kind in ("weights", "optimizer_state", "sketches/weights") else set(run.steps)
        listed = {step for one in run.committed.values() for step in one.listed.get(kind, {})}  # of these the run's problems tell
        lost = sorted({step for step in could if step in asked} - set(steps(run)) - listed)
        if lost:
            words = message("run.not_recorded", kind=kind, count=len(lost), step=lost[0])
            yield Problem(ProblemKind.NOT_RECORDED, words, step=lost[0])


def _unreadable(run: Run) -> Iterator[Problem]:
    opened = {
        "batches": run.batch_facts,
        "gradients": run.gradients,
        "weights": run.weights,
        "optimizer_state": run.optimizer_state,
    }
    for kind, read in opened.items():
        for step in STEPS[kind](run):
            try:
                read(step)
            except RecordError as error:
                yield unreadable(error, step=step)
                break


def bytes_by_kind(run: Run) -> Counter[str]:
    """Bytes on disk by kind; what is none of them is ``other``. Links are not followed."""
    sizes: Counter[str] = Counter()
    folders: list[tuple[str, tuple[str, ...]]] = [(str(run.path), ())]
    while folders:
        folders += _add(sizes, *folders.pop())
    return sizes


DEEPEST = 8
"""How deep directories are looked into: a run's own are half of it."""


def _add(sizes: Counter[str], folder: str, inside: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Count a folder's files; the folders in it, with those that lead there. There may be millions of files, so names stay strings."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    sizes[_kind(inside or (".",), entry.name)] += entry.stat(follow_symlinks=False).st_size
                elif len(inside) < DEEPEST:
                    yield entry.path, (*inside, entry.name)
    except OSError:  # what a running job replaced, or what is not ours to read
        return


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
