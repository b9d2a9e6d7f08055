"""What a run holds and how large it is: what to carry to the other cluster, and what is not there although it was asked for."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from align_hooks.errors import RecordError
from align_hooks.messages import message
from align_hooks.quantities import registry
from align_hooks.record.problems import Problem, ProblemKind, unreadable
from align_hooks.record.reader import Run

KINDS = sorted(registry.KINDS, key=lambda kind: kind.sketch_of is not None)
"""Every kind of thing that a run may hold; sketches stand behind what was stored itself."""
READ: dict[str, Callable[[Any, int], object]] = {
    "batches": lambda run, step: run.batch_facts(step),
    "local_norms": lambda run, step: [run.norm_rows(rank) for rank in run.manifests],
    "gradients": lambda run, step: run.gradients(step),
    "weights": lambda run, step: run.weights(step),
    "optimizer_state": lambda run, step: run.optimizer_state(step),
}
"""How what is there of a quantity is looked into; of tensors only headers are read."""


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
    for kind in KINDS:
        there = tuple(run.steps_of(kind.name))
        asked = "all" if kind.switch is None else run.facts.settings.get(kind.switch.name) or "none"
        if there or asked != "none":
            found.append(Holding(kind.name, there, asked, sizes[kind.name]))
    return tuple(found)


def not_whole(run: Run) -> tuple[Problem, ...]:
    """What was asked for, could be there and is not, and files that are not whole. Of tensors only headers are read."""
    return (*_lacking(run), *_unreadable(run))


def _lacking(run: Run) -> Iterator[Problem]:
    if not run.made_by_hand and not run.steps:
        yield Problem(ProblemKind.NO_WHOLE_STEP, message("run.no_whole_step"))
    for kind in KINDS:
        asked = run.asked(kind.switch.name) if kind.switch is not None and not run.made_by_hand else ()
        listed = {step for one in run.committed.values() for step in one.listed.get(kind.name, {})}  # of these the run's problems tell
        lost = sorted({step for step in kind.possible(run.steps) if step in asked} - set(run.steps_of(kind.name)) - listed)
        if lost:
            words = message("run.not_recorded", kind=kind.name, count=len(lost), step=lost[0])
            yield Problem(ProblemKind.NOT_RECORDED, words, step=lost[0])


def _unreadable(run: Run) -> Iterator[Problem]:
    for kind, read in READ.items():
        for step in run.steps_of(kind):
            try:
                read(run, step)
            except RecordError as error:
                yield unreadable(error, step=step)
                break


def bytes_by_kind(run: Run) -> Counter[str]:
    """Bytes on disk by kind; what is none of them is :data:`OTHER`. Links are not followed."""
    sizes: Counter[str] = Counter()
    folders: list[tuple[str, tuple[str, ...]]] = [(str(run.path), ())]
    while folders:
        folders += _add(sizes, *folders.pop())
    return sizes


OTHER = "other"
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
    if not inside[0].startswith("step_"):
        folder = "/".join(inside)
        return next((kind.name for kind in KINDS if (kind.is_rows and folder == kind.name) or name in kind.shared), OTHER)
    kind = registry.kind_of_file("/".join((*inside[2:], name)))
    return OTHER if kind is None else kind.name


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
