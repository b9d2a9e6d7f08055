"""A record, read back without a framework.

A file that is not whole, not ours or contradicts itself is a RecordError that names it. ``docs/python.md`` shows what is here.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, to_builtins

from align_hooks.errors import RecordError, shown
from align_hooks.messages import Message
from align_hooks.process.archive import is_archive, read_archive
from align_hooks.process.storage import is_remote, place_of
from align_hooks.quantities.activations import ACTIVATIONS
from align_hooks.quantities.batches import BATCHES
from align_hooks.quantities.gradients import GRADIENTS
from align_hooks.quantities.kind import Quantity
from align_hooks.quantities.local_norms import LOCAL_NORMS
from align_hooks.quantities.optimizer_state import OPTIMIZER_STATE
from align_hooks.quantities.routing import ROUTING
from align_hooks.quantities.weights import WEIGHTS
from align_hooks.record.check.gaps import lacking
from align_hooks.record.check.self_check import SelfCheck, self_check
from align_hooks.record.format import layout
from align_hooks.record.format.descriptions import OptimizerStateFacts
from align_hooks.record.format.files import read_json
from align_hooks.record.format.folder import inside
from align_hooks.record.format.layout import Array, JsonObject
from align_hooks.record.format.random_states import whole
from align_hooks.record.format.schema import Facts, ParameterGroup
from align_hooks.record.format.state import StepState
from align_hooks.record.format.storage_limitations import weakness
from align_hooks.record.format.structured import structured
from align_hooks.record.read import dataframes, sums
from align_hooks.record.read.activations import Activations, read_activations
from align_hooks.record.read.batch import Batch, BatchFacts, read_batch, read_batch_facts
from align_hooks.record.read.manifests import read_facts, read_manifests, refuse_lost_manifests
from align_hooks.record.read.problems import Problem
from align_hooks.record.read.routing import Routing, counts_of, read_routing
from align_hooks.record.read.run_rows import RunRows
from align_hooks.record.read.sums import Sketches
from align_hooks.record.read.tensors import Tensors
from align_hooks.record.read.unrecorded import by_hand, sketches_of, unrecorded
from align_hooks.settings import Steps

if TYPE_CHECKING:
    import pandas as pd


ADAMS = ParameterGroup(())
"""Stands for the group of a parameter that no group on record names."""


class OptimizerState(Struct, frozen=True):
    """The optimizer's state."""

    updates: int
    """The exponent of the bias correction in the last update."""
    moments: Mapping[str, Tensors]
    """``exp_avg``, ``exp_avg_sq``, ``momentum_buffer`` to canonical name to full fp32 array; those that the run's optimizer has."""
    dtypes: Mapping[str, str] = {}
    """Moment to its type in the optimizer, ``float32`` or ``bfloat16``; empty where unknown."""


@dataclass(frozen=True, repr=False)
class Run(RunRows):
    """A recorded run; made by :func:`open_run`, which reads manifests alone. Everything else is read when it is asked for.

    ``path`` is where it lies. ``facts`` is its ``run.json`` with types: settings, versions, the model's configuration, the optimizer.
    ``manifests`` maps each rank that left one to it.

    Steps count from 0: step N is the iteration that Megatron-LM and MindFormers print as N+1. What a step makes (scalars, batch, norms,
    gradients, activations) has the step's number. A state (weights, the optimizer's) has the number of updates that were made before it: 0
    is the state before the first step, and the update of step N leads to state N+1.

    Names of tensors are canonical: those of Hugging Face's model, ``model.layers.0.self_attn.q_proj.weight``. Tensors are whole, put
    together from the shards of all ranks. What was not recorded raises RecordError, and so does a file that is missing or was changed.
    """

    _sketched: dict[tuple[str, int], Sketches] = field(default_factory=dict, init=False, compare=False)

    def __repr__(self) -> str:
        ranks = f"{self.world_size} ranks, " if self.world_size > 1 else ""
        faults = f", {len(self.problems)} problems" if self.problems else ""
        return f"Run({str(self.path)!r}, {self.facts.framework or 'made by hand'}, {ranks}{len(self.steps)} steps{faults})"

    # ---- what the run is

    @property
    def manifest(self) -> JsonObject:
        """The content of ``run.json`` as plain dicts, lists, strings and numbers; :attr:`facts` is the same with types."""
        return dict(to_builtins(self.facts))

    def asked(self, kind: str) -> Steps:
        """Return the requested steps of a variable, by its name in small letters: ``5 in run.asked("gradients")``."""
        return self.facts.asked(kind)

    # ---- whether it is whole

    @cached_property
    def problems(self) -> list[Problem]:
        """Why the run is incomplete, each a sentence by ``str``: ranks that are missing, ended early or stopped recording, lost files."""
        return [] if self.made_by_hand else list(lacking(self))

    @cached_property
    def self_check(self) -> SelfCheck:
        """The check that all ranks together hold every element once, and that copies are equal (:mod:`.check.self_check`).

        ``run.self_check.contradictions`` is empty where both hold. Reads all norms; raises RecordError for an incomplete
        file.
        """
        return self_check(self)

    @property
    def storage_limitations(self) -> list[Message | str]:
        """What a record needs of its file system and did not get where this run was recorded."""
        return [
            weakness(text) for text in dict.fromkeys(text for manifest in self.manifests.values() for text in manifest.storage_limitations)
        ]

    @property
    def stale_main_parameters(self) -> list[str]:
        """Names of the tensors whose fp32 main parameter is not, when rounded, what the model computes with at the start of the run."""
        return sorted({shard.name for manifest in self.manifests.values() for shard in manifest.parameters if shard.main_differs})

    @cached_property
    def unrecorded_inputs(self) -> list[str]:
        """Names of the model's inputs beside the batch, on any rank: they are neither recorded nor replayed."""
        return sorted({name for committed in self.committed.values() for name in committed.rows.unrecorded_inputs})

    # ---- numbers of every step

    def scalars(self) -> list[JsonObject]:
        """A dict a whole step, ascending, without what no rank recorded. Keys: ``step``; ``loss``, the mean over all valid tokens of all
        ranks; ``objective_loss``, what was differentiated; ``valid_tokens``; ``consumed_samples``, after the step; ``grad_norm``, before
        clipping; ``clip_coefficient``, which multiplied the gradients; ``learning_rate`` of this step's update, a list where parameter
        groups have different ones; ``loss_scale``; ``skipped``, whether an overflow skipped the update; ``seconds``; and ``terms``, the
        other terms of the loss by name. All are as the framework had them, in full precision."""
        return [to_builtins(row) for row in self.rows]

    def to_frame(self, quantity: str = "scalars") -> pd.DataFrame:
        """A pandas DataFrame with a row a step, whose number is the index. Of ``scalars`` there is a column a number, of ``local_norms``
        one a tensor, fp64. ``run.to_frame().loss.plot()`` draws the loss. Needs pandas (the extra ``pandas``)."""
        return dataframes.of_run(self, quantity)

    def random_states(self, step: int) -> dict[int, list[dict[str, str]]]:
        """Return each rank's digests of its random generators: at the start of the step, then of each micro-batch.

        The list ends at the last micro-batch before which a generator moved, and is empty where the run recorded no
        states (:mod:`.format.random_states`).
        """
        return {rank: whole(row.random) for rank, row in self.rank_rows(step).items()}

    def state(self, step: int) -> dict[int, StepState]:
        """Return each rank's state at the start of a step, without weights, moments and generators; empty where not recorded.

        The state is name to a number, or to the digest of a buffer (:mod:`.format.state`).
        """
        return {rank: row.state for rank, row in self.rank_rows(step).items()}

    # ---- the batch and the results of a step

    def batch(self, step: int, names: Sequence[str] = layout.BATCH_ARRAYS) -> Batch:
        """Return the batch that ``step`` consumed on all data-parallel ranks, with the arrays of ``names``.

        Raises RecordError where the batch was not recorded, or a file is incomplete.
        """
        self._refuse_unrecorded(BATCHES, step)
        return read_batch(self, step, names)

    def batch_facts(self, step: int) -> BatchFacts:
        """Return facts of a batch, after a check of its files; of a recorded batch only headers are read."""
        self._refuse_unrecorded(BATCHES, step)
        return read_batch_facts(self, step)

    def local_norms(self, step: int) -> dict[str, float]:
        """Return the norm (L2, fp64) of each gradient: reduced over data-parallel ranks, unscaled, not clipped.

        Raises RecordError where a missing rank holds a part of a gradient.
        """
        self._refuse_unrecorded(LOCAL_NORMS, step)
        return sums.norms(self, step)

    def gradients(self, step: int) -> Tensors:
        """Return canonical name to full fp32 gradient: reduced over data-parallel ranks, unscaled, not clipped.

        An array is read on access and not kept; ``gradients.shape(name)`` reads none.
        """
        return self._tensors(step, GRADIENTS, layout.GRADIENTS)

    def routing(self, step: int) -> Routing:
        """Return the name of each layer's router, in the order of the layers, to the experts of each token of ``step``.

        Experts are int16 ``[rows, sequence, experts a token]``, ascending, padded by -1. A layer is read on access.
        """
        self._refuse_unrecorded(ROUTING, step)
        return read_routing(self, step)

    def expert_counts(self, step: int) -> dict[str, Array]:
        """Return the name of each layer's router to the tokens of ``step`` by expert on all ranks, int64 ``[experts]``.

        Recorded with the batch; empty for a model without experts.
        """
        self._refuse_unrecorded(BATCHES, step)
        return counts_of(self, step)

    def activations(self, step: int) -> Activations:
        """Return the output of each point of the forward pass of ``step`` as numbers, in the order of the pass.

        A name with ``#gradient`` is of the output's gradient. ``activations.tensor(name)`` is the full value, fp32
        ``[rows, sequence, width]``, where it was kept.
        """
        self._refuse_unrecorded(ACTIVATIONS, step)
        return read_activations(self, step)

    # ---- states, numbered by the updates made before them

    def weights(self, step: int) -> Tensors:
        """Return canonical name to full fp32 weight after ``step`` updates: the optimizer's main parameter where there is one.

        An array is read on access and not kept; ``weights.shape(name)`` reads none.
        """
        return self._tensors(step, WEIGHTS, layout.MODEL, layout.WEIGHT_PADDING)

    def weight_norms(self, step: int) -> dict[str, float]:
        """Return the norm (L2) of each weight after ``step`` updates, from recorded squared sums; without weights that have none."""
        return sums.weight_norms(self, step)

    def optimizer_state(self, step: int) -> OptimizerState:
        """Return the optimizer's state after ``step`` updates."""
        self._refuse_unrecorded(OPTIMIZER_STATE, step)
        groups = self.facts.optimizer.by_parameter() if self.facts.optimizer is not None else {}
        moments = {
            moment: self._tensors(step, OPTIMIZER_STATE, f"optimizer_state/{moment}.safetensors", of=partial(_keeps, groups, moment))
            for moment in layout.ALL_MOMENTS
            if any(group.keeps(moment) for group in groups.values() or (ADAMS,))
        }
        path, digest = self.file(min(self.manifests), step, layout.STATE)
        state = structured(OptimizerStateFacts, read_json(path, digest), path)
        return OptimizerState(state.updates, moments, state.dtypes)

    def sketches(self, kind: str, step: int) -> Sketches:
        """Return the sketch of each of the ``gradients`` or ``weights``, fp64 ``[17]``: the squared sum, then 16 signed sums.

        ``step`` is numbered as the ``kind`` is. Stored tensors are sketched (:mod:`.format.sketch`).
        """
        sketches = sketches_of(kind)
        sums.refuse_parts(self, "sketch")
        files = {rank: self.lines(sketches.name, rank) for rank in self.manifests}
        if files and all(step in file.steps for file in files.values()):
            return sums.sketches(self, kind, step, files)
        if step not in self.sketch_steps(kind):
            raise unrecorded(self.path, sketches, step, self.sketch_steps(kind))
        if (kind, step) not in self._sketched:
            self._sketched[kind, step] = sums.sketches_of(self.gradients(step) if kind == "gradients" else self.weights(step))
        return self._sketched[kind, step]

    def _tensors(self, step: int, kind: Quantity, required: str, *optional: str, of: Callable[[str], bool] | None = None) -> Tensors:
        self._refuse_unrecorded(kind, step, required)
        files = {}
        for rank in self.manifests:
            names = (required, *(name for name in optional if self.has_file(rank, step, name)))
            files[rank] = [self.file(rank, step, name) for name in names]
        counted = {rank: self.counted(rank, trainable=kind.trainable) for rank in files}
        return Tensors(files, {rank: [shard for shard in shards if of is None or of(shard.name)] for rank, shards in counted.items()})

    def _refuse_unrecorded(self, kind: Quantity, step: int, name: str = "") -> None:
        """Raise RecordError unless every rank recorded a quantity of ``step``, or the file of it that is called ``name``."""
        if self.made_by_hand:
            if not kind.saved_by_hand:
                raise by_hand(self.path, kind, step)
            if step not in self.steps:
                raise unrecorded(self.path, kind, step, self.steps)
            return
        for rank in self.manifests:
            if not (step in self.lines(kind.name, rank).steps if kind.is_rows else self.has_file(rank, step, name or kind.whole)):
                raise unrecorded(self.path, kind, step, self.steps_of(kind.name))


def _keeps(groups: Mapping[str, ParameterGroup], moment: str, name: str) -> bool:
    return groups.get(name, ADAMS).keeps(moment)


def open_run(path: str | Path) -> Run:
    """Open a recorded run: a directory, a file that ``align-hooks distill`` wrote, the address of an object storage that ``fsspec`` knows
    (``s3://bucket/run``), where it is read in place, or a directory made by hand with the guide's snippet (batches only).

    Raises RecordError where there is nothing, for a format of another version, and for ranks of different jobs. A run that is not whole is
    opened: :attr:`Run.problems` says why it is not."""
    try:
        run = path if not isinstance(path, str) and is_remote(path) else place_of(path)
        if not run.is_dir() and is_archive(run):
            run = read_archive(run, layout.is_file_of_record)
        if run.is_file():
            command = f"align-hooks convert {shlex.quote(str(run))} {shlex.quote(f'{run}_run')}"
            raise RecordError(f"{run} is a file and no run; of a log, a dump or an export {command} makes one")
        if not run.is_dir():
            raise RecordError(f"{run} is not a directory; give the directory that ALIGN_HOOKS_RUN named")
        inside(run, run / "manifest")
        if ranks := layout.ranks(run):
            manifests, groups = read_manifests(run, ranks)
            return Run(run, read_facts(run, manifests, groups), manifests)
        refuse_lost_manifests(run)
        if not layout.steps_with(run, 0, "tokens.npy"):
            raise RecordError(f"{run} holds no run: neither manifest/rank_0.json nor step_N/rank_0/tokens.npy is there")
        return Run(run, Facts(), {})
    except ValueError as error:
        raise RecordError(f"{shown(str(path))} {error}") from None
    except OSError as error:  # not ours to read, or gone since it was listed
        raise RecordError(f"{error.filename or path} cannot be read: {error.strerror or error}; copy it, or ask whose it is") from None
