"""A record, read back without a framework.

Ranks are put together here: tensors from their shards, batches from their data-parallel ranks, norms from squared sums.
Whatever is not whole, not ours or contradicts itself is a RecordError that names the file.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from align_hooks.errors import RecordError, shown
from align_hooks.job.paths import path_of
from align_hooks.messages import Message, message, rendered, sentences
from align_hooks.quantities.batches import BATCHES
from align_hooks.quantities.gradients import GRADIENTS
from align_hooks.quantities.kind import Kind
from align_hooks.quantities.local_norms import LOCAL_NORMS
from align_hooks.quantities.optimizer_state import OPTIMIZER_STATE
from align_hooks.quantities.registry import BY_NAME, ROWS, SKETCHES
from align_hooks.quantities.scalars import SCALARS
from align_hooks.quantities.weights import WEIGHTS
from align_hooks.record import last_words, layout
from align_hooks.record.batch import Batch, BatchFacts, Part, Source, batch_json, in_sequence, join, merged, read_part, read_part_by_hand
from align_hooks.record.checks import check_row
from align_hooks.record.committed import Committed, Segment, read_committed, segments
from align_hooks.record.ending import End, Ending, ending
from align_hooks.record.files import read_json
from align_hooks.record.folder import inside
from align_hooks.record.lines import Lines
from align_hooks.record.lost import lost
from align_hooks.record.manifests import read_facts, read_manifests
from align_hooks.record.norm_rows import NormRows, read_norm_rows, squared_numbers
from align_hooks.record.pieces import id_range
from align_hooks.record.problems import Problem, ProblemKind
from align_hooks.record.random_states import whole
from align_hooks.record.scalar_rows import merged_row, number
from align_hooks.record.self_check import SelfCheck, self_check
from align_hooks.record.shard import Shard
from align_hooks.record.sketch_rows import Sketches, added_up, of_tensors
from align_hooks.record.tensors import Tensors
from align_hooks.record.weakness import weakness
from align_hooks.settings import PREFIX, Steps


@dataclass(frozen=True, slots=True)
class OptimizerState:
    """Adam's state: ``moments`` maps ``exp_avg`` and ``exp_avg_sq`` to canonical name → whole fp32 array.

    ``updates`` is the exponent of the bias correction that made the last update. ``dtypes`` maps a moment's name to the type
    in which the optimizer keeps it, ``float32`` or ``bfloat16``; empty where the record does not say.
    """

    updates: int
    moments: Mapping[str, Tensors]
    dtypes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Run:
    """A recorded run; made by :func:`open_run`."""

    path: Path
    facts: Mapping[str, Any]
    manifests: Mapping[int, Mapping[str, Any]]
    tables: Mapping[int, Sequence[Shard]]

    def __repr__(self) -> str:
        ranks = f"{self.world_size} ranks, " if self.world_size > 1 else ""
        faults = f", {len(self.problems)} problems" if self.problems else ""
        return f"Run({str(self.path)!r}, {self.facts.get('framework', 'made by hand')}, {ranks}{len(self.steps)} steps{faults})"

    @property
    def manifest(self) -> Mapping[str, Any]:
        """What the run was: ``run.json``. Empty for a directory made by hand with the guide's snippet."""
        return self.facts

    @property
    def made_by_hand(self) -> bool:
        """Whether this is a directory of bare ``step_N/rank_M`` arrays."""
        return not self.manifests

    @property
    def world_size(self) -> int:
        """How many ranks the job had, by the launcher; 0 for a directory made by hand."""
        return next((int(manifest["launch"]["world_size"]) for manifest in self.manifests.values()), 0)

    @cached_property
    def steps(self) -> list[int]:
        """The steps that every rank completed, ascending; for a directory made by hand, those with tokens."""
        if self.made_by_hand:
            return layout.steps_with(self.path, 0, "tokens.npy")
        done = [set(one.rows) for one in self.committed.values()]
        return sorted(set.intersection(*done)) if done else []

    @cached_property
    def missing(self) -> Problem | None:
        """How many ranks left no manifest and which is the first; None where all are there."""
        count = self.world_size - len(self.manifests)
        if count <= 0:
            return None
        first = next(rank for rank in range(self.world_size) if rank not in self.manifests)
        words = message("run.ranks_missing", count=count, ranks=self.world_size, rank=first)
        return Problem(ProblemKind.RANKS_MISSING, words, rank=first)

    @cached_property
    def problems(self) -> list[Problem]:
        """Why the run is not whole: ranks that are missing, ended early or stopped recording, and what was lost since."""
        if self.made_by_hand:
            return []
        missing = [self.missing] if self.missing is not None else []
        return [*missing, *self._gaps(), *self._unfinished(), *lost(self)]

    def _gaps(self) -> Iterator[Problem]:
        if not self.facts:
            yield Problem(ProblemKind.FACTS_MISSING, message("run.facts_missing"), place="run.json")
        gaps = [step + 1 for step, after in zip(self.steps, self.steps[1:], strict=False) if after != step + 1]
        if gaps:
            yield Problem(ProblemKind.STEP_MISSING, message("run.step_missing", step=gaps[0]), step=gaps[0])

    def _unfinished(self) -> Iterator[Problem]:
        last = self.steps[-1] if self.steps else None
        whole = message("run.last_whole_step", step=last) if last is not None else message("run.no_whole_step")
        for rank, one in self.endings.items():
            if one.end is not End.FINISHED:
                yield Problem(ProblemKind.NOT_FINISHED, sentences(one.message, whole), rank, last, f"manifest/rank_{rank}.json")

    @cached_property
    def endings(self) -> dict[int, Ending]:
        """How each rank ended: as its manifest has it, or its last words where it did not come to write that."""
        return {
            rank: ending(rank, manifest.get("ended"), None if manifest.get("ended") else last_words.read(self.path, rank))
            for rank, manifest in self.manifests.items()
        }

    @property
    def weaker(self) -> list[Message | str]:
        """What the file system that it was recorded on could not do of what a record rests on."""
        texts = dict.fromkeys(str(text) for manifest in self.manifests.values() for text in manifest.get("weaker") or ())
        return [weakness(text) for text in texts]

    @cached_property
    def undigested(self) -> list[int]:
        """The steps of which no digest was kept, because they were recorded before format 2: what was changed in them is not noticed."""
        return sorted({step for one in self.committed.values() for step in one.unlisted})

    @property
    def without_digests(self) -> Message | None:
        """What :attr:`undigested` means; None where every step has digests."""
        return message("run.without_digests", count=len(self.undigested)) if self.undigested else None

    def shards(self, rank: int) -> Sequence[Shard]:
        """A rank's parameter table."""
        return self.tables[rank]

    def scalars(self) -> list[dict[str, Any]]:
        """One row a whole step, ascending, losses put together over the ranks that hold one.

        ``loss`` weighs every valid token alike; ``objective_loss`` is the mean over data-parallel ranks, or the same as
        ``loss`` in a run that differentiates per token.
        """
        return [dict(row) for row in self._merged]

    def row(self, step: int) -> Mapping[str, Any]:
        """The row of ``step``, as :meth:`scalars` returns it; empty where the step is not whole."""
        return self._by_step.get(step, {})

    @cached_property
    def _by_step(self) -> dict[int, dict[str, Any]]:
        return {row["step"]: row for row in self._merged}

    @cached_property
    def _merged(self) -> list[dict[str, Any]]:
        if self.made_by_hand:
            return []
        places = {rank: manifest.get("place") or {} for rank, manifest in self.manifests.items()}
        per_token = bool((self.facts.get("training") or {}).get("per_token_loss"))
        return [merged_row(self.rank_rows(step), places, self.world_size, per_token=per_token) for step in self.steps]

    def local_norms(self, step: int) -> dict[str, float]:
        """Canonical name to the norm of its whole gradient at ``step``; raises RecordError where a missing rank holds a part of one."""
        self._refuse_lost("norm")
        total: dict[str, float] = {}
        for rank in self.manifests:
            rows = self.norm_rows(rank)
            squared = rows.of(step).tolist()
            for shard in self.shards(rank):
                if shard.counted and shard.trainable:
                    total[shard.name] = total.get(shard.name, 0.0) + squared[rows.names[shard.name]]
        return {name: math.sqrt(squared) for name, squared in total.items()}

    def _refuse_lost(self, what: str) -> None:
        if self.missing is not None and self._lost:
            why = rendered(self.missing.message)
            raise RecordError(f"{self.path}: the {what} of {self._lost[0]} is not whole: {why}; copy or record every rank")

    @cached_property
    def _lost(self) -> list[str]:
        """Tensors of which a missing rank holds a part."""
        held: dict[str, int] = {}
        whole: dict[str, int] = {}
        for shard in (shard for rank in self.manifests if self.missing for shard in self.shards(rank) if shard.counted):
            held[shard.name] = held.get(shard.name, 0) + shard.elements
            whole[shard.name] = math.prod(shard.shape)
        return [name for name in held if held[name] < whole[name]]

    def counted_totals(self, steps: Sequence[int]) -> dict[int, float]:
        """Step to the sum of all squared sums that count."""
        total = np.zeros(len(steps))
        for rank in self.manifests:
            rows = self.norm_rows(rank)
            columns = [rows.names[shard.name] for shard in self.shards(rank) if shard.counted and shard.trainable]
            total += rows.squared[[rows.steps[step] for step in steps]][:, columns].sum(axis=1)
        return dict(zip(steps, total.tolist(), strict=True))

    def norm_rows(self, rank: int) -> NormRows:
        """A rank's squared sums of all steps."""
        if rank not in self._norm_rows:
            self._norm_rows[rank] = read_norm_rows(self.lines(LOCAL_NORMS.name, rank), self.shards(rank))
        return self._norm_rows[rank]

    def weight_squares(self, rank: int, step: int) -> dict[str, float]:
        """Canonical name to the squared sum of what a rank held of the weights after ``step`` updates, copies too."""
        if not self._has(rank, step, layout.SQUARED):
            return {}
        path, digest = self.file(rank, step, layout.SQUARED)
        return squared_numbers(read_json(path, digest), str(path))

    def batch_descriptions(self, step: int) -> dict[int, dict[str, Any]]:
        """What each rank's batch.json says."""
        return {rank: batch_json(self._source(step, rank)) for rank in self.manifests}

    def file(self, rank: int, step: int, name: str) -> tuple[Path, str | None]:
        """Where a file of a step lies, by its name in :mod:`.layout`, and its digest, None where none was kept; raises RecordError where it
        was recorded and is not there, and where a link leads out of the run."""
        path = inside(self.path, layout.step(self.path, step, rank) / name)
        if not path.exists():
            raise RecordError(f"{path} is missing; copy it again, or record step {step} again")
        return path, self.committed[rank].digest(name, step)

    def _has(self, rank: int, step: int, name: str) -> bool:
        """Whether a file was recorded: whether a row lists it, or where rows list nothing, whether it is there."""
        one = self.committed[rank]
        if step in one.listed.get(name, {}):
            return True
        return one.older is not None and self._may_be_unlisted(one, name, step) and (layout.step(self.path, step, rank) / name).exists()

    @staticmethod
    def _may_be_unlisted(one: Committed, name: str, step: int) -> bool:
        """Whether of a step something may count that no row lists."""
        if layout.is_state(name):
            return one.older is not None and one.older.counts(name, step)
        return step in one.unlisted

    def _source(self, step: int, rank: int) -> Source:
        return Source(self.path, layout.step(self.path, step, rank), self.committed[rank].digest(layout.BATCH, step))

    def lines(self, name: str, rank: int) -> Lines:
        """A rank's rows of a quantity, by its name."""
        if (name, rank) not in self._lines:
            one = self.committed[rank]
            path = inside(self.path, layout.rows(self.path, name, rank))
            unlisted = functools.partial(self._may_be_unlisted, one, name) if one.older is not None else None
            self._lines[name, rank] = Lines(path, one.listed.get(name, {}), unlisted)
        return self._lines[name, rank]

    @cached_property
    def _lines(self) -> dict[tuple[str, int], Lines]:
        return {}

    def rank_rows(self, step: int) -> dict[int, dict[str, Any]]:
        """Each rank's own row of scalars."""
        return {rank: table[step] for rank, table in self._checked.items()}

    def random_states(self, step: int) -> dict[int, list[dict[str, str]]]:
        """Each rank's digests of its random generators' states: at the start of the step, then of each micro-batch (:mod:`.random_states`).

        The list ends where no generator moved any more; it is empty where the run recorded none.
        """
        return {rank: whole(row.get("random") or []) for rank, row in self.rank_rows(step).items()}

    @cached_property
    def unrecorded_inputs(self) -> list[str]:
        """Names of what the model was given beside the batch, on any rank: it is neither recorded nor replayed."""
        return sorted({name for table in self._checked.values() for row in table.values() for name in row.get("unrecorded_inputs") or ()})

    @cached_property
    def self_check(self) -> SelfCheck:
        """Whether the ranks together hold every element once and copies are copies; see :mod:`.self_check`."""
        return self_check(self)

    def asked(self, kind: str) -> Steps:
        """For which steps the run was asked to record ``kind``, the name of a recording setting."""
        return Steps.parse((self.facts.get("settings") or {}).get(kind) or "none")

    def steps_of(self, quantity: str) -> list[int]:
        """Of which steps every rank recorded a quantity, by its name, ascending: whole steps, or of a state the numbers N of updates."""
        kind = BY_NAME[quantity]
        if kind is SCALARS or (kind.saved_by_hand and self.made_by_hand):
            return self.steps
        if quantity not in self._known_steps:
            tables = [set(self._steps_on(rank, kind)) for rank in self.manifests]
            known = set.intersection(*tables) if tables else set()
            self._known_steps[quantity] = sorted(known if kind.is_state else known & set(self.steps))
        return list(self._known_steps[quantity])

    def _steps_on(self, rank: int, kind: Kind) -> Iterable[int]:
        return self.lines(kind.name, rank).steps if kind.is_rows else self.recorded(rank, kind.whole)

    def local_norm_steps(self) -> list[int]:
        """Whole steps that have local norms."""
        return self.steps_of(LOCAL_NORMS.name)

    def gradient_steps(self) -> list[int]:
        """Whole steps whose gradients are recorded."""
        return self.steps_of(GRADIENTS.name)

    def weight_steps(self) -> list[int]:
        """Numbers N for which the weights after N updates are recorded."""
        return self.steps_of(WEIGHTS.name)

    def batch_steps(self) -> list[int]:
        """Steps whose batch is recorded by every rank."""
        return self.steps_of(BATCHES.name)

    def recorded(self, rank: int, name: str) -> Iterator[int]:
        """The steps of which a rank recorded a file, or a row, by its name in :mod:`.layout`."""
        one = self.committed[rank]
        yield from one.listed.get(name, {})
        if one.older is not None:
            yield from (step for step in layout.steps_with(self.path, rank, name) if self._may_be_unlisted(one, name, step))

    @cached_property
    def _known_steps(self) -> dict[str, list[int]]:
        """Quantity to the steps that have it on every rank, looked for once."""
        return {}

    def gradients(self, step: int) -> Tensors:
        """Gradients of ``step``: reduced, unscaled, not clipped."""
        return self._tensors(step, GRADIENTS, layout.GRADIENTS)

    def weights(self, step: int) -> Tensors:
        """Weights after ``step`` updates."""
        return self._tensors(step, WEIGHTS, layout.MODEL, layout.WEIGHT_PADDING)

    def sketch_steps(self, kind: str) -> list[int]:
        """Steps of which ``gradients`` or ``weights`` were sketched, or stored, of which a sketch can be made; numbered as these are."""
        sketches = SKETCHES[kind]
        written = set(self.steps_of(sketches.name)) & sketches.possible(self.steps)
        return sorted(written | set(self.steps_of(kind)))

    def sketches(self, kind: str, step: int) -> Sketches:
        """Canonical name to sketch (:mod:`.sketch`) of whole ``gradients`` or ``weights``; made here where only the tensors were stored."""
        self._refuse_lost("sketch")
        files = self._sketch_files[kind]
        if not files or not all(step in file.steps for file in files.values()):
            if (kind, step) not in self._sketched:
                self._sketched[kind, step] = of_tensors(getattr(self, kind)(step))
            return self._sketched[kind, step]
        shards = {
            file.path: [one for one in self.shards(rank) if one.counted and (one.trainable or not SKETCHES[kind].trainable)]
            for rank, file in files.items()
        }
        return added_up({file.path: file.row(step) for file in files.values()}, shards, step)

    @cached_property
    def _sketch_files(self) -> dict[str, dict[int, Lines]]:
        """Kind to rank to rows."""
        return {kind: {rank: self.lines(sketches.name, rank) for rank in self.manifests} for kind, sketches in SKETCHES.items()}

    @cached_property
    def _sketched(self) -> dict[tuple[str, int], Sketches]:
        """Sketches that were made of tensors, each once."""
        return {}

    def optimizer_state_steps(self) -> list[int]:
        """Numbers N for which the optimizer's state after N updates is recorded."""
        return self.steps_of(OPTIMIZER_STATE.name)

    def optimizer_state(self, step: int) -> OptimizerState:
        """Adam's moments after ``step`` updates, and how many updates the optimizer counted."""
        moments = {moment: self._tensors(step, OPTIMIZER_STATE, f"optimizer_state/{moment}.safetensors") for moment in layout.MOMENTS}
        path, digest = self.file(min(self.manifests), step, layout.STATE)
        state = read_json(path, digest)
        updates, dtypes = state.get("updates"), state.get("dtypes", {})
        if type(updates) is not int or not 0 <= updates < 1 << 53:
            raise RecordError(f"{path}: updates is {str(updates)[:40]!r}, not a number of updates; record the run again")
        if not isinstance(dtypes, dict) or not all(isinstance(one, str) for one in dtypes.values()):
            raise RecordError(f"{path}: dtypes is {str(dtypes)[:40]!r}, not a type a moment; record the run again")
        return OptimizerState(updates, moments, dtypes)

    def _tensors(self, step: int, kind: Kind, required: str, *optional: str) -> Tensors:
        files = {}
        for rank in self.manifests:
            if not self._has(rank, step, required):
                path = layout.step(self.path, step, rank) / required
                raise RecordError(f"{path} is missing; record the run with {PREFIX}{kind.variable.upper()}={step}")
            names = (required, *(name for name in optional if self._has(rank, step, name)))
            files[rank] = [self.file(rank, step, name) for name in names]
        if not files:
            raise RecordError(
                f"{self.path} was made by hand and holds no tensors; record the run with {PREFIX}{kind.variable.upper()}={step}"
            )
        tables = {rank: [one for one in self.shards(rank) if one.counted and (one.trainable or not kind.trainable)] for rank in files}
        return Tensors(files, tables)

    def batch(self, step: int, names: Sequence[str] = layout.BATCH_ARRAYS) -> Batch:
        """The batch that ``step`` consumed on all data-parallel ranks, with the arrays of ``names``; raises RecordError where a file is not
        whole."""
        return join(step, self._batch_parts(step, names))

    def batch_facts(self, step: int) -> BatchFacts:
        """What a batch is, after checking that its files are whole; of a recorded batch only headers are read."""
        if self.made_by_hand:
            arrays = self.batch(step).arrays()
            shapes, ranges = [arrays["tokens"].shape], [id_range(arrays)]
        else:
            shapes, ranges = [], []
            for parts in self._batch_files(step).values():
                facts = [one for places in parts.values() for one in places.values()]
                local = [
                    next(one["arrays"]["tokens"]["shape"] for one in places.values() if "tokens" in one["arrays"])
                    for places in parts.values()
                    if any("tokens" in one["arrays"] for one in places.values())
                ]
                cut = any(one.get("slices") for one in facts)
                shapes += [(local[0][0], sum(shape[1] for shape in local) if cut else local[0][1])] if local else []
                ranges += [one["ids"] for one in facts]
                for source, one in ((source, one) for places in parts.values() for source, one in places.items()):
                    for name in one["arrays"]:
                        source.array(name, headers_only=True)
                if any((one.get("joined_first") or {}).get("whole") for one in facts):
                    break  # the others were fed the same
        found = [one for one in ranges if one]
        if not shapes or not found:
            raise RecordError(f"{self.path}: the batch of step {step} has no tokens")
        lowest, highest = min(low for low, _ in found), max(high for _, high in found)
        return BatchFacts(sequence=shapes[0][1], rows=sum(shape[0] for shape in shapes), lowest=lowest, highest=highest)

    def _batch_files(self, step: int) -> dict[int, dict[int, dict[Source, dict[str, Any]]]]:
        """Data-parallel index to context-parallel index to the fewest ranks that saw all of the batch there: place and batch.json.

        Tensor-parallel ranks are fed the same, so one of each stage is looked at.
        """
        files: dict[int, dict[int, dict[Source, dict[str, Any]]]] = {}
        stages: dict[tuple[int, int, int], int] = {}
        for rank, manifest in sorted(self.manifests.items()):
            where = manifest.get("place", {})
            stages.setdefault((where.get("dp", 0), where.get("cp", 0), where.get("pp", 0)), rank)
        for (dp, cp, _), rank in stages.items():
            place = self._source(step, rank)
            facts = batch_json(place)
            seen = files.setdefault(dp, {}).setdefault(cp, {})
            if not seen or facts["arrays"].keys() - {name for one in seen.values() for name in one["arrays"]}:
                seen[place] = facts
        return files

    def _batch_parts(self, step: int, names: Sequence[str]) -> list[Part]:
        if self.made_by_hand:
            ranks = range(len(list(inside(self.path, self.path / f"step_{step}").glob("rank_*"))))
            return [read_part_by_hand(Source(self.path, layout.step(self.path, step, rank))) for rank in ranks]
        return [
            in_sequence(
                [merged([read_part(place, names) for place in places[index]]) for index in sorted(places)], f"{self.path}: step {step}"
            )
            for _, places in sorted(self._batch_files(step).items())
        ]

    @cached_property
    def committed(self) -> dict[int, Committed]:
        """Rank to the rows that count, and what they list."""
        return {
            rank: read_committed(inside(self.path, layout.scalars(self.path, rank)), self.segments(rank), manifest)
            for rank, manifest in self.manifests.items()
        }

    def segments(self, rank: int) -> tuple[Segment, ...]:
        """The starts of the job that a rank's record is made of, earliest first."""
        return segments(self.manifests[rank], layout.manifest(self.path, rank))

    @cached_property
    def _checked(self) -> dict[int, dict[int, dict[str, Any]]]:
        """The same, every row whole and its numbers numbers."""
        for rank, one in self.committed.items():
            for step, row in one.rows.items():
                check_row(row, f"{layout.scalars(self.path, rank)}: step {step}")
        return {
            rank: {step: {key: number(value) for key, value in row.items()} for step, row in one.rows.items()}
            for rank, one in self.committed.items()
        }

    @cached_property
    def _norm_rows(self) -> dict[int, NormRows]:
        return {}


def open_run(path: str | Path) -> Run:
    """Open a recorded run, or a directory made by hand with the guide's snippet (batches only).

    Raises RecordError where there is nothing, a format of another version, or ranks of different jobs.
    """
    try:
        run = path_of(path)
    except ValueError as error:
        raise RecordError(f"{shown(str(path))} {error}") from None
    if not run.is_dir():
        raise RecordError(f"{run} is not a directory; give the directory that ALIGN_HOOKS_RUN named")
    inside(run, run / "manifest")
    ranks = layout.ranks(run)
    if not ranks:
        _refuse_lost_manifests(run)
        if not layout.steps_with(run, 0, "tokens.npy"):
            raise RecordError(f"{run} holds no run: neither manifest/rank_0.json nor step_N/rank_0/tokens.npy is there")
        return Run(run, {}, {}, {})
    manifests, tables, groups = read_manifests(run, ranks)
    return Run(run, read_facts(run, manifests, groups), manifests, tables)


def _refuse_lost_manifests(run: Path) -> None:
    """Raise RecordError where a record of ours has lost all of its manifests: it is no directory made by hand."""
    ours = [layout.run_file(run), *(run / kind.name for kind in ROWS)]
    ours += [path / layout.BATCH for path in layout.step_folders(run, 0) if _was_recorded(run, path / layout.BATCH)][:1]
    left = [path for path in ours if os.path.lexists(path)]
    if left:
        raise RecordError(
            f"{run} has lost its manifests: {left[0].relative_to(run)} is there and manifest/rank_0.json is not; copy it again"
        )


def _was_recorded(run: Path, path: Path) -> bool:
    """Whether a description of a batch is a hook's: those of the guide's snippet in its place have none, or name no segment."""
    try:
        return "segment" in read_json(inside(run, path))
    except RecordError:
        return False
