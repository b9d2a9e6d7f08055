"""Where MindSpore tensors become numpy arrays; everything past here is numpy."""

from __future__ import annotations

from typing import Any

import mindspore
import numpy as np
from numpy.typing import NDArray

FLOATS = (mindspore.float32, mindspore.float16, mindspore.bfloat16, mindspore.float64)


def to_numpy(tensor: Any) -> NDArray[Any]:
    """A host copy: floating types as fp32, others as they are. One device-to-host transfer."""
    if tensor.dtype == mindspore.bfloat16:
        tensor = tensor.astype(mindspore.float32)
    array = np.array(tensor.asnumpy())
    return array.astype(np.float32, copy=False) if tensor.dtype in FLOATS else array
