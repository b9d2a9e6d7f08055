"""A recorded micro-batch as a script is fed it: a dict with the keys of Megatron's own data sets, which says so where others are read."""

from __future__ import annotations

import torch

from align_hooks.errors import RefusedRun, shown


class NotRecorded(RefusedRun, KeyError):
    """A ``forward_step`` reads a key that no recorded batch has; a KeyError, for a script may try one key after the other."""

    def __str__(self) -> str:
        return str(self.args[0])


class Fed(dict[str, torch.Tensor]):
    """A recorded micro-batch, host tensors by name, which says what it has when it is asked for something else."""

    def __missing__(self, key: object) -> torch.Tensor:
        raise NotRecorded(
            f"ALIGN_HOOKS_REPLAY_BATCHES: forward_step reads {shown(repr(key))} of a batch, and recorded batches have {', '.join(self)}; "
            "have it read these where they are there, labels and loss_mask as they are"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return dict, (dict(self),)
