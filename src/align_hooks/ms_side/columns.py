"""Columns that make a model of MindFormers compute the loss of exactly the recorded tokens, labels and mask. Imports no framework.

Newer models (``use_legacy: False``) read all three unchanged. With ``use_eod_reset`` they also read restarting positions and their mask,
``[rows, 1, sequence, sequence]``, 1 where attention is forbidden; without it they make both.

``LlamaForCausalLM`` reads all three unchanged since 1.5, with ``input_sliced_sig`` and a column ``loss_mask``. In 1.3 it drops the last id
and the first label, and counts every token whose id is not the pad id and whose label is not the ignored id. For 1.3 both columns therefore
have one id more, and a token that does not count has the ignored label.
"""

import inspect

import numpy as np

from align_hooks.errors import RefusedRun
from align_hooks.names.blocks import Array

CUT = ("input_ids", "labels", "loss_mask")
UNCUT = ("input_ids", "labels")
"""Columns in the order of ``construct``'s arguments. Data sets of 1.3 feed by position, and its third argument is no mask."""
RESET = (*CUT, "position_ids", "attention_mask")
"""Columns of a newer model with ``use_eod_reset``."""
IGNORED = -100
"""MindFormers' default of ``ignore_token_id``; no vocabulary has this id."""
TYPES = {"loss_mask": np.float32, "attention_mask": np.uint8}
"""The types in which MindFormers takes a column; the others are int32."""


def takes_cut(model: type) -> bool:
    """Return whether a ``LlamaForCausalLM`` reads tokens, labels and mask unchanged; its configuration, which keeps any key, cannot say."""
    return "loss_mask" in inspect.signature(model.construct).parameters  # type: ignore[attr-defined]


def columns(tokens: Array, labels: Array, mask: Array, ignored: int | None) -> dict[str, Array]:
    """Map columns to arrays, cut where ``ignored`` is None; raises RefusedRun for a mask that labels cannot express."""
    if ignored is None:
        return dict(zip(CUT, (tokens, labels, mask), strict=True))
    if ((mask != 0) & (mask != 1)).any():
        raise RefusedRun(
            "a loss mask has other weights than 0 and 1, and LlamaForCausalLM of this MindFormers takes no mask; use 1.5 or later"
        )
    counted = np.where(mask > 0, labels, ignored)
    longer = np.concatenate([tokens, labels[:, -1:]], axis=1), np.concatenate([tokens[:, :1], counted], axis=1)
    return dict(zip(UNCUT, longer, strict=True))


def positions(ids: Array, mask: Array | None) -> dict[str, Array]:
    """Return the columns of a newer model with ``use_eod_reset``: position ids ``[rows, sequence]``, and the mask, by default causal."""
    rows, size = ids.shape
    causal = np.broadcast_to(np.triu(np.ones((size, size), bool), 1), (rows, 1, size, size))
    return {"position_ids": ids, "attention_mask": causal if mask is None else np.broadcast_to(mask, causal.shape)}


def as_taken(name: str, array: Array) -> Array:
    """Return a column in the type in which MindFormers takes it."""
    return array.astype(TYPES.get(name, np.int32))
