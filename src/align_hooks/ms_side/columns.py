"""Columns that make a ``LlamaForCausalLM`` of MindFormers compute the loss of exactly the recorded tokens, labels and mask.

Since 1.5 it takes all three as they are: ``input_sliced_sig`` says that they come cut, and ``loss_mask`` is a column. In 1.3 it takes
neither. It drops the last id and the first label itself, and counts every token whose id is not the pad id and whose label is not the
ignored one. So there both columns are longer by one id that is dropped again, which keeps the model's own sequence length, and what
does not count has the ignored id for a label. Imports no framework.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from numpy.typing import NDArray

from align_hooks.errors import RefusedRun

CUT = ("input_ids", "labels", "loss_mask")
UNCUT = ("input_ids", "labels")
"""Columns in the order of ``construct``'s arguments: data sets of 1.3 feed by place, and its third argument is no mask."""

IGNORED = -100
"""MindFormers' own ``ignore_token_id``, where a YAML does not say; no vocabulary has it."""


def takes_cut(model: type) -> bool:
    """Whether a ``LlamaForCausalLM`` takes tokens, labels and mask as they are. Its configuration does not tell: any key is kept there."""
    return "loss_mask" in inspect.signature(model.construct).parameters  # type: ignore[attr-defined]


def columns(tokens: NDArray[Any], labels: NDArray[Any], mask: NDArray[Any], ignored: int | None) -> dict[str, NDArray[Any]]:
    """Column to array, cut where ``ignored`` is None; raises RefusedRun for a mask that labels cannot say."""
    if ignored is None:
        return dict(zip(CUT, (tokens, labels, mask), strict=True))
    if ((mask != 0) & (mask != 1)).any():
        raise RefusedRun(
            "a loss mask has other weights than 0 and 1, and LlamaForCausalLM of this MindFormers takes no mask; use 1.5 or later"
        )
    counted = np.where(mask > 0, labels, ignored)
    longer = np.concatenate([tokens, labels[:, -1:]], axis=1), np.concatenate([tokens[:, :1], counted], axis=1)
    return dict(zip(UNCUT, longer, strict=True))
