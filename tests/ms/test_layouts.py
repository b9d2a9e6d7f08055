"""MindSpore's layouts: the parts of all ranks are the whole weight, each element once, as its own slicing gives them."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from align_hooks.errors import RefusedRun
from align_hooks.ms_side.feeding import Sizes
from align_hooks.ms_side.layouts import WeightLayout, boxes, cut_and_flat, is_counted, layout_of
from align_hooks.names.blocks import Dims
from align_hooks.names.fused import Fused
from tables import MINDFORMERS_LLAMA

W1 = ([2, 2], [0, -1], [4, 6], 0, True, "2-520", [8, 6], [4, 6], False, False, 0, 0)
W2 = ([2, 2], [-1, 0], [6, 4], 0, True, "2-520", [6, 8], [6, 4], False, False, 0, 0)
NORM = ([2, 2], [-1], [6], 0, True, "", [6], [6], False, False, 0, 0)
"""What MindSpore 2.9 gave for three weights on 2 data- by 2 model-parallel ranks with the parallel optimizer."""

LLAMA = {
    "model.layers.0.attention.wq.weight": ((16, 16), 0),
    "model.layers.0.attention.wo.weight": ((16, 16), 1),
    "model.layers.0.feed_forward.w_gate_hidden.weight": ((64, 16), 0),
    "model.layers.0.attention.w_qkv.weight": ((32, 16), 0),
    "model.layers.0.attention_norm.weight": ((16,), None),
    "lm_head.weight": ((32, 16), 0),
}
DIMS = Dims(heads=4, groups=4, head_dim=4, ffn=32, vocabulary=27, padded=32)
DIMS_QKV = Dims(heads=4, groups=2, head_dim=4, ffn=32, vocabulary=27, padded=32)


@pytest.mark.parametrize(
    ("rank", "w1", "w2"),
    [
        (0, ((0, 2), (0, 6)), ((0, 3), (0, 4))),
        (1, ((4, 6), (0, 6)), ((0, 3), (4, 8))),
        (2, ((2, 4), (0, 6)), ((3, 6), (0, 4))),
        (3, ((6, 8), (0, 6)), ((3, 6), (4, 8))),
    ],
)
def test_the_parts_of_two_data_by_two_model_parallel_ranks(rank: int, w1: Any, w2: Any) -> None:
    data = rank // 2
    assert boxes(layout_of("w1", W1, (8, 6)), rank, data, 2) == w1
    assert boxes(layout_of("w2", W2, (6, 8)), rank, data, 2) == w2
    assert boxes(layout_of("norm", NORM, (6,)), rank) == ((0, 6),)
    assert is_counted(layout_of("w1", W1, (8, 6)), rank, data, 2)
    assert is_counted(layout_of("norm", NORM, (6,)), rank) == (rank == 0)


def native(name: str, layout: WeightLayout, rank: int, group_rank: int, group_size: int) -> Fused:
    cut, flat = cut_and_flat(layout, rank, group_rank, group_size)
    local = [size // layout.parts(axis) for axis, size in enumerate(layout.shape)]
    fused = MINDFORMERS_LLAMA.fused(name, local, DIMS_QKV if "w_qkv" in name else DIMS, cut=cut)
    assert fused is not None
    return fused if flat is None else fused.narrowed(*flat)


@pytest.mark.parametrize("name", LLAMA)
@given(dp=st.sampled_from([1, 2, 3, 4]), mp=st.sampled_from([1, 2]), pp=st.sampled_from([1, 2]), shard=st.sampled_from([0, 1, 2, 4]))
def test_all_ranks_together_hold_each_element_once_a_copy(name: str, dp: int, mp: int, pp: int, shard: int) -> None:
    shape, axis = LLAMA[name]
    axes = tuple(0 if index == axis else -1 for index in range(len(shape)))
    replicas = dp * (1 if axis is not None else mp)
    size = min(shard, replicas)
    rows = shape[0] // (mp if axis == 0 else 1)
    if size == 0 or replicas % size or rows % size:
        size = 0  # as MindSpore does, which leaves such a weight whole
    layout = WeightLayout(name, (dp, mp), axes, shape, "group" if size else "")
    stage, counted, held = dp * mp, Counter[Any](), Counter[Any]()
    uncut = native(name, WeightLayout(name, (1, 1), axes, shape), 0, 0, 1)
    whole = {piece.name: np.arange(math.prod(piece.shape), dtype=np.float32).reshape(piece.shape) for piece in uncut.parts}
    full = uncut.join(whole)
    for rank in range(stage * (pp - 1), stage * pp):  # the last stage: only the rank within it counts
        member = rank % stage
        position = member // mp if axis is not None else member
        group = (position % size, size) if size else (0, 1)
        fused = native(name, layout, rank, *group)
        mine = full[tuple(slice(*one) for one in boxes(layout, rank, *group))]
        np.testing.assert_array_equal(fused.join(whole).reshape(mine.shape), mine)  # what MindSpore's slicing leaves
        for piece, found in fused.split(mine.reshape(-1) if fused.flat else mine):
            elements = [(piece, value) for value in found.reshape(-1).tolist()]
            held.update(elements)
            counted.update(elements if is_counted(layout, rank, *group) else ())
    once = Counter((piece, value) for piece, array in whole.items() for value in array.reshape(-1).tolist())
    assert counted == once == Counter(set(once))
    assert held == Counter(dict.fromkeys(once, replicas // size if size else replicas))


def test_parts_of_equal_rank_repeat_where_the_optimizer_is_cut_over_fewer_ranks() -> None:
    layout = WeightLayout("w", (4, 2), (0, -1), (8, 6), "group")
    ranks = {rank: boxes(layout, rank, rank // 2 % 2, 2) for rank in range(8)}
    assert ranks[0] == ranks[4] == ((0, 2), (0, 6))
    assert [is_counted(layout, rank, rank // 2 % 2, 2) for rank in range(8)] == [True] * 4 + [False] * 4


def test_places_are_blocks_of_stages_with_model_parallel_ranks_side_by_side() -> None:
    places = [Sizes(dp=2, cp=2, mp=2, pp=2).place(rank, 16) for rank in range(16)]
    assert [one["pp"] for one in places] == [0] * 8 + [1] * 8
    assert [one["dp"] for one in places[8:]] == [0] * 4 + [1] * 4
    assert [one["cp"] for one in places[8:12]] == [0, 0, 1, 1]
    assert [one["tp"] for one in places[:4]] == [0, 1, 0, 1]
    sizes = {"dp_size": 2, "tp_size": 2, "pp_size": 2, "cp_size": 2, "ep_size": 1}
    assert places[13] == {"dp": 1, "tp": 1, "pp": 1, "cp": 0, "ep": 0} | sizes


@pytest.mark.parametrize(
    ("entry", "shape", "said"),
    [
        (W1[:5], (8, 6), "w: MindSpore's layout has 5 entries"),
        ((*W1[:4], False, *W1[5:]), (8, 6), "w is cut into parts of unequal size"),
        (W1, (2, 4, 6), "w is cut as"),
        (([2, 3], [0, -1], [4, 6], 0, True, "", [8, 6]), (8, 6), "not cut into equal parts along axis 0"),
    ],
)
def test_layouts_that_are_not_read_are_refused_by_name(entry: Any, shape: Any, said: str) -> None:
    with pytest.raises(RefusedRun, match=said):
        layout_of("w", entry, shape)


def test_two_cut_axes_odd_groups_and_odd_jobs_are_refused() -> None:
    with pytest.raises(RefusedRun, match="w is cut along 2 axes"):
        cut_and_flat(WeightLayout("w", (2, 2), (0, 1), (8, 6)), 0)
    with pytest.raises(RefusedRun, match="4 rows are not cut into 3 equal parts"):
        boxes(WeightLayout("w", (3, 2), (0, -1), (8, 6), "group"), 0, 0, 3)
    with pytest.raises(RefusedRun, match="rank 2 is number 0 of an optimizer-parallel group of 2"):
        is_counted(WeightLayout("w", (2, 2), (0, -1), (8, 6), "group"), 2, 0, 2)
    with pytest.raises(RefusedRun, match="make 8 ranks, and the job has 4"):
        Sizes(dp=2, cp=1, mp=2, pp=2).place(0, 4)
