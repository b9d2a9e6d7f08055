"""Columns that make a ``LlamaForCausalLM`` of MindFormers compute the loss of exactly the recorded tokens, labels and mask.

Since 1.5 it takes all three as they are: ``input_sliced_sig`` says that they come cut, and ``loss_mask`` is a column. 1.3 takes neither.
It drops the last id and the first label itself, and counts every token whose id is not the pad id and whose label is not the ignored
id. For 1.3 both columns are therefore longer by an id that is dropped again, which keeps the model's own sequence length, and a token
that does not count has the ignored id for its label. Imports no framework.
"""

from __future__ import annotations

import inspect

import numpy as np

from align_hooks.errors import RefusedRun
from align_hooks.names.blocks import Array

CUT = ("input_ids", "labels", "loss_mask")
UNCUT = ("input_ids", "labels")
"""Columns in the order of ``construct``'s arguments. Data sets of 1.3 feed by position, and its third argument is no mask."""

IGNORED = -100
"""MindFormers' default of ``ignore_token_id``; no vocabulary has this id."""


def takes_cut(model: type) -> bool:
    """Whether a ``LlamaForCausalLM`` takes tokens, labels and mask as they are. Its configuration keeps any key, so it cannot tell."""
    return "loss_mask" in inspect.signature(model.construct).parameters  # type: ignore[attr-defined]


def columns(tokens: Array, labels: Array, mask: Array, ignored: int | None) -> dict[str, Array]:
    """Column to array, cut where ``ignored`` is None; raises RefusedRun for a mask that labels cannot express."""
    if ignored is None:
        return dict(zip(CUT, (tokens, labels, mask), strict=True))
    if ((mask != 0) & (mask != 1)).any():
        raise RefusedRun(
            "a loss mask has other weights than 0 and 1, and LlamaForCausalLM of this MindFormers takes no mask; use 1.5 or later"
        )
    counted = np.where(mask > 0, labels, ignored)
    longer = np.concatenate([tokens, labels[:, -1:]], axis=1), np.concatenate([tokens[:, :1], counted], axis=1)
    return dict(zip(UNCUT, longer, strict=True))
