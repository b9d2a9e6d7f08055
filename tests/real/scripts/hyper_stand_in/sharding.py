"""Parameters cut over ranks: by a plan, and over data-parallel ranks with their gradients summed.

Before the forward pass of the outermost module all parts of all its parameters are gathered, and modules see the gathered ones; behind
each backward pass their gradients are summed, and modules see the parts again, with the sums in ``main_grad``.
"""

import os
from dataclasses import dataclass, field
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor

from align_hooks.ms_side.pynative import hyper_parallel
from hyper_stand_in import collectives
from hyper_stand_in.mesh import DeviceMesh
from hyper_stand_in.tensors import DTensor, Replicate, Shard, StridedShard, cut, distribute_tensor, local_of, parameter

PLANTED = os.environ.get("PLANTED")
"""A fault: ``unreduced`` leaves out the sum over the ranks that hold copies."""


@dataclass
class MixedPrecisionPolicy:
    param_dtype: Any = None
    reduce_dtype: Any = None
    output_dtype: Any = None
    cast_forward_inputs: bool = True
    apply_grad_on_fp32_main_grad: bool = False


@dataclass
class OffloadPolicy:
    pass


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    pin_memory: bool = True


@dataclass
class ShardingPlan:
    plan: dict = field(default_factory=dict)
    input_plan: Any = None
    output_plan: Any = None


def places(module):
    """Return each parameter below a module with the cells that hold it and its name there."""
    found = {}
    for _, cell in module.cells_and_names():
        for name, held in cell._params.items():
            if held is not None:
                found.setdefault(id(held), (held, []))[1].append((cell, name))
    return list(found.values())


def shard_module(module, device_mesh, sharding_plan):
    """Cut the parameters of a module that a plan names."""
    cells = dict(module.cells_and_names())
    for path, placements in sharding_plan.plan.items():
        cell, _, name = path.rpartition(".")
        held = cells[cell]._params.get(name)
        if held is not None and not isinstance(held, DTensor):
            cells[cell]._params[name] = parameter(distribute_tensor(held, device_mesh, placements), held)
    return module


class Sharded:
    """A parameter that is cut over data-parallel ranks, or copied to all of them."""

    def __init__(self, held, owners, mesh, dim, replicated):
        self.owners, self.dim = owners, dim
        self.source = held if isinstance(held, DTensor) else None
        dp = Replicate()
        self.mesh, placements = mesh, [dp] * mesh.ndim
        if self.source is not None:
            self.mesh, placements = DeviceMesh.concatenate([mesh, held.device_mesh]), [*placements, *held.placements]
        axis = mesh.ndim - 1
        if not replicated:
            before = [self.mesh.size(at) for at, each in enumerate(placements) if each.is_shard(dim)]
            factor = int(np.prod(before, initial=1))
            placements[axis] = StridedShard(dim, split_factor=factor) if factor > 1 else Shard(dim)
        self.shards = collectives.group_of([mesh.rank] if replicated else mesh.get_rank_list_along_axis(axis))
        copies = [at for at, each in enumerate(placements) if each.is_replicate()]
        self.copies = collectives.group_of(self.mesh.along(copies).reshape(-1).tolist() if copies else [mesh.rank])
        self.placements = tuple(placements)
        local, parts = local_of(held), len(collectives.members(self.shards))
        size = local.shape[dim] // parts if not replicated else local.shape[dim]
        start = size * collectives.own(self.shards)
        box = [slice(0, length) for length in local.shape]
        box[dim] = slice(start, start + size)
        self.sharded_param = parameter(DTensor(cut(local, tuple(box)), self.mesh, self.placements), held)
        self.sharded_param._hsdp_param_initialized = True
        self.whole = self.sum = None
        self.show(self.sharded_param)

    def show(self, shown):
        """Let modules see a parameter."""
        for cell, name in self.owners:
            cell._params[name] = shown

    def unshard(self):
        """Gather the parts and show the whole, or of a parameter that a plan has cut the part of this plan."""
        array = np.concatenate(collectives.exchange(self.sharded_param.asnumpy(), self.shards), self.dim)
        value = Tensor(array)
        if self.source is not None:
            value = DTensor(value, self.source.device_mesh, self.source.placements)
        self.whole = parameter(value, self.sharded_param)
        if self.whole.requires_grad:  # a CPU adds gradients that come through views in the wrong order
            local_of(self.whole).register_hook(lambda gradient: gradient.contiguous())
        self.show(self.whole)

    def reduce(self, *, all_ranks):
        """Sum the gradient over the ranks that hold parts, and, at the last micro-batch, over those that hold copies."""
        gradient = None if self.whole is None else self.whole.grad
        if gradient is not None:
            total = collectives.reduced(gradient.contiguous().asnumpy().astype(np.float32), self.shards)
            part = collectives.part(total, self.shards, self.dim)
            self.sum = part if self.sum is None else self.sum + part
        if all_ranks and self.sum is not None:
            total, self.sum = self.sum if PLANTED == "unreduced" else collectives.reduced(self.sum, self.copies), None
            main = getattr(self.sharded_param, "main_grad", None)
            total = total if main is None else main.asnumpy() + total
            self.sharded_param.main_grad = DTensor(Tensor(np.ascontiguousarray(total)), self.mesh, self.placements)

    def reshard(self):
        """Show the parts again."""
        self.whole = None
        self.show(self.sharded_param)

    def zero_grad(self):
        self.sharded_param.grad = self.sharded_param.main_grad = self.sum = None


class HSDPModule:
    """What a module whose parameters are cut over data-parallel ranks can do beside what it could."""

    def sharded_below(self):
        """Return the cut parameters of this module and of those below it."""
        modules = [cell for _, cell in self.cells_and_names() if isinstance(cell, HSDPModule)]
        return [each for cell in modules for each in cell.hsdp_scheduler]

    def set_requires_all_reduce(self, requires_all_reduce, *, recurse=True):
        """Say whether the next backward pass sums over copies too."""
        for _, cell in self.cells_and_names():
            if isinstance(cell, HSDPModule):
                cell.requires_all_reduce = requires_all_reduce

    def set_reduce_op_type(self, reduce_op_type):
        """Take sums; the trainer of MindFormers divides itself."""
        if reduce_op_type != "sum":
            raise NotImplementedError(f"gradients are summed, not {reduce_op_type}")

    def zero_grad(self):
        """Drop the gradients of all parameters of this module and of those below it."""
        for each in self.sharded_below():
            each.zero_grad()

    def set_modules_to_forward_prefetch(self, modules):
        pass

    set_modules_to_backward_prefetch = set_modules_to_forward_prefetch

    def before_forward(self, *others):
        """Gather all parameters, where this module is the outermost."""
        if running and running[0] is not self:
            return
        running[:] = [self]
        for each in self.sharded_below():
            each.unshard()

    def after_backward(self):
        """Sum the gradients."""
        for _, cell in self.cells_and_names():
            for each in cell.hsdp_scheduler if isinstance(cell, HSDPModule) else ():
                each.reduce(all_ranks=cell.requires_all_reduce)
                each.reshard()


running: list[HSDPModule] = []
"""The module whose forward pass was the last, until a backward pass ends."""
classes: dict[type, type] = {}


def fully_shard(module, *, mesh, shard_placement_fn=None, ignored_params=None, replicate_params=None, **others):
    """Cut the parameters below a module that are not yet cut over data-parallel ranks."""
    kind = type(module)
    module.__class__ = classes.setdefault(kind, type(f"HSDP{kind.__name__}", (HSDPModule, kind), {}))
    ignored, replicated = ({id(each) for each in given or ()} for given in (ignored_params, replicate_params))
    module.hsdp_scheduler, module.requires_all_reduce = [], True
    for held, owners in places(module):
        if id(held) in ignored or getattr(held, "_hsdp_param_initialized", False):
            continue
        placement = shard_placement_fn(held) if shard_placement_fn is not None else None
        dim = 0 if placement is None else placement.dim % len(held.shape)
        module.hsdp_scheduler.append(Sharded(held, owners, mesh, dim, id(held) in replicated))
    module.register_forward_pre_hook(lambda cell, inputs: HSDPModule.before_forward(cell))
    return module


def backward(loss, *others, **options):
    """Differentiate, and sum the gradients over ranks."""
    hyper_parallel.backward(loss, *others, **options)
    if running:
        running.pop().after_backward()


def give_backward():
    """Give MindSpore's tensors ``backward``."""
    hyper_parallel.give_backward()
    mindspore._c_expression.TensorPy.backward = backward


class Platform:
    """What MindFormers asks of hyper-parallel's platform."""

    def differentiable_all_reduce(self, tensor, op, group):
        """Return the sum over a group."""
        return collectives.AllReduce.apply(tensor, op, group)
