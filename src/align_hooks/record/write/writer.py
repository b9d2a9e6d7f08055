"""One rank's writer: numpy in, files out.

The row of scalars comes last in a step and commits it, with the digests of everything that the step wrote: a job
killed at any moment leaves a readable record up to its last whole step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, TypeVar

from msgspec import field

from align_hooks.names.blocks import PADDING
from align_hooks.quantities import activations, batches, gradients, local_norms, optimizer_state, routing, scalars, weights
from align_hooks.quantities.kind import Quantity
from align_hooks.quantities.registry import SKETCHES
from align_hooks.record.format import digests, folder, layout
from align_hooks.record.format.ending import HowEnded
from align_hooks.record.format.layout import Array
from align_hooks.record.format.sketch import DEFINITION, as_stored
from align_hooks.record.write import atomic, step_files
from align_hooks.record.write.record_start import RecordStart

Content = TypeVar("Content")


class Writer(RecordStart):
    """The writer of one rank's record, from the lock on the directory to the end.

    After :meth:`describe`, raises OSError where the disk is full or fails, and RecordError where another job took the
    directory.
    """

    _rows: dict[Path, BinaryIO] = field(default_factory=dict)
    _listed: dict[str, str] = field(default_factory=dict)

    def scalars(self, row: Mapping[str, object]) -> None:
        """Append the row that completes a step and lists everything written since the last row."""
        path = layout.scalars(self.run, self.launch.rank)
        listed, self._listed = self._listed, {}
        wrote_files = any(key.partition("/")[2] not in layout.LINES for key in listed)
        if wrote_files:  # files are synced; so is the row that lists them, after the other rows that it lists
            self._sync()
        self._append(path, digests.seal(self._line({**row, "files": listed})))
        if wrote_files:
            self._sync()
        self._count(scalars.SCALARS)

    def local_norms(
        self,
        step: int,
        point: str,
        squared: Mapping[str, float],
        taken: Sequence[Mapping[str, object]] = (),
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """Append the squared sums of this rank's shards, copies included, and of its ``weights``; ``taken`` are members of
        :class:`.rows.Norm`."""
        content = {"point": point, "squared": dict(squared), "taken": [dict(norm) for norm in taken]}
        self.row(local_norms.LOCAL_NORMS, step, content | ({"weights": dict(weights)} if weights else {}))

    def sketches(self, kind: Quantity, step: int, sums: Mapping[str, Sequence[float]]) -> None:
        """Append the sketches of gradients or weights (:mod:`.format.sketch`), without copies."""
        self.row(SKETCHES[kind.name], step, {"definition": DEFINITION, "sums": as_stored(sums)})

    def row(self, kind: Quantity, step: int, content: Mapping[str, object]) -> None:
        """Append one step's row of a quantity."""
        line = self._line({"step": step, **content})
        self._append(layout.rows(self.run, kind.name, self.launch.rank), line)
        self._listed[f"{step}/{kind.name}"] = digests.xxh3(line)
        self._count(kind)

    def _line(self, row: Mapping[str, object]) -> bytes:
        return atomic.encoded(atomic.json_text({**row, "rank": self.launch.rank, "segment": self.segment}, indent=None))

    def _count(self, kind: Quantity) -> None:
        """Count a written step of a quantity under its variable."""
        self.written[kind.variable] += 1

    def _append(self, path: Path, line: bytes) -> None:
        self._check()
        if path not in self._rows:
            folder.make(self.run, path.parent)
            _make_ready(path)
            self._rows[path] = path.open("ab")
        self._rows[path].write(line + b"\n")
        self._rows[path].flush()

    def _sync(self) -> None:
        for file in self._rows.values():
            atomic.sync(file.fileno())

    def batch(self, step: int, batch: step_files.StepBatch) -> None:
        """Write a step's batch."""
        self._files(batches.BATCHES, step, step_files.write_batch, batch)

    def routing(self, step: int, choices: step_files.StepChoices) -> None:
        """Write the experts of each token of a step."""
        self._files(routing.ROUTING, step, step_files.write_routing, choices)

    def activations(self, step: int, made: step_files.StepActivations) -> None:
        """Write the values of a step's points."""
        self._files(activations.ACTIVATIONS, step, step_files.write_activations, made)

    def _files(
        self, kind: Quantity, step: int, write: Callable[[Path, int, int, Content, str], Mapping[str, str]], content: Content
    ) -> None:
        self._check()
        written = write(self.run, step, self.launch.rank, content, self.segment)
        self._listed |= {f"{step}/{name}": digest for name, digest in written.items()}
        self._count(kind)

    def gradients(self, step: int, tensors: Mapping[str, Array]) -> None:
        """Write a step's gradients, canonical name to fp32."""
        self._tensors(step, layout.GRADIENTS, tensors)
        self._count(gradients.GRADIENTS)

    def weights(
        self, step: int, tensors: Mapping[str, Array], config: Mapping[str, object], squared: Mapping[str, float] | None = None
    ) -> None:
        """Write the fp32 weights after ``step`` updates as a Hugging Face checkpoint; the model file comes last and commits.

        A rank that holds only copies passes no tensors; ``squared`` are the squared sums of all its shards, copies included.
        """
        if squared:
            self._json(step, layout.SQUARED, squared)
        padding = {name: tensor for name, tensor in tensors.items() if name.endswith(PADDING)}
        # no model loads a part, or a model of no family
        if tensors and self._holds_all and not {weights.NO_FAMILY, weights.UNKNOWN} & config.keys():
            self._json(step, layout.CONFIG, config)
        if padding:  # no Hugging Face tensor has padded rows of the vocabulary
            self._tensors(step, layout.WEIGHT_PADDING, padding)
        self._tensors(step, layout.MODEL, {name: tensor for name, tensor in tensors.items() if name not in padding})
        self._count(weights.WEIGHTS)

    def optimizer_state(
        self, step: int, moments: Mapping[str, Mapping[str, Array]], updates: int, dtypes: Mapping[str, str] | None = None
    ) -> None:
        """Write Adam's fp32 moments after ``step`` updates of the run, by the name of the moment.

        ``updates`` is the exponent of the bias correction; ``dtypes`` maps a moment to its type in the optimizer.
        """
        for moment, tensors in moments.items():
            self._tensors(step, f"optimizer_state/{moment}.safetensors", tensors)
        state = {"updates": updates, "moments": list(moments), "dtypes": dict(dtypes or {}), "segment": self.segment}
        self._json(step, layout.STATE, state)
        self._count(optimizer_state.OPTIMIZER_STATE)

    def _tensors(self, step: int, name: str, tensors: Mapping[str, Array]) -> None:
        self._check()
        self._listed[f"{step}/{name}"] = step_files.write_tensors(self.run, step, self.launch.rank, name, tensors, self.segment)

    def _json(self, step: int, name: str, content: Mapping[str, object]) -> None:
        self._check()
        path = layout.step(self.run, step, self.launch.rank) / name
        folder.make(self.run, path.parent)
        self._listed[f"{step}/{name}"] = atomic.write_json(path, content)

    def finish(self, how: HowEnded, *, hooks: Mapping[str, object]) -> None:
        """Close the rows, write how the run ended and release the directory, also after an early stop.

        A start that failed before the model was built leaves the earlier record as it was.
        """
        try:
            for file in self._rows.values():
                file.flush()
                atomic.sync(file.fileno())
                file.close()
            self._rows.clear()
            self._check()
            ended = {"ended": str(how), "end": how.facts()}
            self._manifest |= {"hooks": dict(hooks), "recorded": dict(self.written), "files": self._listed, **ended}
            if self._described or (self._earlier is None and self._is_of_this_job()):
                atomic.write_sealed(layout.manifest(self.run, self.launch.rank), self._manifest)
        finally:
            if self._claim is not None:
                self._claim.release(unused=self._earlier is not None and not self._described)


def _make_ready(path: Path) -> None:
    """Cut a torn last line, or end a row that lacks only the line's end; copy a file with another hard link first."""
    if not path.exists():
        return
    content = path.read_bytes()
    last = content.rfind(b"\n") + 1
    whole = content + b"\n" if digests.WHOLE_ROW.search(content[last:]) else content[:last]
    if whole != content or folder.is_shared(path):
        atomic.write_bytes(path, whole)
