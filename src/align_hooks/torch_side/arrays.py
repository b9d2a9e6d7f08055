"""The conversion of torch tensors to numpy arrays.

numpy has no bf16, and a record keeps fp32, which holds bf16 and fp16 exactly; the parameter table keeps the dtype.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from align_hooks.names.blocks import Array
from align_hooks.record.format.sketch import PROJECTIONS
from align_hooks.record.read.activations import COUNT, LEAST, MOST, NOT_FINITE, NUMBERS, SQUARES, SUM, measured

IN_CACHE, BLOCK = 1 << 18, 1 << 20
"""Elements of a block on a host, 2 MB in fp64, and on an accelerator."""


def to_numpy(tensor: torch.Tensor) -> Array:
    """Return a host copy: floating types as fp32, other types unchanged; one transfer."""
    host = tensor.detach().to("cpu")
    return np.array((host.float() if host.is_floating_point() else host).numpy())


def fetched(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return tensors on the host, those of a device flat and in one transfer."""
    there = {key: tensor.detach().reshape(-1) for key, tensor in tensors.items() if not tensor.is_cpu}
    return {**tensors, **dict(zip(there, moved(list(there.values())), strict=True))} if there else dict(tensors)


def in_fp64(tensor: torch.Tensor) -> Array:
    """Return a flat copy of a host tensor in fp64."""
    held = tensor.detach().reshape(-1)
    copy: Array = (held.float() if held.dtype is torch.bfloat16 else held).numpy().astype(np.float64)
    return copy


def moved(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return flat tensors of a device on the host, in one transfer."""
    # They cross as the bytes that they are: a device may have no fp64, and fp32 holds no digest of 52 bits.
    order = sorted(range(len(tensors)), key=lambda index: -tensors[index].element_size())  # each then begins at a multiple of its size
    sent = [tensors[index].contiguous().view(torch.uint8) for index in order]
    parts = torch.cat(sent).cpu().split([len(part) for part in sent])
    there = {index: part.view(tensors[index].dtype) for index, part in zip(order, parts, strict=True)}
    return [there[index] for index in range(len(tensors))]


def on_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a host tensor on a device, without waiting for the device."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def dtype_of(dtype: torch.dtype) -> str:
    """Return the name of a type in records."""
    return str(dtype).removeprefix("torch.")


def has_fp64(device: torch.device) -> bool:
    """Return whether a device computes in fp64; an NPU does not."""
    return device.type in ("cpu", "cuda")


def numbers_of(value: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Return the numbers of :mod:`align_hooks.record.read.activations` of a value ``[tokens, columns]``, fp64, from the signs of rows and
    columns: on the value's device without a transfer, or on the host where the device has no fp64."""
    if not has_fp64(value.device):
        return torch.from_numpy(measured(to_numpy(value), rows.cpu().numpy(), columns.cpu().numpy()))
    tokens, width = value.shape
    total = torch.zeros(NUMBERS, dtype=torch.float64, device=value.device)
    total[COUNT], total[LEAST], total[MOST] = value.numel(), torch.inf, -torch.inf
    height = max((IN_CACHE if value.device.type == "cpu" else BLOCK) // max(width, 1), 1)
    of_columns = torch.nn.functional.pad(columns.double(), (0, 1), value=1.0)  # the last column makes the sum
    for start in range(0, tokens, height):
        part = value[start : start + height]
        least, most, others = extremes(part)
        total[NOT_FINITE] += others
        total[LEAST], total[MOST] = torch.minimum(total[LEAST], least), torch.maximum(total[MOST], most)
        block = part.double()
        flat = block.reshape(-1)
        total[SQUARES] += torch.dot(flat, flat)  # in one pass
        signed = block @ of_columns
        total[SUM] += signed[:, -1].sum()
        total[NUMBERS - PROJECTIONS :] += (signed[:, :-1] * rows[start : start + height].double()).sum(dim=0)
    return total


def extremes(part: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | int]:
    """Return the smallest and the largest of a tensor's finite elements, fp64, and the number of the others."""
    if part.device.type == "cpu" and part.numel():  # one pass where all are finite; asking a device would be a transfer
        least, most = torch.aminmax(part)
        if torch.isfinite(least) and torch.isfinite(most):  # NaN is both the smallest and the largest
            return least.double(), most.double(), 0
    finite = torch.isfinite(part)
    least, most = torch.where(finite, part, torch.inf).amin(), torch.where(finite, part, -torch.inf).amax()
    return least.double(), most.double(), (~finite).sum()
