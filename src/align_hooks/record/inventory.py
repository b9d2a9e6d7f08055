"""The quantities that a run holds, their size on disk, and quantities that were asked for and are missing."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator

from msgspec import Struct

from align_hooks.errors import RecordError
from align_hooks.messages import message
from align_hooks.process.storage import files_of_storage, is_remote
from align_hooks.quantities import registry
from align_hooks.record.format.ranges import ranges as ranges
from align_hooks.record.read.problems import Problem, ProblemKind, unreadable
from align_hooks.record.reader import Run

KINDS = sorted(registry.KINDS, key=lambda kind: kind.sketch_of is not None)
"""Every kind of quantity that a run may hold; sketches stand behind the tensors that were stored."""
READ: dict[str, Callable[[Run, int], object]] = {
    "batches": Run.batch_facts,
    "local_norms": lambda run, step: [run.norm_rows(rank) for rank in run.manifests],
    **{method.__name__: method for method in (Run.gradients, Run.weights, Run.optimizer_state, Run.routing, Run.activations)},
}
"""The check of each quantity at one step; of tensors only headers are read."""


class Holding(Struct, frozen=True):
    """A quantity in a run."""

    kind: str
    steps: tuple[int, ...]
    """The steps on every rank."""
    asked: str
    """The requested steps as the user wrote them."""
    bytes: int
    """Bytes on disk of all ranks."""


def inventory(run: Run) -> tuple[Holding, ...]:
    """The inventory of a run, made by ``open_run``; kinds that were neither asked for nor recorded are left out."""
    sizes = bytes_by_kind(run)
    asked = {kind: "all" if kind.switch is None else run.facts.settings.get(kind.switch.name) or "none" for kind in KINDS}
    every = (Holding(kind.name, tuple(run.steps_of(kind.name)), asked[kind], sizes[kind.name]) for kind in KINDS)
    return tuple(holding for holding in every if holding.steps or holding.asked != "none")


def not_whole(run: Run) -> Iterator[Problem]:
    """Yield quantities that were asked for, could be recorded and are missing, and incomplete files. Of tensors only headers are read."""
    if not run.made_by_hand and not run.steps:
        yield Problem(ProblemKind.NO_WHOLE_STEP, message("run.no_whole_step"))
    for kind in KINDS:
        asked = run.asked(kind.switch.name) if kind.switch is not None and not run.made_by_hand else ()
        # the run's own problems name the listed steps that are lost
        listed = {step for committed in run.committed.values() for step in committed.listed.get(kind.name, {})}
        lost = sorted({step for step in kind.possible(run.steps) if step in asked} - set(run.steps_of(kind.name)) - listed)
        if lost:
            words = message("run.not_recorded", kind=kind.name, count=len(lost), step=lost[0], iteration=lost[0] + 1)
            yield Problem(ProblemKind.NOT_RECORDED, words, step=lost[0])
    for name, read in READ.items():
        for step in run.steps_of(name):
            try:
                read(run, step)
            except RecordError as error:
                yield unreadable(error, step=step)
                break


OTHER = "other"
DEEPEST = 8
"""How deep directories are read: a run's own are half as deep."""


def bytes_by_kind(run: Run) -> Counter[str]:
    """Bytes on disk by kind, :data:`OTHER` for files of no kind. Links are not followed."""
    sizes: Counter[str] = Counter()
    if is_remote(run.path):
        for path, size in files_of_storage(run.path):
            sizes[kind_of(path.parts[:-1] or (".",), path.name)] += size
        return sizes
    folders: list[tuple[str, tuple[str, ...]]] = [(str(run.path), ())]
    while folders:
        folders += _add(sizes, *folders.pop())
    return sizes


def _add(sizes: Counter[str], folder: str, inside: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Count a folder's files and yield its folders with their parts; names stay strings, as files may be millions."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    sizes[kind_of(inside or (".",), entry.name)] += entry.stat(follow_symlinks=False).st_size
                elif len(inside) < DEEPEST:
                    yield entry.path, (*inside, entry.name)
    except OSError:  # a running job replaced the file, or the folder is not ours to read
        return


def kind_of(inside: tuple[str, ...], name: str) -> str:
    """The kind of a file, by its folders in the run and its name (:mod:`.format.layout`)."""
    if not inside[0].startswith("step_"):
        folder = "/".join(inside)
        return next((kind.name for kind in KINDS if (kind.is_rows and folder == kind.name) or name in kind.shared), OTHER)
    kind = registry.kind_of_file("/".join((*inside[2:], name)))
    return OTHER if kind is None else kind.name
