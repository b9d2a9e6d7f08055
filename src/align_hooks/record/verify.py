"""The check of every byte of a run against its digest (``show --verify``), before and after a record is copied."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec import Struct, field

from align_hooks.errors import RecordError
from align_hooks.messages import Message, message
from align_hooks.messages.progress import Progress, silent
from align_hooks.process.storage import size_of
from align_hooks.process.work import WorkPool
from align_hooks.record.format import layout
from align_hooks.record.format.batch_arrays import is_causal
from align_hooks.record.format.files import TensorFile, in_words, read_array, read_json
from align_hooks.record.format.folder import inside
from align_hooks.record.format.stored_tensor import CHANGED, STORED
from align_hooks.record.read.problems import Problem, unreadable
from align_hooks.record.read.run_files import BatchSource
from align_hooks.record.reader import Run


class FileCheck(Struct, frozen=True):
    """A file or a row, and the function that reads and checks it."""

    path: Path
    read: Callable[[], object]
    rank: int | None = None
    step: int | None = None
    file: bool = True
    """Whether a worker can read it; False for a row."""


class Verified(Struct):
    """The result of a verification."""

    run: Path
    files: int = 0
    """The number of files compared with their digests; each row of norms and sketches is one."""
    wrong: list[Problem] = field(default_factory=list)
    _sizes: dict[Path, int] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Bytes of the files that were read."""
        return sum(self._sizes.values())

    def count(self, piece: FileCheck, error: RecordError | None) -> None:
        """Count a file that was read; ``error`` is what was wrong with it."""
        if error is None:
            self._sizes[piece.path] = size_of(piece.path)
        else:
            self.wrong.append(unreadable(error, piece.rank, piece.step, str(piece.path.relative_to(self.run))))
        self.files += 1


def verify(run: Run, progress: Progress = silent, executor: Executor | None = None) -> Verified:
    """Read all of a run, made by ``open_run``, by the workers of an ``executor`` or here; memory stays near the largest tensor.

    Manifests, ``run.json`` and the rows of scalars were checked when the run was opened.
    """
    verified, work = Verified(run.path), WorkPool(progress, executor)
    opened = [layout.run_file(run.path)] if run.facts.is_there else []
    for path in (*opened, *(layout.manifest(run.path, rank) for rank in run.manifests)):
        verified.count(FileCheck(path, bool), None)
    recorded = [
        (rank, name, step) for rank in run.manifests for name in (*layout.LINES, *layout.FILES) for step in run.recorded(rank, name)
    ]
    pieces = [piece for rank, name, step in recorded for piece in _pieces(run, rank, name, step, verified)]
    mask = layout.causal_mask(run.path)
    if mask.exists() and run.manifests:
        pieces.append(FileCheck(mask, partial(_causal, run.path, mask)))
    files = [piece for piece in pieces if piece.file]
    tried = work.map(_tried, [piece.read for piece in files], [size_of(piece.path) for piece in files])
    for done, piece in enumerate(pieces):
        step = piece.step or 0
        progress(message("progress.verifying", step=step, iteration=step + 1, rank=piece.rank or 0), done, len(pieces))
        verified.count(piece, next(tried) if piece.file else _tried(piece.read))
    return verified


def _tried(read: Callable[[], object]) -> RecordError | None:
    """Return the error of reading a file; None without one."""
    try:
        read()
    except RecordError as error:
        return error
    except OSError as error:
        return RecordError(in_words(error))
    return None


def summary(verified: Verified) -> Message:
    """Return the result of :func:`verify` as a message."""
    size = f"{verified.bytes / 1e9:.1f} GB" if verified.bytes >= 1e9 else f"{verified.bytes / 1e6:.1f} MB"
    if not verified.files:
        return message("verify.nothing")
    if verified.wrong:
        checked = message("verify.wrong", files=verified.files, size=size, count=len(verified.wrong))
    else:
        checked = message("verify.right", count=verified.files, size=size)
    return message("verify.verified", what=checked)


def _pieces(run: Run, rank: int, name: str, step: int, verified: Verified) -> Iterator[FileCheck]:
    """Yield the checks of a listed name of a step."""
    if name in layout.LINES:
        lines = run.lines(name, rank)
        if step in lines.steps:  # a missing line is lost, which the run's problems say
            yield FileCheck(lines.path, partial(lines.row, step), rank, step, file=False)
        return
    try:
        path, digest = run.file(rank, step, name)
    except RecordError as error:
        verified.wrong.append(unreadable(error, rank, step, str((layout.step(run.path, step, rank) / name).relative_to(run.path))))
        return
    if name.endswith(".npy"):  # batch.json holds the digests of arrays
        return
    if name == layout.BATCH:
        source = BatchSource(run.path, path.parent, digest)
        yield FileCheck(path, source.described, rank, step)
        with suppress(RecordError):  # an error is reported where batch.json itself is read
            for array, stored in source.described().arrays.items():
                yield FileCheck(source.place / f"{array}.npy", partial(source.array, array, stored.file), rank, step)
    elif name.endswith(".json"):
        yield FileCheck(path, partial(read_json, path, digest), rank, step)
    else:
        yield FileCheck(path, partial(_tensors, path, digest), rank, step)


def _tensors(path: Path, digest: str) -> None:
    file = TensorFile(path, digest, types=tuple(STORED))
    for name in file:
        for _ in file.part(name).blocks():
            pass


def _causal(run: Path, path: Path) -> None:
    mask = read_array(inside(run, path))
    if mask.dtype != bool or not is_causal(mask):
        raise RecordError(f"{path} {CHANGED}")
