"""The mesh of ranks: an array of them with a name for each axis, of which a process sees the part that it lies in."""

import numpy as np
from mindspore import Tensor

from hyper_stand_in import collectives


class DeviceMesh:
    """Ranks in a grid."""

    def __init__(self, device_type, mesh=None, *, mesh_dim_names=None, **others):
        self.device_type = device_type
        self.array = np.asarray(collectives.world() if mesh is None else mesh)
        self.mesh_dim_names = tuple(mesh_dim_names) if mesh_dim_names else None
        self.rank = collectives.rank()

    @property
    def mesh(self):
        """The ranks as a tensor."""
        return Tensor(self.array.astype(np.int32))

    @property
    def ndim(self):
        return self.array.ndim

    @property
    def mesh_shape(self):
        return self.array.shape

    shape = mesh_shape

    @property
    def rank_list(self):
        return tuple(int(rank) for rank in self.array.reshape(-1))

    def to_hash(self):
        """Return what two meshes of the same meaning share."""
        return self.mesh_shape, self.mesh_dim_names, self.rank_list

    def axis_index(self, axis):
        """Return the place of an axis, which is named or counted."""
        return self.mesh_dim_names.index(axis) if isinstance(axis, str) else axis

    def size(self, mesh_dim=None):
        """Return the number of ranks, of one axis or of all."""
        return int(self.array.size if mesh_dim is None else self.array.shape[self.axis_index(mesh_dim)])

    def get_device_num_along_axis(self, axis):
        return self.size(axis)

    def get_coordinate(self, rank=None):
        """Return where a rank lies, by default this one."""
        return tuple(int(at) for at in np.argwhere(self.array == (self.rank if rank is None else rank))[0])

    def get_local_rank(self, mesh_dim=None):
        """Return this rank's place along an axis, which need not be given where there is one."""
        return self.get_coordinate()[0 if mesh_dim is None else self.axis_index(mesh_dim)]

    def along(self, axes):
        """Return the part of the array in which only some axes vary, in their order, and this rank lies."""
        at, kept = self.get_coordinate(), [self.axis_index(axis) for axis in axes]
        part = self.array[tuple(slice(None) if axis in kept else at[axis] for axis in range(self.ndim))]
        return part.transpose([sorted(kept).index(axis) for axis in kept])

    def get_rank_list_along_axis(self, axis):
        return [int(rank) for rank in self.along([axis])]

    def get_group(self, mesh_dim=None):
        """Return the group of the ranks along an axis, which need not be given where there is one."""
        if mesh_dim is None and self.ndim != 1:
            raise RuntimeError(f"a mesh of {self.ndim} axes has no one group")
        return collectives.group_of(self.get_rank_list_along_axis(0 if mesh_dim is None else mesh_dim))

    def __getitem__(self, names):
        """Return the mesh of some axes."""
        names = (names,) if isinstance(names, str) else tuple(names)
        return DeviceMesh(self.device_type, self.along(names), mesh_dim_names=names)

    def _unflatten(self, dim, mesh_sizes, mesh_dim_names, backend_override=None):
        """Return the mesh with one axis in several."""
        at, old = self.axis_index(dim), self.mesh_dim_names
        shape = (*self.mesh_shape[:at], *mesh_sizes, *self.mesh_shape[at + 1 :])
        return DeviceMesh(self.device_type, self.array.reshape(shape), mesh_dim_names=(*old[:at], *mesh_dim_names, *old[at + 1 :]))

    def _flatten(self, mesh_dim_name=None):
        """Return the mesh with all its axes in one."""
        name = mesh_dim_name or "_".join(self.mesh_dim_names)
        return DeviceMesh(self.device_type, self.array.reshape(-1), mesh_dim_names=(name,))

    flatten = _flatten

    @staticmethod
    def concatenate(meshes):
        """Return the mesh of all axes of meshes in which this rank lies; each step along an axis is as far as it is there."""
        array, names = np.asarray(collectives.rank()), ()
        for mesh in meshes:
            array = array[(..., *[None] * mesh.ndim)] + (mesh.array - mesh.rank)
            names += mesh.mesh_dim_names
        return DeviceMesh(meshes[0].device_type, array, mesh_dim_names=names)


def init_device_mesh(device_type, mesh_shape, *, mesh_dim_names=None, **others):
    """Return a mesh of all ranks."""
    return DeviceMesh(device_type, np.reshape(collectives.world(), mesh_shape), mesh_dim_names=mesh_dim_names)
