"""Where torch tensors become numpy arrays; everything past here is numpy.

numpy has no bf16, and a record keeps fp32, which holds bf16 and fp16 exactly; the parameter table keeps the dtype.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from align_hooks.norms import CHUNK


def to_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    """A host copy: floating types as fp32, others as they are. One device-to-host transfer."""
    host = tensor.detach().to("cpu")
    return np.array((host.float() if host.is_floating_point() else host).numpy())


def squared_sum(tensor: torch.Tensor) -> torch.Tensor:
    """The squared sum of :mod:`align_hooks.norms` as an fp64 scalar on the tensor's device, with no transfer."""
    flat = tensor.detach().reshape(-1)
    whole = flat.numel() // CHUNK * CHUNK
    total = torch.zeros((), dtype=torch.float64, device=flat.device)
    for part in (flat[:whole].view(-1, CHUNK), flat[whole:].view(1, -1)):
        total += torch.linalg.vector_norm(part, dim=1, dtype=torch.float32).double().square().sum()
    return total
