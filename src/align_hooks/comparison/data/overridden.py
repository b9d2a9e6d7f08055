"""Overrides of a run's configuration, by a replay or another of our settings, that matter in training without us.

A replayed run may agree with its reference although its own configuration trains differently."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from align_hooks.comparison.data.batch_differences import PAD_TOKEN_ID, PADDING
from align_hooks.messages import Message, Side, message
from align_hooks.record.format.schema import Facts
from align_hooks.record.read.batch import Batch
from align_hooks.settings import PREFIX


class Changed(Struct, frozen=True):
    """An override that changes numbers."""

    what: str
    """Its name in ``run.json``."""
    id: str
    """Of the message that reports it."""
    array: str | None = None
    """Array of a batch in which tokens equal to the old value are affected; None where all are."""
    default: int | None = None
    """The framework's value where a configuration has none."""
    is_of_order: bool = False
    """Whether it decides the order of samples, which means nothing where either side was replayed."""


EVALUATION = "args.eval_iters"
RATES = ("optimizer.learning_rate", "lr_schedule", "args.lr", "args.lr_decay_style", "args.lr_warmup_iters")
# Left out: what makes a replay possible or supplies what is recorded anyway (data set, columns, input_sliced_sig, data_skip_steps,
# repeats, epochs, the end of training, evaluations behind the last step), what a rehearsal on a CPU computes otherwise (all under
# ALIGN_HOOKS_DEVICE), what moves only rounding, and what a stage or a note of its own reports (loaded states, replayed gradients, experts,
# inputs of blocks).
CHANGED = (
    Changed(PAD_TOKEN_ID, "changed.pad_token_id", "tokens", PADDING),
    Changed("model.model_config.ignore_token_id", "changed.ignore_token_id", "labels", -100),
    Changed("runner_config.batch_size", "changed.batch_size"),
    *(Changed(seed, "changed.seed", is_of_order=True) for seed in ("train_dataset.data_loader.config.seed", "seed", "args.seed")),
    *(Changed(rate, "changed.learning_rate") for rate in RATES),
    Changed(EVALUATION, "changed.evaluation"),
)
"""MindFormers 1.9 hides tokens of ``pad_token_id`` from the loss where a data set has no column ``loss_mask`` (``llama.py:667``,
``gpt_model.py:131``), and from attention without flash attention (``mask_generate.py:103``); a replay sets it to -1. Labels of
``ignore_token_id`` do not count (``llama.py:675``)."""


class DataOverride(Struct, frozen=True):
    """An override of a run."""

    row: Changed
    before: str
    after: str
    id: int | None = None
    """The number whose tokens or labels are counted; None without one."""

    def concerned(self, batch: Batch) -> int:
        """Return how many tokens, or labels, of a batch the override affects."""
        array = getattr(batch, self.row.array) if self.row.array else None
        return 0 if array is None or self.id is None else int((array == self.id).sum())

    def words(self, side: Side, count: int, tokens: int) -> Message | None:
        """Return what a reader should know, ``count`` of ``tokens`` being affected; None where none is."""
        if self.row.array is not None and not count:
            return None
        return message(self.row.id, side=side, before=self.before, after=self.after, count=count, all=tokens)


def changes(facts: Facts) -> Iterator[DataOverride]:
    """Yield the overrides of a run that change numbers, one for each message."""
    seen: set[str] = set()
    for override in facts.overrides:
        row = next((row for row in CHANGED if row.what == override.what and row.id not in seen), None)
        if row is not None and (override.what != EVALUATION or is_evaluated(facts)):
            seen.add(row.id)
            before = str(override.before)
            yield DataOverride(row, before, str(override.after), row.default if before == "None" else _integer(before))


REHEARSAL = (f"{PREFIX}DEVICE", f"{PREFIX}DEVICE=cpu")
"""Why a rehearsal overrides: what the variable says of a setting, and of an operator."""
WHERE = ("device", "context.device_target", "MASTER_ADDR", "MASTER_PORT", "args.distributed_backend", "args.use_cpu_initialization")
"""Overrides of a rehearsal that say where it runs, and leave nothing untried."""


def rehearsed(facts: Facts) -> set[str]:
    """Return the settings and operators that a rehearsal on a CPU turned off or replaced."""
    return {str(each.what) for each in facts.overrides if each.why in REHEARSAL} - {*WHERE}


def is_evaluated(facts: Facts) -> bool:
    """Return whether Megatron-LM evaluates before a run's last step, as far as its record says."""
    interval, steps = _integer(str((facts.arguments or {}).get("eval_interval"))), facts.planned_steps
    return not interval or not steps or interval < steps


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
