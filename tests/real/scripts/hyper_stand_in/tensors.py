"""Tensors of which each rank holds a part: what they answer is as of hyper-parallel, and they compute nothing across ranks.

In the storage lies this rank's part, and every operator of MindSpore sees that alone.
"""

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, mint

from hyper_stand_in import collectives


class Placement:
    """What a tensor is along one axis of a mesh."""

    def is_shard(self, dim=None):
        return False

    def is_replicate(self):
        return False

    def is_partial(self, reduce_op=None):
        return False

    def __eq__(self, other):
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self):
        return hash((type(self), *vars(self).values()))

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{name[1:]}={value}' for name, value in vars(self).items())})"


class Shard(Placement):
    """Cut along one of its axes."""

    def __init__(self, dim):
        self._dim = dim

    @property
    def dim(self):
        return self._dim

    def is_shard(self, dim=None):
        return dim is None or dim == self._dim


class StridedShard(Shard):
    """Cut where axes of the mesh further right have cut the same axis before."""

    def __init__(self, dim, split_factor):
        super().__init__(dim)
        self._split_factor = split_factor

    @property
    def split_factor(self):
        return self._split_factor


class Replicate(Placement):
    """The same on all."""

    def is_replicate(self):
        return True


class Partial(Placement):
    """A part of a sum on each."""

    def __init__(self, reduce_op="sum"):
        self._reduce_op = reduce_op

    @property
    def reduce_op(self):
        return self._reduce_op

    def is_partial(self, reduce_op=None):
        return reduce_op in (None, self._reduce_op)


class Layout:
    """A mesh and the placements along its axes, for a tensor of some axes."""

    def __init__(self, mesh, placements, ndim):
        self.mesh, self.placements, self.ndim = mesh, tuple(placements), ndim
        self.mesh_shape, self.alias_name, self.rank_list = mesh.mesh_shape, mesh.mesh_dim_names, mesh.rank_list
        self.alias_placements = self.placements

    def cuts(self, axis):
        """Return the axes of the mesh that cut an axis of the tensor, the first to cut first."""
        found = [at for at, each in enumerate(self.placements) if each.is_shard() and each.dim % self.ndim == axis]
        return sorted(found, key=lambda at: getattr(self.placements[at], "split_factor", 1))

    @property
    def tensor_map(self):
        """For each axis of the tensor the axes of the mesh that cut it, counted from the last; -1 for none."""
        counted = [tuple(self.mesh.ndim - 1 - at for at in self.cuts(axis)) for axis in range(self.ndim)]
        return tuple(axes if len(axes) > 1 else axes[0] if axes else -1 for axes in counted)

    @property
    def alias_tensor_map(self):
        """The same with the names of the axes."""
        named = [tuple(self.alias_name[at] for at in self.cuts(axis)) for axis in range(self.ndim)]
        return tuple(axes if len(axes) > 1 else axes[0] if axes else "None" for axes in named)

    def parts(self, axis):
        """Return into how many parts an axis is cut."""
        return int(np.prod([self.mesh_shape[at] for at in self.cuts(axis)], initial=1))

    def get_split_id(self, axis, rank=None):
        """Return which of its parts a rank holds, by default this one."""
        at, index = self.mesh.get_coordinate(rank), 0
        for cut in self.cuts(axis % self.ndim):
            index = index * self.mesh_shape[cut] + at[cut]
        return index

    def get_global_shape(self, local_shape):
        """Return the shape of the whole."""
        return tuple(size * self.parts(axis) for axis, size in enumerate(local_shape))

    def box(self, shape, rank=None):
        """Return the part of a whole that a rank holds, by default this one."""
        sizes = [size // self.parts(axis) for axis, size in enumerate(shape)]
        starts = [size * self.get_split_id(axis, rank) for axis, size in enumerate(sizes)]
        return tuple(slice(start, start + size) for start, size in zip(starts, sizes, strict=True))


def _infer_slice_area_by_rank(mesh_shape, tensor_map, rank_id, full_shape):
    """Return the bounds along each axis of what a place in a mesh holds; the place is counted."""
    at, area = np.unravel_index(rank_id, mesh_shape), []
    for size, axes in zip(full_shape, tensor_map, strict=True):
        index, parts = 0, 1
        for axis in axes if isinstance(axes, tuple) else (axes,):
            if axis >= 0:
                cut = len(mesh_shape) - 1 - axis
                index, parts = index * mesh_shape[cut] + int(at[cut]), parts * mesh_shape[cut]
        area.append((index * (size // parts), (index + 1) * (size // parts)))
    return area


def local_of(value):
    """Return this rank's part of a tensor, itself where it is not cut."""
    return value.to_local() if isinstance(value, DTensor) else value


class DTensor(Tensor):
    """A tensor of which this rank's part is held."""

    def __new__(cls, local_tensor, device_mesh=None, placements=None):
        if isinstance(local_tensor, DTensor):
            device_mesh, placements, local_tensor = local_tensor.device_mesh, local_tensor.placements, local_tensor.to_local()
        made = Tensor._make_subclass(cls, local_tensor)
        made._local_tensor, made._device_mesh = local_tensor, device_mesh
        made._layout = Layout(device_mesh, placements, len(local_tensor.shape))
        made._placements = made._layout.placements
        return made

    def __init__(self, *others, **options):
        pass

    @staticmethod
    def from_local(local_tensor, device_mesh, placements, **others):
        return DTensor(local_tensor, device_mesh, placements)

    device_mesh = property(lambda self: self._device_mesh)
    placements = property(lambda self: self._placements)
    layout = property(lambda self: self._layout)
    local_shape = property(lambda self: self._local_tensor.shape)
    device = property(lambda self: self._local_tensor.device)

    @property
    def shape(self):
        """The shape of the whole."""
        return self._layout.get_global_shape(self._local_tensor.shape)

    def size(self, dim=None):
        return self.shape if dim is None else self.shape[dim]

    def numel(self):
        return int(np.prod(self.shape))

    def to_local(self):
        return self._local_tensor

    def asnumpy(self):
        """Return this rank's part."""
        return self._local_tensor.asnumpy()

    def set_data(self, data):
        """Take another tensor, or an initializer's, for this rank's part."""
        if data.has_init:
            data.init_data()
        self._local_tensor._update_data(local_of(data))
        self._update_data(self._local_tensor)

    has_init = property(lambda self: self._local_tensor.has_init)

    @property
    def init(self):
        return getattr(self._local_tensor, "init", None)

    @init.setter
    def init(self, value):
        self._local_tensor.init = value

    @property
    def local_param_info(self):
        """What makes MindSpore keep a gradient; a parameter of a tensor in parts shares it with the part."""
        return getattr(self._local_tensor, "param_info", None)

    @local_param_info.setter
    def local_param_info(self, info):
        self._local_tensor.param_info = info

    def copy_(self, src, non_blocking=False):
        """Copy this rank's part of a tensor that is cut in the same way."""
        if not isinstance(src, DTensor):
            raise TypeError(f"a DTensor is copied from a DTensor, not from a {type(src).__name__}")
        if src.placements != self.placements:
            raise ValueError(f"placements {src.placements} for {self.placements}")
        self._local_tensor.copy_(src.to_local())
        return self

    def drawn(self, array):
        """Set this rank's part of a whole."""
        self.set_data(Tensor(np.ascontiguousarray(array[self._layout.box(array.shape)]), dtype=self.dtype))
        return self

    def normal_(self, mean=0.0, std=1.0, *others, **options):
        """Fill with this rank's part of what a single process would draw."""
        return self.drawn(np.random.normal(mean, std, self.shape).astype(np.float32))

    def fill_(self, value=0.0, *others, **options):
        return self.drawn(np.full(self.shape, value, np.float32))

    def zero_(self):
        return self.fill_(0.0)

    def full_tensor(self):
        """Return the whole, of the parts of all ranks of the mesh."""
        mesh, layout, whole = self._device_mesh, self._layout, np.zeros(self.shape, self.asnumpy().dtype)
        summed = [at for at, each in enumerate(self._placements) if each.is_partial()]
        kept = [at for at, each in enumerate(self._placements) if each.is_replicate()]
        for rank, part in zip(mesh.rank_list, collectives.exchange(self.asnumpy(), collectives.group_of(mesh.rank_list)), strict=True):
            coordinate = mesh.get_coordinate(rank)
            if summed:
                whole[layout.box(whole.shape, rank)] += part if all(coordinate[at] == 0 for at in kept) else 0
            else:
                whole[layout.box(whole.shape, rank)] = part
        return Tensor(whole)

    def redistribute(self, device_mesh=None, placements=None):
        """Return the tensor cut in another way, without a gradient."""
        whole, layout = self.full_tensor().asnumpy(), Layout(device_mesh or self._device_mesh, placements, len(self.shape))
        return DTensor(Tensor(np.ascontiguousarray(whole[layout.box(whole.shape)])), layout.mesh, layout.placements)

    def reduce_partial(self):
        """Return the sums of what is partial."""
        return self.redistribute(self._device_mesh, [Replicate() if each.is_partial() else each for each in self._placements])

    def clone(self, init="same"):
        """Return a parameter or tensor that is cut in the same way."""
        return Parameter.clone(self, init) if isinstance(self, Parameter) else self.__copy__()

    def __copy__(self):
        made = type(self).__new__(type(self), DTensor(Tensor(self.asnumpy()), self._device_mesh, self._placements))
        vars(made).update({name: value for name, value in vars(self).items() if name != "_local_tensor"})
        return made

    def __str__(self):
        return str(self._local_tensor)


def in_place(name):
    """Return a method that changes this rank's part."""

    def change(self, other, **options):
        getattr(self._local_tensor, name)(local_of(other), **options)
        return self

    return change


for _name in ("add_", "sub_", "mul_", "div_"):
    setattr(DTensor, _name, in_place(_name))


def distribute_tensor(tensor, device_mesh, placements):
    """Return this rank's part of a tensor that all ranks have."""
    layout = Layout(device_mesh, placements, len(tensor.shape))
    return DTensor(cut(tensor, layout.box(tensor.shape)), device_mesh, placements)


def cut(tensor, box):
    """Return a part of a tensor, of one that has no values yet one without."""
    if tensor.is_meta:
        with mindspore.DeviceCtx("meta"):
            return mint.empty(tuple(side.stop - side.start for side in box), dtype=tensor.dtype)
    return Tensor(np.ascontiguousarray(tensor.asnumpy()[box]))


def parameter(value, like):
    """Return a parameter with the name of another."""
    return Parameter(value, name=like.name, requires_grad=like.requires_grad)
