"""Every byte of a run against its digest: ``show --verify``.

Whatever else reads a run checks what it reads. This reads all: what nobody has looked at yet, before a record is carried on, and after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from align_hooks.errors import RecordError
from align_hooks.record import layout
from align_hooks.record.batch import Source, batch_json
from align_hooks.record.files import CHANGED, TensorFile, read_array, read_json
from align_hooks.record.folder import inside
from align_hooks.record.pieces import is_causal


@dataclass(slots=True)
class Verified:
    """How many ``files`` were read against their digests, rows of norms and sketches counted as one each; how many were read that have
    ``no_digest``; and what is ``wrong``, a sentence each."""

    files: int = 0
    no_digest: int = 0
    wrong: list[str] = field(default_factory=list)
    _sizes: dict[Path, int] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Bytes of the files that were read."""
        return sum(self._sizes.values())

    def read(self, path: Path, digest: str | None, how: Callable[[], object]) -> None:
        """Read one file, and count it."""
        try:
            how()
            self._sizes[path] = path.stat().st_size
        except (RecordError, OSError) as error:
            self.wrong.append(str(error))
        if digest is None:
            self.no_digest += 1
        else:
            self.files += 1


def verify(run: Any, progress: Callable[[str, int, int], None] = lambda message, done, total: None) -> Verified:
    """Read all of a run, made by ``open_run``; memory stays near the largest tensor. Manifests, ``run.json`` and the rows of scalars were
    read against their digests when the run was opened."""
    found = Verified()
    sealed = {layout.run_file(run.path): run.facts} if run.facts else {}
    for path, content in (sealed | {layout.manifest(run.path, rank): one for rank, one in run.manifests.items()}).items():
        found.read(path, "its own" if content.get("format") == layout.FORMAT else None, lambda: None)
    recorded = [
        (rank, name, step) for rank in run.manifests for name in (*layout.LINES, *layout.FILES) for step in run.recorded(rank, name)
    ]
    for done, (rank, name, step) in enumerate(recorded):
        progress(f"verifying step {step} of rank {rank}", done, len(recorded))
        for path, digest, how in _pieces(run, rank, name, step, found):
            found.read(path, digest, how)
    mask = layout.causal_mask(run.path)
    if mask.exists() and run.manifests:
        found.read(mask, "its content", lambda: _causal(run, mask))
    return found


def said(found: Verified) -> str:
    """What was verified, in a sentence."""
    size = f"{found.bytes / 1e9:.1f} GB" if found.bytes >= 1e9 else f"{found.bytes / 1e6:.1f} MB"
    without = f"{found.no_digest} files and rows have no digest, as an earlier version recorded them; they can be read"
    right = "every digest is right" if not found.wrong else f"{len(found.wrong)} are not as they were recorded"
    with_one = f"{found.files} files and rows, {size}: {right}"
    return f"verified: {'; '.join(said for said, there in ((with_one, found.files), (without, found.no_digest)) if there)}"


def _pieces(run: Any, rank: int, name: str, step: int, found: Verified) -> Iterator[tuple[Path, str | None, Callable[[], object]]]:
    """What is recorded of a step by one name: its path, its digest, and how it is read."""
    if name in layout.LINES:
        lines = run.lines(name, rank)
        if step in lines.steps:  # a line that is not there is lost, which the run's problems say
            yield lines.path, lines.listed.get(step), lambda: lines.row(step)
        return
    try:
        path, digest = run.file(rank, step, name)
    except RecordError as error:
        found.wrong.append(str(error))
        return
    if name.endswith(".npy"):  # digests of arrays stand in batch.json
        return
    if name == layout.BATCH:
        source = Source(run.path, path.parent, digest)
        yield path, digest, lambda: batch_json(source)
        yield from _arrays(source, found)
    elif name.endswith(".json"):
        yield path, digest, lambda: read_json(path, digest)
    else:
        yield path, digest, lambda: _tensors(path, digest)


def _arrays(source: Source, found: Verified) -> Iterator[tuple[Path, str | None, Callable[[], object]]]:
    try:
        said = batch_json(source)["arrays"]
    except RecordError:  # said where it is read itself
        return
    for name, one in said.items():
        path = source.place / f"{name}.npy"
        yield path, one.get("file"), lambda name=name, one=one: source.array(name, one.get("file"))  # type: ignore[misc]


def _tensors(path: Path, digest: str | None) -> None:
    file = TensorFile(path, digest)
    for name in file:
        file.read(name)


def _causal(run: Any, path: Path) -> None:
    mask = read_array(inside(run.path, path))
    if mask.dtype != bool or not is_causal(mask):
        raise RecordError(f"{path} {CHANGED}")
