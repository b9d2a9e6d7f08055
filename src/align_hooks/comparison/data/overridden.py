"""What a replay, or another of our settings, changed of a run's configuration that matters in training without us.

A run that was fed may agree with its reference although its configuration as it stands trains otherwise. A row of :data:`CHANGED` is an
override that changes numbers. Not among them, each for its reason: what makes a replay possible and feeds what is recorded anyway (data
set, columns, ``input_sliced_sig``, ``data_skip_steps``, repeats, epochs, the end of training, evaluation); what a rehearsal on a CPU
computes in another way (everything under ``ALIGN_HOOKS_DEVICE``); what moves rounding alone (determinism, a router that is not fused); and
what a stage or a note of its own tells (weights and optimizer states that were loaded, gradients, experts and inputs of blocks that were
handed on, weights that were moved).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from align_hooks.comparison.data.batch_differences import PAD_TOKEN_ID, PADDING
from align_hooks.messages import Message, Side, message
from align_hooks.record.format.schema import Facts
from align_hooks.record.read.batch import Batch


@dataclass(frozen=True, slots=True)
class Changed:
    """An override that changes numbers: its name in ``run.json``, and the message that tells it. ``array`` is the one of a batch in which
    the value before concerns the tokens that are it; None where it concerns all. ``default`` is the framework's, for a configuration that
    said nothing."""

    what: str
    id: str
    array: str | None = None
    default: int | None = None
    is_of_order: bool = False
    """Whether it decides in which order samples are drawn, which is nothing where either side was fed."""


CHANGED = (
    Changed(PAD_TOKEN_ID, "changed.pad_token_id", "tokens", PADDING),
    Changed("model.model_config.ignore_token_id", "changed.ignore_token_id", "labels", -100),
    Changed("runner_config.batch_size", "changed.batch_size"),
    Changed("train_dataset.data_loader.config.seed", "changed.seed", is_of_order=True),
    Changed("seed", "changed.seed", is_of_order=True),
    Changed("args.seed", "changed.seed", is_of_order=True),
    Changed("optimizer.learning_rate", "changed.learning_rate"),
    Changed("lr_schedule", "changed.learning_rate"),
    Changed("args.lr", "changed.learning_rate"),
    Changed("args.lr_decay_style", "changed.learning_rate"),
    Changed("args.lr_warmup_iters", "changed.learning_rate"),
)
"""MindFormers 1.9 hides tokens of ``pad_token_id`` from the loss where a data set has no column ``loss_mask`` (``llama.py:667``,
``gpt_model.py:131``), and from attention without flash attention (``mask_generate.py:103``); a replay sets it to -1. Labels of
``ignore_token_id`` do not count (``llama.py:675``)."""


@dataclass(frozen=True, slots=True)
class DataOverride:
    """A row of the table with what a run had before and had after; ``id`` is the number that tokens or labels are counted of."""

    row: Changed
    before: str
    after: str
    id: int | None = None

    def concerned(self, batch: Batch) -> int:
        """How many tokens, or labels, of a batch the change concerns."""
        array = None if self.row.array is None else getattr(batch, self.row.array)
        return 0 if array is None or self.id is None else int((array == self.id).sum())

    def words(self, side: Side, count: int, tokens: int) -> Message | None:
        """What a reader should know, ``count`` of ``tokens`` being concerned; None where the change concerns none of them."""
        if self.row.array is not None and not count:
            return None
        return message(self.row.id, side=side, before=self.before, after=self.after, count=count, all=tokens)


def changes(facts: Facts) -> Iterator[DataOverride]:
    """The overrides of a run that change numbers, one for each message."""
    told: set[str] = set()
    for override in facts.overrides:
        row = next((row for row in CHANGED if row.what == override.what), None)
        if row is None or row.id in told:
            continue
        told.add(row.id)
        before, after = (str(value) for value in (override.before, override.after))
        yield DataOverride(row, before, after, row.default if before == "None" else whole(before))


def whole(text: str) -> int | None:
    """The whole number that a text says; None where it says none."""
    try:
        return int(text)
    except ValueError:
        return None
