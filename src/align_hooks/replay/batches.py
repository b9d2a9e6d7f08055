"""Batches of a recorded run, checked before training and replayed step by step.

Steps must be recorded without a gap from the first step of training, and sequence length, rows and token ids must fit. Steps that a source
leaves out (``run@0-399,401-999`` skips a suspicious batch) are skipped: from there on step N gets the batch of step N + 1.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

import numpy as np

from align_hooks.errors import RecordError, RefusedRun
from align_hooks.messages import rendered
from align_hooks.record.check.gaps import why_not_replayed
from align_hooks.record.format import layout
from align_hooks.record.format.documents import mask_of
from align_hooks.record.format.layout import Array
from align_hooks.record.read.batch import Batch, documents_of
from align_hooks.record.reader import Run, open_run
from align_hooks.settings import Source


class DocumentForm(Enum):
    """How a run gives its model the documents of a row."""

    MASK = "an attention mask"
    PACKED = "packed samples"
    NONE = "nothing"


@dataclass
class Replay:
    """The batches that ``ALIGN_HOOKS_REPLAY_BATCHES`` names."""

    source: Source
    first: int = 0
    """The step at which training starts."""
    ranks: tuple[int, int] = (0, 1)
    """This process's data-parallel rank, and the number of such ranks."""
    _steps: dict[int, range] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def run(self) -> Run:
        """The recorded run."""
        return open_run(self.source.path)

    @cached_property
    def _chosen(self) -> list[int]:
        return [step for step in self.run.batch_steps() if step in self.source.steps]

    @cached_property
    def left_out(self) -> list[int]:
        """The recorded steps, ascending, whose batches are skipped."""
        chosen = self._chosen
        return [step for step in self.run.batch_steps() if chosen and chosen[0] < step < chosen[-1] and step not in self.source.steps]

    def recorded_step(self, step: int) -> int:
        """Return the recorded step whose batch a step of training gets."""
        return step + bisect_right(self._skipped_at, step)

    @cached_property
    def _skipped_at(self) -> list[int]:
        """For each skipped batch, the step of training that would have got it."""
        return [skipped - before for before, skipped in enumerate(self.left_out)]

    def say_left_out(self, say: Callable[[str], object]) -> None:
        """Print which batches are skipped, if any."""
        if self.left_out:
            first, count = self.left_out[0], len(self.left_out)
            batches = f"the batch of step {first}" if count == 1 else f"the batches of {count} steps"
            say(f"{self.source} leaves out {batches}: step {first} is fed the batch of step {self.recorded_step(first)}")

    @property
    def first_chosen(self) -> int:
        """The first chosen step that is recorded; raises RecordError as :attr:`last` does."""
        return min(self._chosen, default=self.last)

    @property
    def last(self) -> int:
        """The last step that can be replayed; raises RecordError where there is none."""
        recorded = self.run.batch_steps()
        if not recorded:
            raise RecordError(f"{self.source} holds no batch; record it with ALIGN_HOOKS_BATCHES=all")
        named = self.source.steps.last or 0
        if not self._chosen or named > recorded[-1]:
            there = f"{recorded[0]} to {recorded[-1]}" if len(recorded) > 1 else f"step {recorded[0]}"
            raise RecordError(f"{self.source}: batches are recorded of {there} only; name those, or record with ALIGN_HOOKS_BATCHES=all")
        return self._chosen[-1] - len(self.left_out)

    @property
    def steps(self) -> range:
        """The steps to train, from ``first`` to the last; raises RecordError for a gap."""
        if self.first not in self._steps:  # cached, as every step of training asks
            self._steps[self.first] = self._steps_from_first()
        return self._steps[self.first]

    def _steps_from_first(self) -> range:
        if self.last < self.first:
            raise RecordError(f"{self.source} ends with step {self.last}, training starts with step {self.first}; record a longer run")
        wanted, there = range(self.first, self.last + 1), set(self._chosen)
        missing = next((self.recorded_step(step) for step in wanted if self.recorded_step(step) not in there), None)
        if missing is not None:
            before = f", or replay {self.source.path}@{self.first}-{missing - 1}" if missing > self.first else ""
            lacking = len(wanted) - sum(step >= self.recorded_step(self.first) for step in there)
            raise RecordError(
                f"{self.source} has no batch of step {missing} ({lacking} missing up to {self.last}); "
                f"record with ALIGN_HOOKS_BATCHES={self.first}-{self.last}{before}"
            )
        return wanted

    def check(
        self, *, sequence: int | None, vocabulary: int | None, rows: int | None, every: bool = True, form: DocumentForm = DocumentForm.MASK
    ) -> None:
        """Raise RefusedRun unless batches have this sequence length, ``rows`` a step, and ids below ``vocabulary``; None is not checked.
        Their documents must fit ``form``.

        Without ``every`` only the first step is checked: of a large job one rank checks all.
        """
        if self.run.missing is not None:  # the rows of missing ranks would be left out silently
            raise RefusedRun(f"{self.source}: {rendered(self.run.missing.message)}; copy or record every rank")
        for step in self.steps if every else self.steps[:1]:
            if reason := why_not_replayed(self.run, self.recorded_step(step)):
                raise RefusedRun(f"{self.source}: step {self.recorded_step(step)}: {rendered(reason.words)}")
            facts = self.run.batch_facts(self.recorded_step(step))
            problem = None
            if sequence is not None and facts.sequence != sequence:
                problem = f"has sequence length {facts.sequence}, this run {sequence}; train with {facts.sequence}"
            elif rows is not None and facts.rows != rows:
                problem = f"has {facts.rows} rows, this run consumes {rows} a step; use a global batch size of {facts.rows}"
            elif vocabulary is not None and not 0 <= facts.lowest <= facts.highest < vocabulary:
                problem = f"has ids from {facts.lowest} to {facts.highest}, this model's vocabulary ends at {vocabulary - 1}; "
                problem += "use the model that the data was made for"
            else:
                problem = self._misfit(self.recorded_step(step), form)
            if problem:
                raise RefusedRun(f"{self.source}: the batch of step {self.recorded_step(step)} {problem}")

    def _misfit(self, step: int, form: DocumentForm) -> str | None:
        """Return why the documents of a recorded step do not fit a form; None where they do."""
        described = () if self.run.made_by_hand or form is DocumentForm.MASK else self.run.batch_descriptions(step).values()
        packed = any("documents" in batch.arrays for batch in described)
        masked = any(batch.attention_mask == "own" for batch in described)
        if form is DocumentForm.PACKED and masked and not packed and documents_of(self.run.batch(step)) is None:
            return "has an attention mask that separates no documents, and this run packs samples; train it without packing"
        documents = self.run.batch(step, ("documents",)).documents if form is DocumentForm.NONE and packed else None
        if documents is not None and documents.any():
            return (
                "has several documents in a row, which this run does not keep apart; train with masks or with packed samples "
                "(--dataloader-inter-document-masking), or record one document a row"
            )
        return None

    def batch(self, step: int) -> Batch:
        """Read and verify the global batch of a step; raises RecordError after the last recorded step."""
        if step not in self.steps:
            raise RecordError(f"{self.source} ends with step {self.steps[-1]}: nothing is left to replay for step {step}")
        batch = self.run.batch(self.recorded_step(step))
        for name in ("tokens", "labels") if self.run.made_by_hand else ("tokens", "labels", "loss_mask"):
            if getattr(batch, name) is None:
                remedy = "record the run again, with a script that gives the model labels="
                raise RecordError(f"{self.source}: the batch of step {step} has no {name}; {remedy}")
        return batch

    def micro_batches(self, rows: int, *, packed: bool = False) -> Iterator[tuple[int, dict[str, Array]]]:
        """Yield each step with each of this rank's micro-batches of ``rows`` rows, as :func:`filled` completes them."""
        rank, ranks = self.ranks  # rows of a record are in the order micro-batch, data-parallel rank, row
        for step in self.steps:
            arrays = filled(self.batch(step), packed=packed)
            for start in range(rank * rows, len(arrays["tokens"]), ranks * rows):
                yield step, {name: array[start : start + rows] for name, array in arrays.items()}


def filled(batch: Batch, *, packed: bool = False) -> dict[str, Array]:
    """Return the arrays that training needs, each ``[rows, sequence]``, with the guide's defaults for a directory made by hand.

    By default every token counts, and position ids are 0 … sequence-1. A causal attention mask is left out, as the model makes its own;
    any other is bool ``[rows, 1, sequence, sequence]``, that of recorded documents too. A ``packed`` run gets documents in its place.
    """
    arrays = {name: array for name, array in batch.arrays().items() if name in layout.INPUTS}
    shape = arrays["tokens"].shape
    arrays.setdefault("loss_mask", np.ones(shape, np.float32))
    arrays.setdefault("position_ids", np.broadcast_to(np.arange(shape[1]), shape))
    mask, documents = arrays.pop("attention_mask", None), arrays.pop("documents", None)
    if packed:
        documents = documents_of(batch)
        if documents is None:
            raise RefusedRun(f"the attention mask of step {batch.step} separates no documents, and packed samples have no other mask")
        arrays["documents"] = documents
    elif documents is not None and documents.any():
        arrays["attention_mask"] = mask_of(documents)
    elif mask is not None and not batch.causal:
        arrays["attention_mask"] = np.broadcast_to(mask, (shape[0], *mask.shape[1:]))
    return arrays
