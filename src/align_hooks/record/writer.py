"""One rank's writer: numpy in, files out.

The row of scalars is written last in a step and is what makes the step count, so a job killed at any moment leaves a
record that is readable up to its last whole step.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from align_hooks.errors import RecordError, RefusedRun
from align_hooks.launch import Launch
from align_hooks.record import atomic, layout
from align_hooks.record.continued import continued
from align_hooks.record.files import EMPTY, read_json
from align_hooks.record.plan import ELEMENT
from align_hooks.record.plan import tensors as tensors_planned
from align_hooks.record.shard import Shard
from align_hooks.settings import PREFIX, Settings

Array = NDArray[Any]


@dataclass
class Writer:
    """The record of one rank, from its first claim on the directory to its last word.

    Raises RefusedRun where the directory cannot be used; after :meth:`begin`, OSError where the disk gives out.
    """

    run: Path
    launch: Launch
    side: str
    settings: Settings
    written: Counter[str] = field(default_factory=Counter)
    _rows: dict[Path, TextIO] = field(default_factory=dict)
    _manifest: dict[str, Any] = field(default_factory=dict)
    _earlier: dict[str, Any] = field(default_factory=dict)
    _holds_all: bool = False

    def begin(self) -> None:
        """Claim this rank's manifest, honouring ``RUN_EXISTS``."""
        rank, how = self.launch.rank, self.settings.run_exists
        path = layout.manifest(self.run, rank)
        taken = (
            f"{PREFIX}RUN={self.run} already holds a run of rank {rank}; "
            f"choose another directory, or set {PREFIX}RUN_EXISTS=replace (or continue, for a resumed run)"
        )
        if how == "refuse" and next(self.run.glob(f"step_*/rank_{rank}"), None):  # perhaps made by hand, with no manifest
            raise RefusedRun(taken)
        self._manifest = {
            "format": layout.FORMAT,
            "side": self.side,
            "rank": rank,
            "launch": self.launch.facts(),
            "settings": self.settings.as_text(),
            "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "ended": None,
        }
        try:
            if how == "replace":
                self._remove_earlier()
            if how == "continue" and path.exists():
                self._earlier = read_json(path)
                self._manifest["segments"] = [
                    *self._earlier.get("segments", []),
                    {key: self._earlier.get(key) for key in ("started", "ended")},
                ]
                atomic.write_json(path, self._manifest)
            else:
                atomic.create(path, self._manifest)
        except FileExistsError:
            if not _is_over(path) or _holds_anything(self.run):
                raise RefusedRun(taken) from None
            atomic.write_json(path, self._manifest)
        except OSError as error:
            raise RefusedRun(
                f"{PREFIX}RUN={self.run} cannot be written: {error.strerror or error}; choose a directory that you may write to"
            ) from None

    def _remove_earlier(self) -> None:
        mine = {self.launch.rank}
        if self.launch.rank == 0:  # an earlier, larger job left ranks that nobody else will replace
            mine |= {rank for rank in layout.ranks(self.run) if rank >= self.launch.world_size}
            layout.run_file(self.run).unlink(missing_ok=True)
            layout.causal_mask(self.run).unlink(missing_ok=True)
        for rank in mine:
            rows = [layout.scalars(self.run, rank), layout.local_norms(self.run, rank)]
            rows += [layout.sketches(self.run, kind, rank) for kind in layout.SKETCHED]
            for path in (layout.manifest(self.run, rank), *rows):
                path.unlink(missing_ok=True)
            for path in self.run.glob(f"step_*/rank_{rank}"):
                shutil.rmtree(path)

    def describe(self, *, place: Mapping[str, int], shards: Sequence[Shard], facts: Mapping[str, Any], steps: range) -> None:
        """Write what is known once model and optimizer are built, before the first step.

        ``facts`` are those of the whole run (versions, overrides, model, optimizer, training); rank 0 writes them.
        ``steps`` are those that the run intends. Raises RefusedRun where the disk cannot hold the plan, and where a
        continued run is another model or was injected from another run.
        """
        table = [shard.facts() for shard in shards]
        whole = all(shard.local_shape == shard.shape for shard in shards if shard.counted)
        self._holds_all = whole and all(place.get(f"{axis}_size", 1) == 1 for axis in ("tp", "pp", "ep"))
        elements = sum(shard.elements for shard in shards if shard.counted)
        planned = ELEMENT * elements * tensors_planned(self.settings, steps)
        try:
            free = shutil.disk_usage(self.run).free
            if planned > free:
                raise RefusedRun(
                    f"recording needs {planned / 1e9:.1f} GB on rank {self.launch.rank} and {self.run} has {free / 1e9:.1f} GB free; "
                    f"choose fewer steps in {PREFIX}GRADIENTS, {PREFIX}WEIGHTS and {PREFIX}OPTIMIZER_STATE, or another disk"
                )
            groups = (facts.get("optimizer") or {}).get("groups", [])
            self._manifest |= {"place": dict(place), "parameters": table, "groups": groups, "planned_bytes": planned}
            run_facts = {"format": layout.FORMAT, "run_id": secrets.token_hex(8), "side": self.side, "world_size": self.launch.world_size}
            run_facts |= {"created": self._manifest["started"], "settings": self.settings.as_text(), "planned_steps": len(steps)}
            run_facts |= facts
            if self._earlier and layout.run_file(self.run).exists():
                run_facts = continued(read_json(layout.run_file(self.run)), run_facts, steps.start, self.run)
            if self._earlier:
                self._continue_from(steps.start)
            atomic.write_json(layout.manifest(self.run, self.launch.rank), self._manifest)
            if self.launch.rank == 0:
                atomic.write_json(layout.run_file(self.run), run_facts)
        except OSError as error:
            raise RefusedRun(f"{PREFIX}RUN={self.run} cannot be written: {error.strerror or error}; choose another disk") from None

    def _continue_from(self, first: int) -> None:
        """Drop what an earlier segment recorded beyond ``first``: it is made again. Refuse another side or model."""
        written = json.loads(atomic.json_text(self._manifest))
        for key in ("side", "parameters"):
            if self._earlier.get(key) not in (None, written[key]):
                raise RefusedRun(f"{PREFIX}RUN_EXISTS=continue: {self.run} holds a run of another {key}; choose another directory")
        for kind in layout.SKETCHED:
            _keep_rows(layout.sketches(self.run, kind, self.launch.rank), first if kind == "gradients" else first + 1)
        for path in self.run.glob(f"step_*/rank_{self.launch.rank}"):
            number = layout.number(path.parent.name, "step_")
            if number is not None and number > first:
                shutil.rmtree(path)
            elif number == first:
                for stale in ("batch.json", "gradients.safetensors"):
                    (path / stale).unlink(missing_ok=True)

    def scalars(self, row: Mapping[str, Any]) -> None:
        """Append the row that completes a step."""
        self._append(layout.scalars(self.run, self.launch.rank), row)
        self.written["scalars"] += 1

    def local_norms(self, step: int, point: str, squared: Mapping[str, float], taken: Sequence[Mapping[str, Any]] = ()) -> None:
        """Append one step's squared sums, canonical name to fp64, of what this rank holds, copies too.

        ``taken`` are the global norms that the framework took of gradients of its own choice: ``norm`` its result, ``same`` and
        ``exact`` this rank's squared part of it as the framework and as we take it, ``ranks`` and ``first`` the number of ranks
        whose parts make the norm, and the lowest of them.
        """
        row = {"step": step, "point": point, "squared": dict(squared), "taken": [dict(one) for one in taken]}
        self._append(layout.local_norms(self.run, self.launch.rank), row)
        self.written["local_norms"] += 1

    def sketches(self, kind: str, step: int, sums: Mapping[str, Sequence[float]]) -> None:
        """Append one step's sketches of ``gradients`` or ``weights``, canonical name to fp64 sums of :mod:`.sketch`, without copies."""
        self._append(
            layout.sketches(self.run, kind, self.launch.rank), {"step": step, "sums": {name: list(one) for name, one in sums.items()}}
        )
        self.written["sketches"] += 1

    def _append(self, path: Path, row: Mapping[str, Any]) -> None:
        if path not in self._rows:
            path.parent.mkdir(parents=True, exist_ok=True)
            _drop_torn_row(path)
            self._rows[path] = path.open("a", encoding="utf-8")
        self._rows[path].write(atomic.json_text(row, indent=None) + "\n")
        self._rows[path].flush()

    def batch(
        self,
        step: int,
        arrays: Mapping[str, Array],
        rows: Sequence[int],
        *,
        slices: Sequence[Sequence[int]] | None = None,
        joined_first: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a step's batch; see :func:`write_batch`."""
        write_batch(self.run, step, self.launch.rank, arrays, rows, slices=slices, joined_first=joined_first)
        self.written["batches"] += 1

    def gradients(self, step: int, tensors: Mapping[str, Array]) -> None:
        """Write a step's gradients, canonical name to fp32."""
        write_tensors(self.run, step, self.launch.rank, "gradients.safetensors", tensors)
        self.written["gradients"] += 1

    def weights(
        self, step: int, tensors: Mapping[str, Array], config: Mapping[str, Any], squared: Mapping[str, float] | None = None
    ) -> None:
        """Write the weights after ``step`` updates, canonical name to fp32, as a Hugging Face checkpoint directory.

        Padded vocabulary rows go to a file of their own: no Hugging Face tensor has them. The model file is written
        last and makes the set whole. A rank whose tensors all are copies that another one writes gives none; ``squared`` are the
        squared sums of everything that it holds, copies too.
        """
        place = layout.step(self.run, step, self.launch.rank) / "weights"
        if squared:
            atomic.write_json(place / "squared.json", squared)
        padding = {name: tensor for name, tensor in tensors.items() if name.endswith(layout.PADDING)}
        if tensors and self._holds_all:  # of a part of a model it would make a checkpoint that no model can load
            atomic.write_json(place / "config.json", config)
        if padding:
            write_tensors(self.run, step, self.launch.rank, "weights/padding.safetensors", padding)
        model = {name: tensor for name, tensor in tensors.items() if name not in padding}
        write_tensors(self.run, step, self.launch.rank, "weights/model.safetensors", model)
        self.written["weights"] += 1

    def optimizer_state(
        self, step: int, moments: Mapping[str, Mapping[str, Array]], updates: int, dtypes: Mapping[str, str] | None = None
    ) -> None:
        """Write Adam's moments after ``step`` updates of the run: moment name to canonical name to fp32.

        ``updates`` is the optimizer's own count, the exponent of its bias correction. ``dtypes`` are those in which it keeps
        each moment, by name of the moment.
        """
        for moment, tensors in moments.items():
            write_tensors(self.run, step, self.launch.rank, f"optimizer_state/{moment}.safetensors", tensors)
        place = layout.step(self.run, step, self.launch.rank) / "optimizer_state"
        atomic.write_json(place / "state.json", {"updates": updates, "moments": list(moments), "dtypes": dict(dtypes or {})})
        self.written["optimizer_state"] += 1

    def finish(self, *, hooks: Mapping[str, Any], ended: str) -> None:
        """Close the rows and write how the run ended; may be called when recording has stopped early too."""
        for file in self._rows.values():
            file.flush()
            os.fsync(file.fileno())
            file.close()
        self._rows.clear()
        self._manifest |= {"hooks": dict(hooks), "recorded": dict(self.written), "ended": ended}
        atomic.write_json(layout.manifest(self.run, self.launch.rank), self._manifest)


def holds_a_run(run: Path) -> bool:
    """Whether a directory holds what ``RUN_EXISTS=refuse`` protects: anything recorded, or a rank that is not over.

    A start that was refused, and recorded nothing, must not block the next.
    """
    return _holds_anything(run) or not all(_is_over(layout.manifest(run, rank)) for rank in layout.ranks(run))


def _is_over(manifest: Path) -> bool:
    try:
        return bool(read_json(manifest).get("ended"))
    except RecordError:
        return False


def _holds_anything(run: Path) -> bool:
    recorded = ("scalars/rank_*", "local_norms/rank_*", "sketches/*/rank_*", "step_*/rank_*")
    return any(next(run.glob(one), None) for one in recorded)


def write_batch(
    run: Path,
    step: int,
    rank: int,
    arrays: Mapping[str, Array],
    rows: Sequence[int],
    *,
    slices: Sequence[Sequence[int]] | None = None,
    joined_first: Mapping[str, Any] | None = None,
) -> None:
    """Write one rank's batch of a step: arrays joined along the batch axis, and how many rows each micro-batch had.

    ``slices`` are the positions [start, stop) of the sequence that a context-parallel rank has, None for all. A pipeline stage
    that sees nothing of the batch writes none.

    ``joined_first`` is said where the ranks do not train on the rows that they were fed: those of the data-parallel ranks, in their
    order, are one batch, which is only then cut into ``micro_batches``; with ``whole`` every rank was fed all of that batch.

    ``attention_mask`` is bool, True where attention is forbidden, ``[rows or 1, 1, sequence, sequence]``; a causal one is
    written once for the run. ``batch.json`` comes last and makes the batch whole.
    """
    place = layout.step(run, step, rank)
    facts: dict[str, Any] = {"rows": list(rows), "arrays": {}, "attention_mask": None, "ids": id_range(arrays)}
    if slices is not None:
        facts["slices"] = [list(one) for one in slices]
    if joined_first is not None:
        facts["joined_first"] = dict(joined_first)
    for name in layout.BATCH_ARRAYS:
        if name not in arrays:
            continue
        array = arrays[name]
        if name == "attention_mask":
            facts["attention_mask"] = "causal" if is_causal(array) else "own"
            if facts["attention_mask"] == "causal":
                if rank == 0 and not layout.causal_mask(run).exists():
                    atomic.write_array(layout.causal_mask(run), array[:1])
                continue
        atomic.write_array(place / f"{name}.npy", array)
        facts["arrays"][name] = {"dtype": str(array.dtype), "shape": list(array.shape), "sha256": digest(array)}
    atomic.write_json(place / "batch.json", facts)


def write_tensors(run: Path, step: int, rank: int, name: str, tensors: Mapping[str, Array]) -> None:
    """Write one rank's tensors of a step, canonical name to fp32, as safetensors; raises RecordError for another dtype."""
    wrong = [one for one, tensor in tensors.items() if tensor.dtype != np.float32]
    if wrong:
        raise RecordError(f"{name}: {wrong[0]} is {tensors[wrong[0]].dtype}, a record keeps float32")
    whole = {one: np.ascontiguousarray(tensor) for one, tensor in tensors.items()}
    path = layout.step(run, step, rank) / name

    def write(temporary: Path) -> None:
        if whole:
            save_file(whole, temporary, metadata={"format": "pt"})
        else:
            temporary.write_bytes(EMPTY)

    atomic.replace(path, write)


def is_causal(mask: Array) -> bool:
    """Whether a bool mask, True where attention is forbidden, forbids exactly what lies after each position."""
    size = mask.shape[-1]
    return mask.ndim == 4 and mask.shape[-2] == size and bool((mask == ~np.tri(size, dtype=bool)).all())


def id_range(arrays: Mapping[str, Array]) -> list[int] | None:
    """Lowest and highest id among tokens and among the labels that the loss mask lets count; None with neither."""
    labels, mask = arrays.get("labels"), arrays.get("loss_mask")
    if labels is not None and mask is not None:
        labels = labels[mask > 0]
    found = [array for array in (arrays.get("tokens"), labels) if array is not None and array.size]
    return [int(min(array.min() for array in found)), int(max(array.max() for array in found))] if found else None


def digest(array: Array) -> str:
    """SHA-256 of an array's bytes in C order."""
    return (
        hashlib.sha256(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data).hexdigest()
        if array.size
        else hashlib.sha256().hexdigest()
    )


def _drop_torn_row(path: Path) -> None:
    """Cut a last line that a killed run left without its end, so that the next row starts on a line of its own."""
    if path.exists() and (content := path.read_bytes()) and not content.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(content.rfind(b"\n") + 1)


def _keep_rows(path: Path, stop: int) -> None:
    """Drop the rows of step ``stop`` and later, which are made again or, where nobody asks for them, are of another run by then."""
    if path.exists():
        kept = [line for line in path.read_text(encoding="utf-8").split("\n")[:-1] if json.loads(line)["step"] < stop]
        atomic.write_text(path, "".join(f"{line}\n" for line in kept))
