"""The batch that a MindFormers model consumed, in the record's terms, from the columns of its data set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from align_hooks.errors import RefusedRun
from align_hooks.ms_side.arrays import to_numpy
from align_hooks.ms_side.columns import CUT, UNCUT, takes_cut
from align_hooks.ms_side.model import network_of
from align_hooks.ms_side.objects import Cell, Tensor
from align_hooks.names.blocks import Array


def consumed(elements: Sequence[Tensor], columns: Sequence[str], cell: Cell) -> dict[str, Array]:
    """``tokens``, ``labels`` int64 and ``loss_mask`` fp32, each ``[rows, sequence]``.

    ``LlamaForCausalLM`` cuts tokens and labels out of a column of sequence+1 ids, unless ``input_sliced_sig`` says that they
    come cut. Without a mask column its pad and ignore ids make the mask (``construct``, 1.5 to 1.9). In 1.3 it always cuts
    and takes no mask.
    """
    model = network_of(cell)
    arrays = {name: to_numpy(element) for name, element in zip(columns, elements, strict=True)}
    if "input_ids" not in arrays:
        raise RefusedRun(f"the data set has no column input_ids but {', '.join(columns)}; name its columns as {type(model).__name__} does")
    config, cut = model.config, takes_cut(type(model))
    ids, labels, mask = arrays["input_ids"], arrays.get("labels"), arrays.get("loss_mask") if cut else None
    sliced = cut and bool(config.input_sliced_sig) and labels is not None
    tokens = ids if sliced else ids[:, :-1]
    if labels is None:
        labels = ids[:, 1:]
    elif not sliced:
        labels = labels[:, 1:]
    if mask is None:
        mask = tokens != config.pad_token_id
        if "labels" in arrays:
            mask = mask & (labels != config.ignore_token_id)
    elif not sliced:
        mask = mask[:, :-1]
    return {"tokens": tokens.astype(np.int64), "labels": labels.astype(np.int64), "loss_mask": mask.astype(np.float32)}


def unrecorded(columns: Sequence[str], cell: Cell) -> list[str]:
    """Columns that the data set gives to the model and that no record has, such as positions or an attention mask."""
    return sorted(set(columns) - set(CUT if takes_cut(type(network_of(cell))) else UNCUT))
