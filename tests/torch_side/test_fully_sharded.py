"""Shards of Megatron-FSDP 2, whose groups of parameters are stood in for: a range of rows on each rank, or nothing."""

import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from align_hooks.errors import RefusedRun
from align_hooks.torch_side.fully_sharded import computed, elements, install_main_weights


class Group:
    """A ``FsdpParameterGroup`` of one parameter ``[6, 2]``, of which this rank owns some elements."""

    def __init__(self, sharded: Any, owned: Any, unsharded: torch.Tensor) -> None:
        self.fsdp_parameters = [SimpleNamespace(sharded=None, unsharded=None), SimpleNamespace(sharded=sharded, unsharded=unsharded)]
        self.main_weight = SimpleNamespace(_get_owned_range=lambda index: owned if index else None)
        self.model_weight: object = self.main_weight
        self.synced = 0

    def sync_model_weight_from_main_weight(self) -> None:
        self.synced += 1


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[DeviceMesh]:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield DeviceMesh("cpu", [0])
    torch.distributed.destroy_process_group()


def sharded(mesh: DeviceMesh, rows: int, owned: Any) -> tuple[DTensor, Group]:
    tensor = DTensor.from_local(torch.zeros(rows, 2), mesh, [Shard(0)], run_check=False, shape=torch.Size((6, 2)), stride=(2, 1))
    group = Group(tensor, owned, torch.zeros(6, 2, dtype=torch.bfloat16))
    tensor._mfsdp_parameter_group = weakref.ref(group)
    return tensor, group


@pytest.mark.parametrize(("rows", "start", "span"), [(2, 8, (8, 12)), (4, 0, (0, 8)), (0, None, (0, 0)), (6, 0, (0, 12))])
def test_the_range_is_the_one_that_the_group_owns(mesh: DeviceMesh, rows: int, start: int | None, span: tuple[int, int]) -> None:
    owned = None if start is None else SimpleNamespace(tensor_relative_offset=start, numel=2 * rows)
    tensor, group = sharded(mesh, rows, owned)
    assert elements(tensor) == span
    assert computed(tensor) is group.fsdp_parameters[1].unsharded


def test_a_group_that_says_otherwise_than_the_shard_is_refused(mesh: DeviceMesh) -> None:
    tensor, group = sharded(mesh, 3, SimpleNamespace(tensor_relative_offset=0, numel=4))
    assert group.synced == 0
    with pytest.raises(RefusedRun, match="6 elements of a parameter"):
        elements(tensor)


def test_weights_to_compute_with_are_made_again_of_main_weights_that_are_others(mesh: DeviceMesh) -> None:
    tensor, group = sharded(mesh, 6, SimpleNamespace(tensor_relative_offset=0, numel=12))
    chunk = SimpleNamespace(parameters=lambda: [tensor, torch.zeros(1)])
    install_main_weights(chunk)
    assert group.synced == 0
    group.model_weight = object()
    install_main_weights(chunk)
    assert group.synced == 1
