"""A run as one small file, a reference that a repository can hold: all but its tensors, of which the file has sketches.

The file is a zip of a record. It keeps every rank's manifest and rows of scalars, and local norms, batches, sketches,
experts' choices and sums of activations of the chosen steps. The settings become the steps that the file holds, so that
a comparison misses nothing that was left out on purpose. The same run makes the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from msgspec import to_builtins

from align_hooks.errors import RecordError
from align_hooks.messages import message
from align_hooks.process.archive import LARGEST, packed, packed_sizes, unpacked
from align_hooks.process.storage import opened
from align_hooks.process.work import ALONE, WorkPool
from align_hooks.quantities.activations import TENSORS as WHOLE_ACTIVATIONS
from align_hooks.quantities.activations import WHOLE
from align_hooks.quantities.batches import BATCHES
from align_hooks.quantities.kind import Quantity
from align_hooks.quantities.registry import KINDS, SWITCHES, asked_by
from align_hooks.quantities.scalars import SCALARS
from align_hooks.record.format import digests, layout
from align_hooks.record.format.files import read_sealed, readable
from align_hooks.record.format.folder import inside
from align_hooks.record.format.layout import JsonObject
from align_hooks.record.format.ranges import ranges
from align_hooks.record.format.shard import Shard
from align_hooks.record.format.sketch import DEFINITION, as_stored, sketch
from align_hooks.record.format.stored_tensor import StoredTensor
from align_hooks.record.inventory import kind_of
from align_hooks.record.read.batch_digests import digests_of
from align_hooks.record.read.tensors import Tensors
from align_hooks.record.reader import Run, open_run
from align_hooks.record.verify import verify
from align_hooks.record.write import atomic
from align_hooks.settings import PREFIX, Steps

KEPT: tuple[Quantity, ...] = tuple(kind for kind in KINDS if not kind.copies)
"""Quantities of a distilled run: all that are smaller than the model."""
CHOICES = tuple(switch.name for switch in SWITCHES if all(kind in KEPT for kind in asked_by(switch)))
"""The names, as in variables, of the settings whose steps can be chosen."""
ALL = Steps.parse("all")
OF_LINE = ("files", "rank", "segment")
"""Members of a row that are written anew."""
DROPPED = ("segments", "files", "deleting", "storage_limitations", "planned_bytes")
"""Members of a manifest about the directory in which the run was recorded."""


@dataclass(frozen=True)
class DistilledRecord:
    """A distilled run."""

    files: Mapping[str, bytes] = field(repr=False)
    """Name to content."""
    kept: Mapping[str, Sequence[int]]
    """Quantity to the steps in the files."""
    left_out: Mapping[str, str]
    """Quantity to the steps, as text, that the run recorded and the files lack."""

    @cached_property
    def content(self) -> bytes:
        """The zip file."""
        return packed(self.files)

    @property
    def sizes(self) -> Counter[str]:
        """Bytes of each quantity in the zip file, :data:`.inventory.OTHER` for other files."""
        sizes: Counter[str] = Counter()
        for name, size in packed_sizes(self.content).items():
            *folders, last = name.split("/")
            sizes[kind_of(tuple(folders) or (".",), last)] += size
        return sizes

    def at(self, path: Path) -> Run:
        """Return the run in the zip file, as read from ``path``; raises RecordError for an incomplete one."""
        try:
            run = open_run(unpacked(self.content, path, layout.is_file_of_record))
        except ValueError as error:
            raise RecordError(f"{path} would be no run that can be read: it {error}; keep fewer steps") from None
        if wrong := [*run.problems, *verify(run).wrong]:
            raise RecordError(str(wrong[0]))
        return run


def distill(run: Run, choices: Mapping[str, Steps] | None = None, work: WorkPool = ALONE) -> DistilledRecord:
    """Distil a run, made by ``open_run``; raises RecordError for one that is incomplete or was made by hand.

    ``choices`` maps names of :data:`CHOICES` to the steps to keep, all steps of any other name.
    """
    if run.made_by_hand:
        raise RecordError(f"{run.path} was made by hand and holds batches alone; record the run with {PREFIX}RUN")
    if run.problems:
        raise RecordError(f"{run.path} is not whole, as a reference must be: {run.problems[0]}; record the run again")
    chosen = choices or {}
    kept = {kind: [step for step in had(run, kind) if step in chosen.get(kind.variable, ALL)] for kind in KEPT}
    left_out = {kind.name: text for kind in KINDS if (text := _left_out(run, kind, kept.get(kind, ())))}
    facts = read_sealed(inside(run.path, layout.run_file(run.path)))
    cut = sorted(set(run.batch_steps()) - set(kept[BATCHES]))
    of_batches = {str(step): digests_of(run.batch(step)) for step in cut}
    if run.facts.distilled is not None:
        of_batches = run.facts.distilled.batches | of_batches
    facts |= {"settings": asked(run, kept), "distilled": {"left_out": left_out, "batches": of_batches}}
    files = {layout.RUN_FILE: digests.seal(atomic.encoded(atomic.json_text(facts)))}
    for rank in run.manifests:
        files |= OfRank(run, rank, kept, work).files(facts["settings"])
        if sum(map(len, files.values())) > LARGEST:
            raise too_large(run.path)
    return DistilledRecord(files, {kind.name: steps for kind, steps in kept.items() if steps}, left_out)


def too_large(path: Path) -> RecordError:
    """Return the error for a run that is too large for one file."""
    return RecordError(
        f"{path} is more than the {LARGEST >> 20} MiB that a distilled run may hold; keep fewer steps: --batches 0 --sketches 0"
    )


def had(run: Run, kind: Quantity) -> list[int]:
    """Return the steps of a quantity in a run; of sketches, those of stored tensors too."""
    return run.steps_of(kind.name) if kind.sketch_of is None else run.sketch_steps(kind.sketch_of.name)


def _left_out(run: Run, kind: Quantity, kept: Sequence[int]) -> str:
    """Return the steps, as text, that the run or its source recorded and that are not kept."""
    lost = sorted(set(run.steps_of(kind.name)) - set(kept))
    before = run.facts.distilled.left_out.get(kind.name) if run.facts.distilled is not None else None
    return ",".join(filter(None, [before, ranges(lost)]))


def asked(run: Run, kept: Mapping[Quantity, Sequence[int]]) -> JsonObject:
    """Return the run's settings with the kept steps in place of the requested ones; of sketches, steps that have every possible kind."""
    settings: JsonObject = {**run.facts.settings, WHOLE.name: None}
    for switch in SWITCHES:
        possible = [(kind.possible(run.steps), set(kept.get(kind, ()))) for kind in asked_by(switch)]
        numbers = sorted(set.union(*(held for _, held in possible)))
        settings[switch.name] = ranges([n for n in numbers if all(n in held or n not in may for may, held in possible)]) or "none"
    return settings


@dataclass(frozen=True)
class OfRank:
    """One rank's files in a distilled record."""

    run: Run
    rank: int
    kept: Mapping[Quantity, Sequence[int]]
    """Quantity to the kept steps."""
    work: WorkPool
    _listed: dict[int, dict[str, str]] = field(default_factory=dict, init=False)
    """Step to the list of its row."""

    def files(self, settings: JsonObject) -> dict[str, bytes]:
        """Return name to content, for a run with these settings."""
        files: dict[str, bytes] = {}
        for kind in (kind for kind in KEPT if kind is not SCALARS):
            if not kind.is_rows:
                files |= self._of_steps(kind)
            elif lines := [self._line(kind, step, row) for step, row in self._rows(kind)]:
                files[self._name(layout.rows(self.run.path, kind.name, self.rank))] = b"".join(lines)
        files[self._name(layout.scalars(self.run.path, self.rank))] = b"".join(map(self._scalars, self.run.steps))
        files[self._name(layout.manifest(self.run.path, self.rank))] = self._manifest(settings)
        return files

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self.run.path))

    def _manifest(self, settings: JsonObject) -> bytes:
        content = read_sealed(inside(self.run.path, layout.manifest(self.run.path, self.rank)))
        counts = Counter(kind.variable for kind, steps in self.kept.items() for _ in steps)
        kept = {key: value for key, value in content.items() if key not in DROPPED}
        kept |= {"settings": settings, "recorded": dict(counts)}
        return digests.seal(atomic.encoded(atomic.json_text(kept)))

    def _scalars(self, step: int) -> bytes:
        row = {key: value for key, value in to_builtins(self.run.committed[self.rank].rows[step]).items() if key not in OF_LINE}
        return digests.seal(self._text({**row, "files": self._listed.get(step, {})})) + b"\n"

    def _line(self, kind: Quantity, step: int, content: JsonObject) -> bytes:
        line = self._text({**content, "step": step})
        self._list(kind, step, kind.name, digests.xxh3(line))
        return line + b"\n"

    def _text(self, row: JsonObject) -> bytes:
        ids = {"rank": self.rank, "segment": self.run.manifests[self.rank].segment}
        return atomic.encoded(atomic.json_text({**row, **ids}, indent=None))

    def _list(self, kind: Quantity, number: int, name: str, digest: str) -> None:
        """List a file in the row where a run would: a state with the update that makes it, the first with the first step."""
        step = number - 1 if kind.is_state and number > self.run.steps[0] else number
        self._listed.setdefault(step, {})[f"{number}/{name}"] = digest

    def _rows(self, kind: Quantity) -> Iterator[tuple[int, JsonObject]]:
        """Yield the kept rows of a quantity; of stored tensors, rows of sketches."""
        recorded = self.run.lines(kind.name, self.rank)
        for index, step in enumerate(self.kept[kind]):
            if step in recorded.steps:
                yield step, {key: value for key, value in recorded.row(step).items() if key not in ("rank", "segment")}
            else:
                self.work.progress(message("progress.distilling", kind=kind.name, step=step), index, len(self.kept[kind]))
                yield step, {"step": step, "definition": DEFINITION, "sums": as_stored(self._sketches(kind, step))}

    def _sketches(self, kind: Quantity, step: int) -> dict[str, list[float]]:
        """Return sketches of this rank's shards of stored tensors."""
        assert kind.sketch_of is not None
        tensors: Tensors = getattr(self.run, kind.sketch_of.name)(step)
        shards = self.run.counted(self.rank, trainable=kind.trainable)
        parts = [next(held.part for held in tensors.whole(shard.name).held if held.rank == self.rank) for shard in shards]
        sums = self.work.map(_sketched, list(zip(parts, shards, strict=True)), [part.stop - part.start for part in parts])
        return dict(zip((shard.name for shard in shards), sums, strict=True))

    def _of_steps(self, kind: Quantity) -> dict[str, bytes]:
        """Return the files of a quantity in the directories of the steps."""
        files: dict[str, bytes] = {}
        for step in self.kept[kind]:
            place = layout.step(self.run.path, step, self.rank)
            for name in kind.files:
                if name == WHOLE_ACTIVATIONS or not self.run.has_file(self.rank, step, name):
                    continue
                path, digest = self.run.file(self.rank, step, name)
                self._list(kind, step, name, digest or "")
                files[self._name(path)] = _bytes(path)
            for array in self.run.source(step, self.rank).described().arrays if kind is BATCHES else ():
                files[self._name(place / f"{array}.npy")] = _bytes(inside(self.run.path, place / f"{array}.npy"))
        return files


def _sketched(of: tuple[StoredTensor, Shard]) -> list[float]:
    part, shard = of
    return [float(number) for number in sketch(part.stored(), shard)]


def _bytes(path: Path) -> bytes:
    with readable(path, "; copy it again, or record the run again"), opened(path) as file:
        if file.size > LARGEST:
            raise too_large(path)
        return bytes(file.read(0, file.size))
