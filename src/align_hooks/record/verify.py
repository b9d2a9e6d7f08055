"""Every byte of a run against its digest: ``show --verify``.

Every other reader checks the files that it reads. This module reads all files, before a record is carried to another machine and after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from align_hooks.errors import RecordError
from align_hooks.messages import Message, message, sentences
from align_hooks.messages.progress import Progress, silent
from align_hooks.record import layout
from align_hooks.record.batch import Source, described
from align_hooks.record.files import TensorFile, read_array, read_json
from align_hooks.record.folder import inside
from align_hooks.record.part import CHANGED, STORED
from align_hooks.record.pieces import is_causal
from align_hooks.record.problems import Problem, unreadable
from align_hooks.record.reader import Run


@dataclass(slots=True)
class Verified:
    """How many ``files`` of a ``run`` were held against their digests, each row of norms and sketches counted as a file; how many files
    have ``no_digest``; and the problems of files that are ``wrong``."""

    run: Path
    files: int = 0
    no_digest: int = 0
    wrong: list[Problem] = field(default_factory=list)
    _sizes: dict[Path, int] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Bytes of the files that were read."""
        return sum(self._sizes.values())

    def read(self, path: Path, digest: str | None, read: Callable[[], object], rank: int | None = None, step: int | None = None) -> None:
        """Read one file, of a rank and a step where it has them, and count it."""
        try:
            read()
            self._sizes[path] = path.stat().st_size
        except (RecordError, OSError) as error:
            self.wrong.append(unreadable(error, rank, step, str(path.relative_to(self.run))))
        if digest is None:
            self.no_digest += 1
        else:
            self.files += 1


def verify(run: Run, progress: Progress = silent) -> Verified:
    """Read all of a run, made by ``open_run``; memory stays near the largest tensor. Manifests, ``run.json`` and the rows of scalars were
    checked against their digests when the run was opened."""
    verified = Verified(run.path)
    formats = {layout.run_file(run.path): run.facts.format} if run.facts.is_there else {}
    formats |= {layout.manifest(run.path, rank): manifest.format for rank, manifest in run.manifests.items()}
    for path, number in formats.items():
        verified.read(path, "its own" if number == layout.FORMAT else None, lambda: None)
    recorded = [
        (rank, name, step) for rank in run.manifests for name in (*layout.LINES, *layout.FILES) for step in run.recorded(rank, name)
    ]
    for done, (rank, name, step) in enumerate(recorded):
        progress(message("progress.verifying", step=step, rank=rank), done, len(recorded))
        for path, digest, read in _pieces(run, rank, name, step, verified):
            verified.read(path, digest, read, rank, step)
    mask = layout.causal_mask(run.path)
    if mask.exists() and run.manifests:
        verified.read(mask, "its content", lambda: _causal(run, mask))
    return verified


def summary(verified: Verified) -> Message:
    """The result of :func:`verify`, as a message."""
    size = f"{verified.bytes / 1e9:.1f} GB" if verified.bytes >= 1e9 else f"{verified.bytes / 1e6:.1f} MB"
    checked, without = None, None
    if verified.files and verified.wrong:
        checked = message("verify.wrong", files=verified.files, size=size, count=len(verified.wrong))
    elif verified.files:
        checked = message("verify.right", count=verified.files, size=size)
    if verified.no_digest:
        without = message("verify.without_digests", count=verified.no_digest)
    return message("verify.verified", what=sentences(checked, without)) if checked or without else message("verify.nothing")


def _pieces(run: Run, rank: int, name: str, step: int, verified: Verified) -> Iterator[tuple[Path, str | None, Callable[[], object]]]:
    """The files of a step's name: path, digest, and the function that reads the file."""
    if name in layout.LINES:
        lines = run.lines(name, rank)
        if step in lines.steps:  # a missing line is lost, which the run's problems say
            yield lines.path, lines.listed.get(step), lambda: lines.row(step)
        return
    try:
        path, digest = run.file(rank, step, name)
    except RecordError as error:
        verified.wrong.append(unreadable(error, rank, step, str((layout.step(run.path, step, rank) / name).relative_to(run.path))))
        return
    if name.endswith(".npy"):  # batch.json holds the digests of arrays
        return
    if name == layout.BATCH:
        source = Source(run.path, path.parent, digest)
        yield path, digest, lambda: described(source)
        with suppress(RecordError):  # an error was reported where batch.json itself was read
            for array, stored in described(source).arrays.items():
                yield source.place / f"{array}.npy", stored.file, partial(source.array, array, stored.file)
    elif name.endswith(".json"):
        yield path, digest, lambda: read_json(path, digest)
    else:
        yield path, digest, lambda: _tensors(path, digest)


def _tensors(path: Path, digest: str | None) -> None:
    file = TensorFile(path, digest, types=tuple(STORED))
    for name in file:
        file.stored(name)


def _causal(run: Run, path: Path) -> None:
    mask = read_array(inside(run.path, path))
    if mask.dtype != bool or not is_causal(mask):
        raise RecordError(f"{path} {CHANGED}")
