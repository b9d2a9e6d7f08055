"""The conversion of torch tensors to numpy arrays.

numpy has no bf16, and a record keeps fp32, which holds bf16 and fp16 exactly; the parameter table keeps the dtype.
"""

import contextlib
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from align_hooks.names.blocks import Array
from align_hooks.session import Session


def to_numpy(tensor: torch.Tensor) -> Array:
    """Return a host copy: floating types as fp32, other types unchanged; one transfer."""
    host = tensor.detach().to("cpu")
    return np.array((host.float() if host.is_floating_point() else host).numpy())


def fetched(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return tensors on the host, those of a device flat and in one transfer."""
    there = {key: tensor.detach().reshape(-1) for key, tensor in tensors.items() if not tensor.is_cpu}
    return {**tensors, **dict(zip(there, moved(list(there.values())), strict=True))} if there else dict(tensors)


def number(tensor: torch.Tensor) -> float:
    """Return the number of a host tensor of one element, without an operator of torch where numpy has its type."""
    return float(tensor if tensor.dtype is torch.bfloat16 or tensor.requires_grad else tensor.numpy().item())


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


def bypass_device_rewriting(session: Session) -> contextlib.AbstractContextManager[object]:
    """Return a context for our own reading of tensors, outside the mode of a rehearsal."""
    # the mode costs Python at every call of torch and every attribute of a tensor: 7 ms for a hundred tensors read ten times
    if session.settings.device != "cpu":
        return contextlib.nullcontext()
    return torch._C.DisableTorchFunction() if hasattr(torch._C, "DisableTorchFunction") else contextlib.nullcontext()
