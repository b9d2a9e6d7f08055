"""Collectives of MindSpore between processes of a CPU, each an exchange of arrays and a sum in numpy.

A CPU's communication (``mccl``) has a kernel that gathers whole numbers of all ranks, and few others. A group is named by its ranks.
"""

import pickle

import mindspore
import numpy as np
from mindspore import Tensor, communication, mint, ops
from mindspore.common._grad_function import _Function
from mindspore.graph.api import _no_grad
from mindspore.mint import distributed
from mindspore.ops import communication as functional

SUMS = {"sum": np.sum, "avg": np.mean, "max": np.max, "min": np.min, "prod": np.prod}
groups: dict[str, tuple[int, ...]] = {}
"""The ranks of each group by its name."""


def nothing(*others, **options):
    """Stand for what need not be done."""


def begin():
    """Join the processes that msrun has started."""
    mindspore.set_device("CPU")
    communication.init("mccl")
    mindspore.set_device = nothing  # it refuses a second call where a rank is not the first of its host


def rank():
    return communication.get_rank()


def world():
    return tuple(range(communication.get_group_size()))


def group_of(ranks):
    """Return the name of a group."""
    name = "ranks " + " ".join(map(str, ranks))
    groups[name] = tuple(ranks)
    return name


def members(group=None):
    """Return the ranks of a group; all of an unknown one, which is MindSpore's world."""
    return groups.get(group) or world()


def gathered(array):
    """Return every rank's array, all of one shape and type."""
    held = np.zeros(-(-array.nbytes // 4) * 4 or 4, np.uint8)
    held[: array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
    with _no_grad():
        given = ops.AllGather()(Tensor(held.view(np.int32))).asnumpy()
    rows = given.reshape(len(world()), -1).view(np.uint8)
    return [np.frombuffer(row[: array.nbytes].tobytes(), array.dtype).reshape(array.shape) for row in rows]


def exchange(array, group=None):
    """Return every member's array, all of one shape and type; all ranks call it at once, each for its own of equal groups."""
    ranks, array = members(group), np.asarray(array, order="C")
    if len(ranks) == 1:
        return [array]
    rows = gathered(array)
    return [rows[each] for each in ranks]


def exchange_objects(value, group=None):
    """Return every member's object."""
    held = pickle.dumps(value)
    sizes = [int(size[0]) for size in gathered(np.array([len(held)], np.int64))]
    rows = gathered(np.frombuffer(held.ljust(max(sizes), b"\0"), np.uint8))
    return [pickle.loads(rows[each][: sizes[each]].tobytes()) for each in members(group)]


def reduced(array, group=None, op="sum"):
    """Return the sum, or what else ``op`` names, of every member's array."""
    return np.asarray(SUMS[op](np.stack(exchange(array, group)), 0), array.dtype)


def own(group=None):
    """Return this rank's place in a group."""
    return members(group).index(rank())


def part(array, group=None, axis=0):
    """Return this rank's of the equal parts of an array along an axis."""
    return np.split(array, len(members(group)), axis)[own(group)]


def put(tensor, array):
    """Set a tensor's values in place."""
    with _no_grad():
        tensor.copy_(Tensor(np.asarray(array, order="C")))


class AllReduce(_Function):
    """The sum, and of its gradient the sum too."""

    @staticmethod
    def forward(ctx, x, op, group):
        ctx.group = group
        return Tensor(reduced(x.asnumpy(), group, op))

    @staticmethod
    def backward(ctx, gradient):
        return Tensor(reduced(gradient.asnumpy(), ctx.group)), None, None


class AllGather(_Function):
    """The members' rows below each other; of the gradient each takes the sum of its rows."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return Tensor(np.concatenate(exchange(x.asnumpy(), group)))

    @staticmethod
    def backward(ctx, gradient):
        return Tensor(part(reduced(gradient.asnumpy(), ctx.group), ctx.group)), None


class ReduceScatter(_Function):
    """Each member's rows of the sum, whose gradient is gathered."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return Tensor(part(reduced(x.asnumpy(), group), group))

    @staticmethod
    def backward(ctx, gradient):
        return Tensor(np.concatenate(exchange(gradient.asnumpy(), ctx.group))), None


def sent(array, sizes, group):
    """Return what every member sent to this one, below each other; ``sizes`` has the rows for each."""
    pieces = np.split(array, np.cumsum(sizes)[:-1])
    return np.concatenate([theirs[own(group)] for theirs in exchange_objects(pieces, group)])


class AllToAll(_Function):
    """Rows for each member, whose gradient goes back."""

    @staticmethod
    def forward(ctx, x, received, given, group):
        ctx.received, ctx.group = received, group
        return Tensor(sent(x.asnumpy(), given, group))

    @staticmethod
    def backward(ctx, gradient):
        return Tensor(sent(gradient.asnumpy(), ctx.received, ctx.group)), None, None, None


def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None, async_op=False):
    """Exchange rows; equal parts where no sizes are given."""
    equal = [input.shape[0] // len(members(group))] * len(members(group))
    return AllToAll.apply(input, list(output_split_sizes or equal), list(input_split_sizes or equal), group), None


def all_to_all(output_tensor_list, input_tensor_list, group=None, async_op=False):
    """Exchange one tensor with each member, without a gradient."""
    received = exchange_objects([x.asnumpy() for x in input_tensor_list], group)
    return [Tensor(theirs[own(group)]) for theirs in received], None


def all_reduce_in_place(tensor, op="sum", group=None, async_op=False):
    put(tensor, reduced(tensor.asnumpy(), group, op))


def all_gather_in_place(output, tensor, group=None, async_op=False):
    put(output, np.concatenate(exchange(tensor.asnumpy(), group)))


def all_gather_list(tensor_list, tensor, group=None, async_op=False):
    for output, array in zip(tensor_list, exchange(tensor.asnumpy(), group), strict=True):
        put(output, array)


def reduce_scatter_in_place(output, tensor, op="sum", group=None, async_op=False):
    put(output, part(reduced(tensor.asnumpy(), group, op), group))


def broadcast(tensor, src, group=None, async_op=False):
    put(tensor, exchange(tensor.asnumpy(), group)[members(group).index(src)])


def broadcast_object_list(object_list, src=0, group=None, device=None):
    object_list[:] = exchange_objects(list(object_list), group)[members(group).index(src)]


def all_gather_object(object_list, obj, group=None):
    object_list[:] = exchange_objects(obj, group)


def gather_object(obj, object_gather_list=None, dst=0, group=None):
    received = exchange_objects(obj, group)
    if object_gather_list is not None:
        object_gather_list[:] = received


def barrier(group=None, *others, **options):
    exchange(np.zeros(1, np.int32), group)


IN_PLACE = {
    "init_process_group": nothing,
    "destroy_process_group": nothing,
    "get_rank": lambda group=None: own(group),
    "get_world_size": lambda group=None: len(members(group)),
    "new_group": lambda ranks=None, *others, **options: group_of(ranks or world()),
    "all_reduce": all_reduce_in_place,
    "all_gather": all_gather_list,
    "all_gather_into_tensor": all_gather_in_place,
    "reduce_scatter_tensor": reduce_scatter_in_place,
    "broadcast": broadcast,
    "broadcast_object_list": broadcast_object_list,
    "all_gather_object": all_gather_object,
    "gather_object": gather_object,
    "barrier": barrier,
}
"""Names of ``mindspore.mint.distributed``."""
DIFFERENTIATED = {
    "set_comm_ops_inplace": nothing,
    "all_reduce": lambda tensor, op="sum", group=None, async_op=False: (AllReduce.apply(tensor, op, group), None),
    "all_gather_into_tensor": lambda output, tensor, group=None, async_op=False: (AllGather.apply(tensor, group), None),
    "reduce_scatter_tensor": lambda output, tensor, op="sum", group=None, async_op=False: (ReduceScatter.apply(tensor, group), None),
    "all_to_all_single": all_to_all_single,
    "all_to_all": all_to_all,
    "barrier": barrier,
}
"""Names of ``mindspore.ops.communication``, which return a result and no handle."""


def install():
    """Put the collectives in the place of MindSpore's, before anything takes those by name."""
    for module, named in ((distributed, IN_PLACE), (mint.distributed, IN_PLACE), (functional, DIFFERENTIATED)):
        for name, function in named.items():
            setattr(module, name, function)
