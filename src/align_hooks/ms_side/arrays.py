"""The conversion of MindSpore tensors to numpy arrays and numbers."""

import mindspore
import numpy as np

from align_hooks.ms_side.objects import Tensor
from align_hooks.names.blocks import Array

FLOATS = (mindspore.float32, mindspore.float16, mindspore.bfloat16, mindspore.float64)


def local(tensor: Tensor) -> Tensor:
    """Return this rank's part of a distributed tensor, which shares its memory; another tensor itself."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def overwrite(part: Tensor, given: Tensor) -> None:
    """Overwrite this rank's part of a distributed tensor, of whose memory hyper-parallel keeps views."""
    from mindspore.graph.api import _no_grad  # MindSpore 2.9 and later, which alone have distributed tensors

    with _no_grad():
        part.copy_(given)


def to_numpy(tensor: Tensor) -> Array:
    """Return a host copy of this rank's part: floating types as fp32, other types unchanged; one transfer."""
    tensor = local(tensor)
    if tensor.dtype == mindspore.bfloat16:
        tensor = tensor.astype(mindspore.float32)
    array = np.array(tensor.asnumpy())
    return array.astype(np.float32, copy=False) if tensor.dtype in FLOATS else array


def number(value: Tensor | float) -> float:
    """Return a number, or the only element of a tensor."""
    return float(to_numpy(value).reshape(-1)[0]) if hasattr(value, "asnumpy") else float(value)
