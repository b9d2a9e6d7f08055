"""Recorded batches as a data set of the PyNative trainer.

The trainer asks its data set for its size and for an iterator over dicts of tensors, and tells it how much a resumed run has
consumed. In 2.1 an item is a micro-batch, in 2.0 all rows of a step, which the trainer cuts.
"""

import itertools
from collections.abc import Iterator

import mindspore
import numpy as np

from align_hooks.ms_side.columns import TYPES
from align_hooks.ms_side.objects import Tensor
from align_hooks.ms_side.session import MsSession
from align_hooks.replay.batches import Replay


class RecordedBatches:
    """The batches that ``ALIGN_HOOKS_REPLAY_BATCHES`` names; the session knows them once the trainer has read its configuration."""

    def __init__(self, session: MsSession, *, by_step: bool) -> None:
        self.session, self.by_step, self.skipped = session, by_step, 0

    @property
    def replay(self) -> Replay:
        """The batches of the session."""
        assert self.session.replay is not None
        return self.session.replay

    def rows(self) -> int:
        """Return the rows of an item."""
        training = self.session.config.training
        return int(training.global_batch_size if self.by_step else training.local_batch_size)

    def items(self) -> int:
        """Return the items of a step on this rank."""
        return int(self.session.config.training.global_batch_size) // (self.rows() * self.session.data_parallel[1])

    def set_init_step(self, items: int) -> None:
        """Skip the items that a resumed run has consumed."""
        self.skipped = items

    def get_dataset_size(self) -> int:
        """Return the number of items."""
        return (self.replay.last + 1) * self.items()

    def create_dict_iterator(self, **options: object) -> Iterator[dict[str, Tensor]]:
        """Yield each item; behind the last step raise RecordError, as an end would have the trainer start anew."""
        self.replay.first, skipped = divmod(self.skipped, self.items())
        given = {"input_ids": "tokens", "labels": "labels", "loss_mask": "loss_mask", "position_ids": "position_ids"}
        for _, arrays in itertools.islice(self.replay.micro_batches(self.rows()), skipped, None):
            yield {name: mindspore.Tensor(np.ascontiguousarray(arrays[ours], TYPES.get(name, np.int32))) for name, ours in given.items()}
        self.replay.batch(self.replay.steps[-1] + 1)
