"""A record, read back without a framework.

A file that is not whole, not ours or contradicts itself is a RecordError that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce
from pathlib import Path

import numpy as np
from msgspec import to_builtins

from align_hooks.errors import RecordError, shown
from align_hooks.messages import Message, message
from align_hooks.process.archive import is_archive, read_archive
from align_hooks.process.storage import is_remote, place_of, size_of
from align_hooks.process.work import Work
from align_hooks.quantities.batches import BATCHES
from align_hooks.quantities.gradients import GRADIENTS
from align_hooks.quantities.kind import Kind
from align_hooks.quantities.local_norms import LOCAL_NORMS
from align_hooks.quantities.optimizer_state import OPTIMIZER_STATE
from align_hooks.quantities.registry import BY_NAME, SKETCHES
from align_hooks.quantities.scalars import SCALARS
from align_hooks.quantities.weights import WEIGHTS
from align_hooks.record import last_words, layout, sums
from align_hooks.record.activations import Activations, read_activations
from align_hooks.record.batch import Batch, BatchFacts, Source, described, read_batch, read_batch_facts
from align_hooks.record.committed import Committed, read_committed
from align_hooks.record.ending import Ending, ending
from align_hooks.record.files import read_json
from align_hooks.record.folder import inside
from align_hooks.record.layout import Array, JsonObject
from align_hooks.record.lines import Lines
from align_hooks.record.manifests import read_facts, read_manifests, refuse_lost_manifests
from align_hooks.record.norm_rows import NormRows, read_norm_rows
from align_hooks.record.problems import Problem, ProblemKind, lacking
from align_hooks.record.random_states import whole
from align_hooks.record.rank_rows import Columns
from align_hooks.record.routing import Routing, counts_of, read_routing
from align_hooks.record.scalar_rows import merged_rows
from align_hooks.record.schema import Description, Facts, Manifest, NormRow, RankRow, Row, State, structured
from align_hooks.record.self_check import SelfCheck, self_check
from align_hooks.record.shard import Shard
from align_hooks.record.state import StepState
from align_hooks.record.sums import Sketches, sketches_of
from align_hooks.record.tensors import Tensors
from align_hooks.record.weakness import weakness
from align_hooks.settings import PREFIX, Steps

SLOWER = 64
"""How many times longer a byte of a row takes to read than one of a tensor."""


@dataclass(frozen=True, slots=True)
class OptimizerState:
    """Adam's state: ``moments`` maps ``exp_avg`` and ``exp_avg_sq`` to canonical name → whole fp32 array. ``updates`` is the exponent of
    the bias correction in the last update. ``dtypes`` maps a moment's name to the type in which the optimizer keeps it, ``float32`` or
    ``bfloat16``; empty where the record does not say."""

    updates: int
    moments: Mapping[str, Tensors]
    dtypes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Run:
    """A recorded run; made by :func:`open_run`."""

    path: Path
    facts: Facts
    manifests: Mapping[int, Manifest]
    _norm_rows: dict[int, NormRows] = field(default_factory=dict, init=False, compare=False)
    _lines: dict[tuple[str, int], Lines] = field(default_factory=dict, init=False, compare=False)
    _known_steps: dict[str, list[int]] = field(default_factory=dict, init=False, compare=False)
    _step_sets: dict[str, set[int]] = field(default_factory=dict, init=False, compare=False)
    _sketched: dict[tuple[str, int], Sketches] = field(default_factory=dict, init=False, compare=False)

    def __repr__(self) -> str:
        ranks = f"{self.world_size} ranks, " if self.world_size > 1 else ""
        faults = f", {len(self.problems)} problems" if self.problems else ""
        return f"Run({str(self.path)!r}, {self.facts.framework or 'made by hand'}, {ranks}{len(self.steps)} steps{faults})"

    @property
    def manifest(self) -> JsonObject:
        """The content of ``run.json``, for scripts; :attr:`facts` is the same with types."""
        return dict(to_builtins(self.facts))

    @property
    def made_by_hand(self) -> bool:
        """Whether this is a directory of bare ``step_N/rank_M`` arrays."""
        return not self.manifests

    @property
    def world_size(self) -> int:
        """How many ranks the job had, by the launcher; 0 for a directory made by hand."""
        return next((manifest.launch.world_size for manifest in self.manifests.values()), 0)

    @cached_property
    def steps(self) -> list[int]:
        """The steps that every rank completed, ascending; for a directory made by hand, those with tokens."""
        if self.made_by_hand:
            return layout.steps_with(self.path, 0, "tokens.npy")
        common: list[int] = reduce(np.intersect1d, (committed.rows.steps for committed in self.committed.values())).tolist()
        return common

    def columns(self, steps: Sequence[int]) -> dict[int, Columns]:
        """What each rank's rows of scalars hold side by side, of whole steps."""
        return {rank: committed.rows.columns(np.array(steps, np.int64)) for rank, committed in self.committed.items()}

    @cached_property
    def missing(self) -> Problem | None:
        """How many ranks left no manifest and which is the first; None where no rank is missing."""
        count = self.world_size - len(self.manifests)
        if count <= 0:
            return None
        first = next(rank for rank in range(self.world_size) if rank not in self.manifests)
        words = message("run.ranks_missing", count=count, ranks=self.world_size, rank=first)
        return Problem(ProblemKind.RANKS_MISSING, words, rank=first)

    @cached_property
    def problems(self) -> list[Problem]:
        """Why the run is not whole: ranks that are missing, ended early or stopped recording, and files that were lost since."""
        return [] if self.made_by_hand else list(lacking(self))

    @cached_property
    def endings(self) -> dict[int, Ending]:
        """How each rank ended, by its manifest, or by its last words where the manifest does not say."""
        return {
            rank: ending(rank, manifest.end, manifest.ended, None if manifest.ended else last_words.read(self.path, rank))
            for rank, manifest in self.manifests.items()
        }

    @property
    def weaker(self) -> list[Message | str]:
        """What a record needs of its file system and did not get where this run was recorded."""
        return [weakness(text) for text in dict.fromkeys(text for manifest in self.manifests.values() for text in manifest.weaker)]

    @cached_property
    def undigested(self) -> list[int]:
        """The steps without digests, because they were recorded before format 2: a change in them goes unnoticed."""
        return sorted({step for committed in self.committed.values() for step in committed.unlisted})

    @property
    def without_digests(self) -> Message | None:
        """The consequence of :attr:`undigested`; None where every step has digests."""
        return message("run.without_digests", count=len(self.undigested)) if self.undigested else None

    def shards(self, rank: int) -> Sequence[Shard]:
        """A rank's parameter table."""
        return self.manifests[rank].parameters

    def counted(self, rank: int, *, trainable: bool = True) -> list[Shard]:
        """The shards of a rank that are no copies; with ``trainable`` only those of trainable parameters."""
        return [shard for shard in self.shards(rank) if shard.counted and (shard.trainable or not trainable)]

    @cached_property
    def rows(self) -> list[Row]:
        """One row a whole step, ascending, losses put together over the ranks that hold a loss. ``loss`` weighs every valid token alike;
        ``objective_loss`` is the mean over data-parallel ranks, or the same as ``loss`` in a run that differentiates per token."""
        per_token = bool(self.facts.training.per_token_loss)
        rows = {rank: committed.rows for rank, committed in self.committed.items()}
        return merged_rows(rows, self.steps, self.manifests, per_token=per_token) if self.manifests else []

    def scalars(self) -> list[JsonObject]:
        """The same rows as tables, without values that no rank recorded."""
        return [to_builtins(row) for row in self.rows]

    def row(self, step: int) -> Row | None:
        """The row of ``step``; None where the step is not whole."""
        return self._by_step.get(step)

    @cached_property
    def _by_step(self) -> dict[int, Row]:
        return {row.step: row for row in self.rows}

    def local_norms(self, step: int) -> dict[str, float]:
        """Canonical name to the norm of its whole gradient; raises RecordError where a missing rank holds a part of a gradient."""
        return sums.norms(self, step)

    def read_ahead(self, work: Work) -> None:
        """Read the rows of all ranks by the workers of ``work``, where they are long; a row that cannot be read raises RecordError here."""
        paths = {rank: [layout.rows(self.path, name, rank) for name in (SCALARS.name, LOCAL_NORMS.name)] for rank in self.manifests}
        sizes = [SLOWER * sum(size_of(path) for path in of_rank) for of_rank in paths.values()]
        if not work.is_shared(sizes):
            return
        read = work.map(partial(_rows, self.path), list(self.manifests.items()), sizes)
        of_ranks = dict(zip(self.manifests, read, strict=True))
        self.__dict__["committed"] = {rank: committed for rank, (committed, _) in of_ranks.items()}
        self._norm_rows.update({rank: norms for rank, (_, norms) in of_ranks.items() if norms is not None})

    def norm_rows(self, rank: int) -> NormRows:
        """A rank's squared sums of all steps."""
        if rank not in self._norm_rows:
            self._norm_rows[rank] = read_norm_rows(self.lines(LOCAL_NORMS.name, rank), self.shards(rank))
        return self._norm_rows[rank]

    def weight_squares(self, rank: int, step: int) -> dict[str, float]:
        """Canonical name to the squared sum of a rank's part of the weights after ``step`` updates, copies included."""
        if not self.has_file(rank, step, layout.SQUARED):
            return {}
        path, digest = self.file(rank, step, layout.SQUARED)
        return structured(NormRow, {"squared": read_json(path, digest)}, path, numbers=("squared",)).squared

    def weight_norms(self, step: int) -> dict[str, float]:
        """Canonical name to the norm of its whole weight after ``step`` updates, of the squared sums on record; without those that have
        none."""
        return sums.weight_norms(self, step)

    def batch_descriptions(self, step: int) -> dict[int, Description]:
        """Each rank's batch.json."""
        return {rank: described(self.source(step, rank)) for rank in self.manifests}

    def file(self, rank: int, step: int, name: str) -> tuple[Path, str | None]:
        """The path of a step's file, by its name in :mod:`.layout`, and its digest, None without one; raises RecordError where the file is
        missing, and where a link leads out of the run."""
        path = inside(self.path, layout.step(self.path, step, rank) / name)
        if not path.exists():
            raise RecordError(f"{path} is missing; copy it again, or record step {step} again")
        return path, self.committed[rank].digest(name, step)

    def has_file(self, rank: int, step: int, name: str) -> bool:
        """Whether a file was recorded: a row lists it, or rows list nothing and the file exists."""
        committed = self.committed[rank]
        if step in committed.listed.get(name, {}):
            return True
        return committed.may_be_unlisted(name, step) and (layout.step(self.path, step, rank) / name).exists()

    def source(self, step: int, rank: int) -> Source:
        """The directory of a rank's batch."""
        return Source(self.path, layout.step(self.path, step, rank), self.committed[rank].digest(layout.BATCH, step))

    def lines(self, name: str, rank: int) -> Lines:
        """A rank's rows of a quantity, by its name."""
        if (name, rank) not in self._lines:
            self._lines[name, rank] = _lines(self.path, name, rank, self.committed[rank])
        return self._lines[name, rank]

    def rank_rows(self, step: int) -> dict[int, RankRow]:
        """Each rank's own row of scalars."""
        return {rank: committed.rows[step] for rank, committed in self.committed.items()}

    def random_states(self, step: int) -> dict[int, list[dict[str, str]]]:
        """Each rank's digests of its random generators' states: at the start of the step, then of each micro-batch (:mod:`.random_states`).
        The list ends at the last micro-batch before which a generator moved; it is empty where the run recorded no states."""
        return {rank: whole(row.random) for rank, row in self.rank_rows(step).items()}

    def state(self, step: int) -> dict[int, StepState]:
        """What each rank started a step from beside weights, moments and generators (:mod:`.state`); empty where the run recorded none."""
        return {rank: row.state for rank, row in self.rank_rows(step).items()}

    @cached_property
    def unrecorded_inputs(self) -> list[str]:
        """Names of the model's inputs beside the batch, on any rank: they are neither recorded nor replayed."""
        return sorted({name for committed in self.committed.values() for name in committed.rows.unrecorded_inputs})

    @cached_property
    def self_check(self) -> SelfCheck:
        """Whether the ranks together hold every element once and copies are copies (:mod:`.self_check`)."""
        return self_check(self)

    def asked(self, kind: str) -> Steps:
        """For which steps the run was asked to record ``kind``, the name of a recording setting."""
        return self.facts.asked(kind)

    def steps_of(self, quantity: str) -> list[int]:
        """The steps, ascending, that have a quantity on every rank: whole steps, or the numbers N of updates of a state."""
        kind = BY_NAME[quantity]
        if kind is SCALARS or (kind.saved_by_hand and self.made_by_hand):
            return self.steps
        if quantity not in self._known_steps:
            of_ranks = [self.lines(kind.name, rank).steps if kind.is_rows else self.recorded(rank, kind.whole) for rank in self.manifests]
            known = set.intersection(*map(set, of_ranks)) if of_ranks else set()
            self._known_steps[quantity] = sorted(known if kind.is_state else known & set(self.steps))
        return list(self._known_steps[quantity])

    def has(self, quantity: str, step: int) -> bool:
        """Whether :meth:`steps_of` a quantity has a step, however many there are."""
        return step in self._set(quantity, partial(self.steps_of, quantity))

    def has_sketches(self, kind: str, step: int) -> bool:
        """Whether :meth:`sketch_steps` of a kind has a step."""
        return step in self._set(f"{kind}, stored or sketched", partial(self.sketch_steps, kind))

    def _set(self, key: str, steps: Callable[[], list[int]]) -> set[int]:
        """Steps as a set, which is made once."""
        if key not in self._step_sets:
            self._step_sets[key] = set(steps())
        return self._step_sets[key]

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
        committed = self.committed[rank]
        yield from committed.listed.get(name, {})
        if committed.older is not None:
            yield from (step for step in layout.steps_with(self.path, rank, name) if committed.may_be_unlisted(name, step))

    def gradients(self, step: int) -> Tensors:
        """Gradients of ``step``: reduced, unscaled, not clipped."""
        return self._tensors(step, GRADIENTS, layout.GRADIENTS)

    def weights(self, step: int) -> Tensors:
        """Weights after ``step`` updates."""
        return self._tensors(step, WEIGHTS, layout.MODEL, layout.WEIGHT_PADDING)

    def sketch_steps(self, kind: str) -> list[int]:
        """Steps whose ``gradients`` or ``weights`` were sketched, or stored, so that they can be sketched; numbered as these are."""
        sketches = SKETCHES[kind]
        written = set(self.steps_of(sketches.name)) & sketches.possible(self.steps)
        return sorted(written | set(self.steps_of(kind)))

    def sketches(self, kind: str, step: int) -> Sketches:
        """Canonical name to sketch of whole ``gradients`` or ``weights``, made from the tensors where only these were stored."""
        sums.refuse_parts(self, "sketch")
        files = {rank: self.lines(SKETCHES[kind].name, rank) for rank in self.manifests}
        if files and all(step in file.steps for file in files.values()):
            return sums.sketches(self, kind, step, files)
        if (kind, step) not in self._sketched:
            self._sketched[kind, step] = sketches_of(self.gradients(step) if kind == "gradients" else self.weights(step))
        return self._sketched[kind, step]

    def optimizer_state_steps(self) -> list[int]:
        """Numbers N for which the optimizer's state after N updates is recorded."""
        return self.steps_of(OPTIMIZER_STATE.name)

    def optimizer_state(self, step: int) -> OptimizerState:
        """Adam's moments after ``step`` updates, and how many updates the optimizer counted."""
        moments = {moment: self._tensors(step, OPTIMIZER_STATE, f"optimizer_state/{moment}.safetensors") for moment in layout.MOMENTS}
        path, digest = self.file(min(self.manifests), step, layout.STATE)
        state = structured(State, read_json(path, digest), path)
        return OptimizerState(state.updates, moments, state.dtypes)

    def _tensors(self, step: int, kind: Kind, required: str, *optional: str) -> Tensors:
        files = {}
        for rank in self.manifests:
            if not self.has_file(rank, step, required):
                path = layout.step(self.path, step, rank) / required
                raise RecordError(f"{path} is missing; record the run with {PREFIX}{kind.variable.upper()}={step}")
            names = (required, *(name for name in optional if self.has_file(rank, step, name)))
            files[rank] = [self.file(rank, step, name) for name in names]
        if not files:
            raise RecordError(
                f"{self.path} was made by hand and holds no tensors; record the run with {PREFIX}{kind.variable.upper()}={step}"
            )
        return Tensors(files, {rank: self.counted(rank, trainable=kind.trainable) for rank in files})

    def batch(self, step: int, names: Sequence[str] = layout.BATCH_ARRAYS) -> Batch:
        """The batch that ``step`` consumed on all data-parallel ranks, with the arrays of ``names``; raises RecordError where a file is not
        whole."""
        return read_batch(self, step, names)

    def batch_facts(self, step: int) -> BatchFacts:
        """Facts of a batch, after checking that its files are whole; of a recorded batch only headers are read."""
        return read_batch_facts(self, step)

    def routing(self, step: int) -> Routing:
        """The experts that each token of ``step`` was given to, layer by layer; raises RecordError where a file is not whole."""
        return read_routing(self, step)

    def activations(self, step: int) -> Activations:
        """What each point of the forward pass put out in ``step``, and its gradient; raises RecordError where a file is not whole."""
        return read_activations(self, step)

    def expert_counts(self, step: int) -> dict[str, Array]:
        """How many tokens of ``step`` each expert was given on all ranks: the name of a layer's router to int64 ``[experts]``, in the order
        of the layers; empty of a model without experts."""
        return counts_of(self, step)

    @cached_property
    def committed(self) -> dict[int, Committed]:
        """Rank to the rows that count, with the names that they list."""
        return {rank: _committed(self.path, rank, manifest) for rank, manifest in self.manifests.items()}


def _committed(run: Path, rank: int, manifest: Manifest) -> Committed:
    return read_committed(inside(run, layout.scalars(run, rank)), manifest)


def _lines(run: Path, name: str, rank: int, committed: Committed) -> Lines:
    unlisted = partial(committed.may_be_unlisted, name) if committed.older is not None else None
    return Lines(inside(run, layout.rows(run, name, rank)), committed.listed.get(name, {}), unlisted)


def _rows(run: Path, of_rank: tuple[int, Manifest]) -> tuple[Committed, NormRows | None]:
    """A rank's rows of scalars and of norms, None where it has no norms."""
    rank, manifest = of_rank
    committed = _committed(run, rank, manifest)
    lines = _lines(run, LOCAL_NORMS.name, rank, committed)
    return committed, read_norm_rows(lines, manifest.parameters) if lines.steps else None


def open_run(path: str | Path) -> Run:
    """Open a recorded run, or a directory made by hand with the guide's snippet (batches only). ``path`` may be the address of an object
    storage that ``fsspec`` knows, ``s3://bucket/run``, where it is read in place, or a file that ``align-hooks distill`` wrote. Raises
    RecordError where there is nothing, a format of another version, or ranks of different jobs."""
    try:
        run = path if not isinstance(path, str) and is_remote(path) else place_of(path)
        if not run.is_dir() and is_archive(run):
            run = read_archive(run, layout.is_file_of_record)
    except ValueError as error:
        raise RecordError(f"{shown(str(path))} {error}") from None
    if not run.is_dir():
        raise RecordError(f"{run} is not a directory; give the directory that ALIGN_HOOKS_RUN named")
    inside(run, run / "manifest")
    ranks = layout.ranks(run)
    if not ranks:
        refuse_lost_manifests(run)
        if not layout.steps_with(run, 0, "tokens.npy"):
            raise RecordError(f"{run} holds no run: neither manifest/rank_0.json nor step_N/rank_0/tokens.npy is there")
        return Run(run, Facts(), {})
    manifests, groups = read_manifests(run, ranks)
    return Run(run, read_facts(run, manifests, groups), manifests)
