"""Where torch tensors become numpy arrays and words; everything past here is numpy.

numpy has no bf16, and a record keeps fp32, which holds bf16 and fp16 exactly; the parameter table keeps the dtype.
"""

from __future__ import annotations

import numpy as np
import torch

from align_hooks.names.blocks import Array
from align_hooks.record.norms import CHUNK
from align_hooks.record.shard import Shard
from align_hooks.record.sketch import PROJECTIONS, blocks, signs_of
from align_hooks.record.sketch import sketch as on_host


def to_numpy(tensor: torch.Tensor) -> Array:
    """A host copy: floating types as fp32, other types as they are. One device-to-host transfer."""
    host = tensor.detach().to("cpu")
    return np.array((host.float() if host.is_floating_point() else host).numpy())


def dtype_of(dtype: torch.dtype) -> str:
    """The name of a type, as a record keeps it."""
    return str(dtype).removeprefix("torch.")


def squared_sum(tensor: torch.Tensor) -> torch.Tensor:
    """The squared sum of :mod:`align_hooks.record.norms` as an fp64 scalar on the tensor's device, with no transfer."""
    flat = tensor.detach().reshape(-1)
    whole = flat.numel() // CHUNK * CHUNK
    total = torch.zeros((), dtype=torch.float64, device=flat.device)
    for part in (flat[:whole].view(-1, CHUNK), flat[whole:].view(1, -1)):
        total += torch.linalg.vector_norm(part, dim=1, dtype=torch.float32).double().square().sum()
    return total


def sketch(tensor: torch.Tensor, shard: Shard) -> torch.Tensor:
    """The sketch of :mod:`align_hooks.record.sketch`, fp64 ``[1 + PROJECTIONS]`` on the tensor's device, with no transfer from it.

    The product is taken in fp64, whose precision no switch of torch lowers; of a device that has no fp64, on the host.
    """
    if tensor.device.type not in ("cpu", "cuda"):
        return torch.from_numpy(on_host(to_numpy(tensor), shard))
    flat = tensor.detach().reshape(-1)
    rows, columns = (torch.from_numpy(signs).to(flat.device) for signs in signs_of(shard))
    total = torch.zeros(1 + PROJECTIONS, dtype=torch.float64, device=flat.device)
    for elements, of_rows, of_columns in blocks(shard):
        row, column = rows[of_rows].double(), columns[of_columns].double()
        block = flat[elements].double().reshape(len(row), len(column))
        total[0] += block.square().sum()
        total[1:] += ((block @ column) * row).sum(dim=0)
    return total
