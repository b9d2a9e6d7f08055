"""Tensors that fully sharded data parallelism splits, as DTensors: each rank of the data-parallel mesh holds some elements.

torch's FSDP2 (``--use-torch-fsdp2``) shards rows as torch.chunk does, Megatron-FSDP (``--use-megatron-fsdp``) wherever a buffer of many
parameters is cut, in its version 2 between two rows. Each is a range of a parameter's elements, as a distributed optimizer has it too.
"""

import math
from typing import Any

import torch

from align_hooks.errors import RefusedRun
from align_hooks.torch_side.objects import Module

try:
    from torch.distributed.tensor import DTensor
except ImportError:  # 2.4
    from torch.distributed._tensor import DTensor


def is_sharded(tensor: object) -> bool:
    """Return whether a tensor is a DTensor."""
    return isinstance(tensor, DTensor)


def shard(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view ``[elements]`` of this rank's shard; any other tensor as it is."""
    return tensor.detach().to_local().view(-1) if isinstance(tensor, DTensor) else tensor


def computed(tensor: torch.Tensor) -> torch.Tensor:
    """Return the parameter that this tensor-parallel rank computes with; Megatron-FSDP's DTensors are main weights, of all these ranks."""
    group, index = in_group(tensor)
    whole: torch.Tensor = getattr(tensor, "orig_param", tensor) if group is None else group.fsdp_parameters[index].unsharded
    return whole


def in_group(tensor: torch.Tensor) -> tuple[Any, int]:
    """Return the group of parameters in which Megatron-FSDP 2 has a tensor, and its index there; None and 0 where it is in none."""
    of_tensor = getattr(tensor, "_mfsdp_parameter_group", None)  # a weak reference
    if of_tensor is None:
        return None, 0
    group = of_tensor()
    return group, next(index for index, parameter in enumerate(group.fsdp_parameters) if parameter.sharded is tensor)


def elements(tensor: DTensor) -> tuple[int, int]:
    """Return the elements [start, stop) of a tensor that are this rank's shard; raises RefusedRun where these are not read."""
    of_buffer, whole = getattr(tensor, "megatron_fsdp_slice", None), computed(tensor)  # the first is Megatron-FSDP 1's
    group, index = in_group(tensor)
    if group is not None:
        owned = group.main_weight._get_owned_range(index)
        of_buffer = slice(0, 0) if owned is None else slice(owned.tensor_relative_offset, owned.tensor_relative_offset + owned.numel)
    if whole is not tensor and tensor.to_local().numel() == whole.numel():  # nothing is sharded
        return 0, whole.numel()
    start, stop = rows(tensor) if of_buffer is None else (of_buffer.start, of_buffer.stop)
    if tensor.to_local().numel() != stop - start:
        raise RefusedRun(
            f"a rank has {tensor.to_local().numel()} elements of a parameter {tuple(tensor.shape)} where its shard has {stop - start}; "
            "shards of rows are read, and Megatron-FSDP's"
        )
    return start, stop


def rows(tensor: DTensor) -> tuple[int, int]:
    """Return the elements of this rank's rows, which are shared out as torch.chunk does."""
    start, length = 0, tensor.shape[0]
    for placement, ranks, index in zip(tensor.placements, tensor.device_mesh.shape, tensor.device_mesh.get_coordinate() or (), strict=True):
        if not placement.is_replicate():
            if not placement.is_shard(0):
                raise RefusedRun(f"a parameter {tuple(tensor.shape)} is placed as {placement}; shards are read where they are rows")
            begin = min(index * math.ceil(length / ranks), length)
            start, length = start + begin, min(math.ceil(length / ranks), length - begin)
    width = math.prod(tensor.shape[1:])
    return start * width, (start + length) * width


def is_first_replica(tensor: DTensor) -> bool:
    """Return whether this rank is the first of those that hold the same shard, as under hybrid sharding."""
    axes = zip(tensor.placements, tensor.device_mesh.get_coordinate() or (), strict=True)
    return not any(index for placement, index in axes if placement.is_replicate())


def install_main_weights(chunk: Module) -> None:
    """Let a chunk compute with its main weights, which were set; Megatron-FSDP keeps copies of them apart."""
    if (buffer := getattr(getattr(chunk, "module", None), "param_and_grad_buffer", None)) is not None:
        buffer.copy_main_weights_to_model_weights()
    for group in {group for parameter in chunk.parameters() if (group := in_group(parameter)[0]) is not None}:
        if group.model_weight is not group.main_weight:
            group.sync_model_weight_from_main_weight()


def sharded_as(tensor: torch.Tensor, local: torch.Tensor) -> torch.Tensor:
    """Return ``local`` as the shard of a tensor that is placed as another one; as it is where that is no DTensor."""
    if not isinstance(tensor, DTensor):
        return local
    own = local.view(tensor.to_local().shape)
    return DTensor.from_local(own, tensor.device_mesh, tensor.placements, run_check=False, shape=tensor.shape, stride=tensor.stride())
