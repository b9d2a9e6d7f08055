"""Two facts of a batch's arrays that its description holds in their place."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from align_hooks.record.format.layout import Array


def is_causal(mask: Array) -> bool:
    """Whether a bool mask, True where attention is forbidden, is causal."""
    size = mask.shape[-1]
    return mask.ndim == 4 and mask.shape[-2] == size and bool((mask == ~np.tri(size, dtype=bool)).all())


def id_range(arrays: Mapping[str, Array]) -> list[int] | None:
    """Return the lowest and the highest id of tokens and of labels under the loss mask; None without ids."""
    labels, mask = arrays.get("labels"), arrays.get("loss_mask")
    if labels is not None and mask is not None:
        labels = labels[mask > 0]
    ids = [array for array in (arrays.get("tokens"), labels) if array is not None and array.size]
    return [int(min(array.min() for array in ids)), int(max(array.max() for array in ids))] if ids else None
