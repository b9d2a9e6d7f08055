"""Train semi-automatically on CPUs: ``semi_automatic.py SCRIPT [ARGUMENT ...]``, by msrun.

MindSpore knows groups of GPUs and NPUs alone. In this process, and in no file, five constants of
its frontend that name a GPU name the CPU, its groups are those of data parallelism, which a CPU
has, and the scattered sum of gradients is a sum of which a rank takes its rows. COMMUNICATION
names what was compiled of ``cpu_communication.cc``.
"""

import ctypes
import mmap
import os
import re
import runpy
import sys
from pathlib import Path

import mindspore
from mindspore import communication, nn, ops
from mindspore.ops._grad_experimental import grad_comm_ops

FRONTEND = Path(mindspore.__file__).parent / "lib" / "libmindspore_frontend.so"
WORLD, DEVICE = b"\0nccl_world_group\0", b"\0GPU\0"
HOSTS = communication.MCCL_WORLD_COMM_GROUP
NEAR = 200
"""Bytes between constants of one source file."""


def places(held: bytes) -> dict[int, bytes]:
    """Return what is written at which offset of the frontend: the world, and the device near it
    and before the one refusal of other devices."""
    worlds = [found.start() for found in re.finditer(WORLD, held)]
    near = [held.find(DEVICE, at, at + NEAR) for at in worlds]
    near.append(held.rfind(DEVICE, 0, held.index(b"Invalid backend")))
    changes = {at + 1: HOSTS.encode() for at in worlds}
    return changes | {at + 1: b"CPU" for at in near if at >= 0}


def rewrite(library: Path, changes: dict[int, bytes]) -> None:
    """Write into the code of a loaded library, by offsets in its file."""
    c = ctypes.CDLL(None, use_errno=True)
    maps = Path("/proc/self/maps").read_text().splitlines()
    (line,) = (line for line in maps if line.endswith(str(library)) and line.split()[2] == "00000000")
    first, end = (int(bound, 16) for bound in line.split()[0].split("-"))
    for at, text in changes.items():
        assert ctypes.string_at(first + at - 1) == b"" and first + at < end
        page = ctypes.c_void_p((first + at) & -mmap.PAGESIZE)
        for rights in (mmap.PROT_WRITE, 0):
            rights |= mmap.PROT_READ | mmap.PROT_EXEC
            if c.mprotect(page, ctypes.c_size_t(2 * mmap.PAGESIZE), rights):
                raise OSError(ctypes.get_errno(), f"mprotect of {library.name}")
            if rights & mmap.PROT_WRITE:
                ctypes.memmove(first + at, text, len(text))


def host(group: bytes) -> str:
    """Return the name on the host of a group of the graph's."""
    return HOSTS if b"world_group" in group or not group else group.decode()


@ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint), ctypes.c_uint32)
def make(group, ranks, count):
    communication.create_group(group.decode(), ranks[:count])
    return True


@ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_char_p)
def rank(group):
    return communication.get_rank(host(group))


@ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_char_p)
def size(group):
    return communication.get_group_size(host(group))


class SumOfOwnRows(nn.Cell):
    """Stands for ReduceScatter, of which a CPU has no kernel."""

    def __init__(self, op=ops.ReduceOp.SUM, group=HOSTS):
        super().__init__(auto_prefix=False)
        self.all_reduce = ops.AllReduce(op, group)
        self.parts, self.own = communication.get_group_size(group), communication.get_rank(group)

    def of_a_primitive(self, *given):
        return self

    add_prim_attr = set_prim_instance_name = of_a_primitive

    def construct(self, gradient):
        rows = gradient.shape[0] // self.parts
        return self.all_reduce(gradient)[self.own * rows : (self.own + 1) * rows]


def plant(fault):
    """Let each rank read the next one's columns, or the next one's rows of an optimizer's parts."""
    from align_hooks.ms_side import layouts

    if fault == "columns":
        part = layouts.WeightLayout.part
        layouts.WeightLayout.part = lambda layout, axis, own: part(layout, axis, own + axis)
    else:
        boxes = layouts.boxes
        layouts.boxes = lambda layout, own, place=0, parts=1: boxes(layout, own, (place + 1) % parts, parts)


if __name__ == "__main__":
    rewrite(FRONTEND, places(FRONTEND.read_bytes()))
    assert ctypes.CDLL(os.environ["COMMUNICATION"]).install(make, rank, size)
    grad_comm_ops.ReduceScatter = SumOfOwnRows
    if fault := os.environ.get("PLANTED"):
        plant(fault)
    if "WITNESS" in os.environ:
        os.environ["WITNESS"] = os.environ["WITNESS"].format(rank=os.environ.get("RANK_ID", ""))
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    runpy.run_path(sys.argv[0], run_name="__main__")
