"""Tensors that fully sharded data parallelism splits, as DTensors: each rank of the data-parallel mesh holds some elements.

torch's FSDP2 (``--use-torch-fsdp2``) shards rows as torch.chunk does, Megatron-FSDP (``--use-megatron-fsdp``) wherever a buffer of many
parameters is cut. Either is a range of a parameter's elements, as a distributed optimizer has it too.
"""

import math
from collections.abc import Sequence

import torch

from align_hooks.errors import RefusedRun
from align_hooks.torch_side.objects import Module

try:
    from torch.distributed.tensor import DTensor, Placement
except ImportError:  # 2.4
    from torch.distributed._tensor import DTensor, Placement


def is_sharded(tensor: object) -> bool:
    """Return whether a tensor is a DTensor."""
    return isinstance(tensor, DTensor)


def shard(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view ``[elements]`` of this rank's shard; any other tensor as it is."""
    return tensor.detach().to_local().view(-1) if isinstance(tensor, DTensor) else tensor


def computed(tensor: torch.Tensor) -> torch.Tensor:
    """Return the parameter that this tensor-parallel rank computes with; Megatron-FSDP's DTensors are main weights, of all these ranks."""
    whole: torch.Tensor = getattr(tensor, "orig_param", tensor)
    return whole


def elements(tensor: DTensor) -> tuple[int, int]:
    """Return the elements [start, stop) of a tensor that are this rank's shard; raises RefusedRun where these are not read."""
    of_buffer, whole = getattr(tensor, "megatron_fsdp_slice", None), computed(tensor)  # the first is Megatron-FSDP's
    if whole is not tensor and tensor.to_local().numel() == whole.numel():  # nothing is sharded
        return 0, whole.numel()
    start, stop = rows(tensor) if of_buffer is None else (of_buffer.start, of_buffer.stop)
    if tensor.to_local().numel() != stop - start:
        raise RefusedRun(
            f"a rank has {tensor.to_local().numel()} elements of a parameter {tuple(tensor.shape)} where its shard has {stop - start}; "
            "this version reads shards of rows, and those of Megatron-FSDP 1"
        )
    return start, stop


def rows(tensor: DTensor) -> tuple[int, int]:
    """Return the elements of this rank's rows, which are shared out as torch.chunk does."""
    start, length = 0, tensor.shape[0]
    for placement, ranks, index in zip(tensor.placements, tensor.device_mesh.shape, _coordinate(tensor), strict=True):
        if not _is_whole(placement):
            if not placement.is_shard(0):
                raise RefusedRun(f"a parameter {tuple(tensor.shape)} is placed as {placement}; shards are read where they are rows")
            begin = min(index * math.ceil(length / ranks), length)
            start, length = start + begin, min(math.ceil(length / ranks), length - begin)
    width = math.prod(tensor.shape[1:])
    return start * width, (start + length) * width


def is_first_replica(tensor: DTensor) -> bool:
    """Return whether this rank is the first of those that hold the same shard, as under hybrid sharding."""
    return not any(index for placement, index in zip(tensor.placements, _coordinate(tensor), strict=True) if _is_whole(placement))


def _is_whole(placement: Placement) -> bool:
    return bool(placement.is_replicate())


def _coordinate(tensor: DTensor) -> Sequence[int]:
    """Return this rank's index along each axis of the mesh."""
    return tensor.device_mesh.get_coordinate() or ()


def install_main_weights(chunk: Module) -> None:
    """Let a chunk compute with its main weights, which were set; Megatron-FSDP keeps copies of them apart."""
    if (buffer := getattr(getattr(chunk, "module", None), "param_and_grad_buffer", None)) is not None:
        buffer.copy_main_weights_to_model_weights()


def sharded_as(tensor: torch.Tensor, local: torch.Tensor) -> torch.Tensor:
    """Return ``local`` as the shard of a tensor that is placed as another one; as it is where that is no DTensor."""
    if not isinstance(tensor, DTensor):
        return local
    own = local.view(tensor.to_local().shape)
    return DTensor.from_local(own, tensor.device_mesh, tensor.placements, run_check=False, shape=tensor.shape, stride=tensor.stride())
