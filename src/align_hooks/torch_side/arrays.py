"""Where torch tensors become numpy arrays and words; everything past here is numpy.

numpy has no bf16, and a record keeps fp32, which holds bf16 and fp16 exactly; the parameter table keeps the dtype.
"""

from __future__ import annotations

import numpy as np
import torch

from align_hooks.names.blocks import Array
from align_hooks.record.activations import COUNT, LEAST, MOST, NOT_FINITE, NUMBERS, SQUARES, SUM, measured
from align_hooks.record.norms import CHUNK
from align_hooks.record.shard import Shard
from align_hooks.record.sketch import BLOCK, PROJECTIONS, blocks, signs_of
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


def numbers_of(value: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """The numbers of :mod:`align_hooks.record.activations` of a value ``[tokens, columns]``, fp64 on its device, with no transfer from it;
    of a device that has no fp64, on the host. ``rows`` and ``columns`` are the signs of both."""
    if value.device.type not in ("cpu", "cuda"):
        return torch.from_numpy(measured(to_numpy(value), rows.cpu().numpy(), columns.cpu().numpy()))
    tokens, width = value.shape
    total = torch.zeros(NUMBERS, dtype=torch.float64, device=value.device)
    total[LEAST], total[MOST] = torch.inf, -torch.inf
    height = max(BLOCK // max(width, 1), 1)
    of_columns = columns.double()
    for start in range(0, tokens, height):
        block = value[start : start + height].double()
        finite = torch.isfinite(block)
        total[COUNT] += block.numel()
        total[NOT_FINITE] += block.numel() - finite.sum()
        total[LEAST] = torch.minimum(total[LEAST], torch.where(finite, block, torch.inf).amin())
        total[MOST] = torch.maximum(total[MOST], torch.where(finite, block, -torch.inf).amax())
        total[SUM] += block.sum()
        total[SQUARES] += block.square().sum()
        total[NUMBERS - PROJECTIONS :] += ((block @ of_columns) * rows[start : start + height].double()).sum(dim=0)
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
