"""Digests of a batch: equal for two runs with equal batches, whatever the layout and the types."""

from __future__ import annotations

import numpy as np

from align_hooks.record.format import digests
from align_hooks.record.format.documents import PADDING, starts_of
from align_hooks.record.read.batch import Batch, documents_of

NAMES = ("tokens", "labels", "loss_mask", "position_ids", "documents")


def digests_of(batch: Batch) -> dict[str, str]:
    """Return the digest of each global array that the batch has: ids as int64, the mask as fp32."""
    arrays = batch.arrays()
    if "tokens" in arrays:  # a mask and position ids that were not recorded are the plain ones
        shape = arrays["tokens"].shape
        arrays = {"loss_mask": np.ones(shape), "position_ids": np.broadcast_to(np.arange(shape[1]), shape)} | arrays
    packed = batch.documents is not None or not batch.causal  # a causal batch may have documents that were not seen
    documents = documents_of(batch) if packed else None
    if documents is not None and (documents != PADDING).all():
        arrays["documents"] = starts_of(documents)
    mask = arrays.get("loss_mask")
    if mask is not None and "labels" in arrays and mask.shape == arrays["labels"].shape:  # other labels are arbitrary
        arrays["labels"] = np.where(mask > 0, arrays["labels"], 0)
    typed = {name: arrays[name].astype(np.float32 if name == "loss_mask" else np.int64) for name in NAMES if name in arrays}
    return {name: digests.xxh3(array) for name, array in typed.items()}
