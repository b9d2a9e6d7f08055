"""What a MindFormers model consumed, in the record's terms, from what its data set handed to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from align_hooks.errors import RefusedRun
from align_hooks.ms_side.arrays import to_numpy
from align_hooks.ms_side.columns import CUT, UNCUT, takes_cut
from align_hooks.ms_side.model import network_of


def consumed(elements: Sequence[Any], columns: Sequence[str], cell: Any) -> dict[str, NDArray[Any]]:
    """``tokens``, ``labels`` int64 and ``loss_mask`` fp32, each ``[rows, sequence]``.

    ``LlamaForCausalLM`` cuts tokens and labels out of one column of sequence+1 ids unless ``input_sliced_sig`` says that
    they come cut, and without a mask column weighs tokens by its pad and ignore ids (``construct``, 1.5 to 1.9). In 1.3 it
    always cuts and takes no mask.
    """
    model = network_of(cell)
    given = {name: to_numpy(element) for name, element in zip(columns, elements, strict=True)}
    if "input_ids" not in given:
        raise RefusedRun(f"the data set has no column input_ids but {', '.join(columns)}; name its columns as {type(model).__name__} does")
    config, cut = model.config, takes_cut(type(model))
    ids, labels, mask = given["input_ids"], given.get("labels"), given.get("loss_mask") if cut else None
    sliced = cut and bool(config.input_sliced_sig) and labels is not None
    tokens = ids if sliced else ids[:, :-1]
    if labels is None:
        labels = ids[:, 1:]
    elif not sliced:
        labels = labels[:, 1:]
    if mask is None:
        mask = tokens != config.pad_token_id
        if "labels" in given:
            mask = mask & (labels != config.ignore_token_id)
    elif not sliced:
        mask = mask[:, :-1]
    return {"tokens": tokens.astype(np.int64), "labels": labels.astype(np.int64), "loss_mask": mask.astype(np.float32)}


def unrecorded(columns: Sequence[str], cell: Any) -> list[str]:
    """Columns of a data set that the model is given and that are no part of a batch, as positions or a mask of its own."""
    return sorted(set(columns) - set(CUT if takes_cut(type(network_of(cell))) else UNCUT))
