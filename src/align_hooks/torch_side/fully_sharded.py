"""Tensors that torch's FSDP2 shards, as DTensors: each rank of the data-parallel mesh holds some rows.

Rows are consecutive elements, so a shard is what a distributed optimizer has too: a range of a parameter.
"""

import math

import torch

from align_hooks.errors import RefusedRun

try:
    from torch.distributed.tensor import DTensor
except ImportError:  # 2.4
    from torch.distributed._tensor import DTensor


def is_sharded(tensor: object) -> bool:
    """Return whether a tensor is a DTensor."""
    return isinstance(tensor, DTensor)


def shard(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view ``[elements]`` of this rank's shard; any other tensor as it is."""
    return tensor.to_local().view(-1) if isinstance(tensor, DTensor) else tensor


def elements(tensor: DTensor) -> tuple[int, int]:
    """Return the elements [start, stop) of a tensor that are this rank's shard; raises RefusedRun for another axis than rows."""
    start, length = 0, tensor.shape[0]
    coordinate = tensor.device_mesh.get_coordinate() or ()
    for placement, ranks, index in zip(tensor.placements, tensor.device_mesh.shape, coordinate, strict=True):
        if not placement.is_replicate():
            if not placement.is_shard(0):
                raise RefusedRun(f"a parameter of shape {tuple(tensor.shape)} is placed as {placement}; FSDP2 is read where it shards rows")
            begin = min(index * math.ceil(length / ranks), length)  # as torch.chunk
            start, length = start + begin, min(math.ceil(length / ranks), length - begin)
    if tensor.to_local().shape[0] != length:
        raise RefusedRun(f"a rank has {tensor.to_local().shape[0]} rows of a parameter, where {length} of {tensor.shape[0]} are its shard")
    width = math.prod(tensor.shape[1:])
    return start * width, (start + length) * width


def is_first_replica(tensor: DTensor) -> bool:
    """Return whether this rank is the first of those that hold the same shard, as under hybrid sharding."""
    coordinate = tensor.device_mesh.get_coordinate() or ()
    return not any(index for placement, index in zip(tensor.placements, coordinate, strict=True) if placement.is_replicate())


def sharded_as(tensor: torch.Tensor, local: torch.Tensor) -> torch.Tensor:
    """Return ``local`` as the shard of a tensor that is placed as another one; as it is where that is no DTensor."""
    if not isinstance(tensor, DTensor):
        return local
    own = local.view(tensor.to_local().shape)
    return DTensor.from_local(own, tensor.device_mesh, tensor.placements, run_check=False, shape=tensor.shape, stride=tensor.stride())


def ranks_of(tensor: DTensor) -> list[int]:
    """Return the ranks over which a tensor is placed."""
    return [int(rank) for rank in tensor.device_mesh.mesh.flatten().tolist()]
