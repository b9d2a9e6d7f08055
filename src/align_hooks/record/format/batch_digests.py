"""The digests of a batch. They tell whether two runs were fed alike, without the arrays and in whatever layout and types these were."""

from __future__ import annotations

import numpy as np

from align_hooks.record.format import digests
from align_hooks.record.read.batch import Batch

NAMES = ("tokens", "labels", "loss_mask", "position_ids")


def digests_of(batch: Batch) -> dict[str, str]:
    """Name of an array to its digest, of those that the batch has: of global arrays, ids as int64 and the mask as fp32. A mask and position
    ids that were not recorded are the plain ones. A label that does not count may be anything, and is 0 here."""
    arrays = batch.arrays()
    if "tokens" in arrays:
        shape = arrays["tokens"].shape
        arrays = {"loss_mask": np.ones(shape), "position_ids": np.broadcast_to(np.arange(shape[1]), shape)} | arrays
    mask = arrays.get("loss_mask")
    if mask is not None and "labels" in arrays and mask.shape == arrays["labels"].shape:
        arrays["labels"] = np.where(mask > 0, arrays["labels"], 0)
    kinds = {name: np.float32 if name == "loss_mask" else np.int64 for name in NAMES}
    return {name: digests.xxh3(arrays[name].astype(kind)) for name, kind in kinds.items() if name in arrays}
