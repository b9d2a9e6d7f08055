"""hyper-parallel's layouts: the parts of all ranks are the whole weight, each element once a copy, and their norms add up."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from align_hooks.errors import RefusedRun
from align_hooks.families.deepseek_v3 import DEEPSEEK_V3
from align_hooks.families.qwen3 import QWEN3
from align_hooks.ms_side.model import CellParameter, Model
from align_hooks.ms_side.plans import ChunkPlan
from align_hooks.ms_side.pynative.shards import layout_of, parameters_of_rank, part_of
from align_hooks.names.blocks import Array, Dims
from align_hooks.names.table import NameTable
from align_hooks.process.ranks import Launch

DIMS = Dims(heads=4, groups=2, head_dim=4, ffn=8, vocabulary=29, padded=32, expert_ffn=4, experts=4, layers=2, q_lora=6)
LAYER = "decoder.layers.0."
QWEN = {
    "embedding.word_embeddings.weight": (32, 8),
    f"{LAYER}self_attention.linear_qkv.weight": (32, 8),
    f"{LAYER}self_attention.linear_proj.weight": (8, 16),
    f"{LAYER}mlp.linear_fc1.weight": (16, 8),
    f"{LAYER}mlp.linear_fc2.weight": (8, 8),
    f"{LAYER}input_layernorm.weight": (8,),
}
DEEPSEEK = {
    f"{LAYER}self_attention.linear_qkv.weight": (16, 8),
    f"{LAYER}mlp.experts.weight1": (4, 8, 8),
    f"{LAYER}mlp.experts.weight2": (4, 4, 8),
    f"{LAYER}mlp.router.weight": (4, 8),
}
WEIGHTS = [*((QWEN3, *weight) for weight in QWEN.items()), *((DEEPSEEK_V3, *weight) for weight in DEEPSEEK.items())]


class Named(Model):
    """A model whose table and sizes are given."""

    given: NameTable | None = None

    @property
    def table(self) -> NameTable | None:
        return self.given

    def dims(self, vocabulary: int | None) -> Dims:
        return DIMS


def model(family: Any) -> Model:
    made = Named(SimpleNamespace(), SimpleNamespace(), family, None)
    (built, *_) = family.pynative
    config = SimpleNamespace(
        use_contiguous_weight_layout_attention=False, use_interleaved_weight_layout_mlp=True, mla_qkv_concat=True, num_moe_experts=4
    )
    return structs.replace(made, given=built.table_of(config))


def distributed(name: str, whole: Array, grid: Sequence[int], placements: Sequence[int | None], ranks: Sequence[int], rank: int) -> Any:
    """What hyper-parallel makes of a weight on a rank, where each axis of the grid cuts an axis of the weight or none.

    The last cuts outermost: tensor-parallel ranks cut a weight before ``fully_shard`` divides their parts."""
    tensor_map: list[Any] = []
    for axis in range(whole.ndim):
        by = [len(grid) - 1 - index for index, cut in reversed([*enumerate(placements)]) if cut == axis]
        tensor_map.append(tuple(by) if len(by) > 1 else by[0] if by else -1)
    place = np.unravel_index(ranks.index(rank), grid)
    part = whole
    for size, cut, index in reversed([*zip(grid, placements, place, strict=True)]):
        if cut is not None:
            part = np.split(part, size, cut)[index]
    layout = SimpleNamespace(mesh_shape=tuple(grid), tensor_map=tuple(tensor_map), rank_list=tuple(ranks))
    return SimpleNamespace(name=name, shape=whole.shape, layout=layout, to_local=lambda: part, dtype="Float32")


def parts(
    family: Any, name: str, whole: Array, grid: Sequence[int], placements: Sequence[int | None]
) -> Iterator[tuple[CellParameter, Array]]:
    for rank in range(math.prod(grid)):
        weight = distributed(name, whole, grid, placements, range(math.prod(grid)), rank)
        part = part_of(weight, model(family), None, rank, 3)
        assert part is not None and part.index == 3 and part.trainable
        yield part, weight.to_local()


def fits(shape: Sequence[int], grid: Sequence[int], placements: Sequence[int | None]) -> bool:
    """Whether a weight is cut evenly, and as this version reads it."""
    counts = [math.prod(size for size, cut in zip(grid, placements, strict=True) if cut == axis) for axis in range(len(shape))]
    even = all(size % count == 0 for size, count in zip(shape, counts, strict=True))
    return even and (len(shape) < 3 or counts[1:] == [1, 1])


@given(data=st.data())
def test_the_parts_of_all_ranks_are_the_whole_weight(data: st.DataObject) -> None:
    family, name, shape = data.draw(st.sampled_from(WEIGHTS))
    grid = data.draw(st.lists(st.sampled_from([1, 2]), min_size=1, max_size=3))
    axes = st.sampled_from([None, *range(len(shape))])
    placements = data.draw(st.lists(axes, min_size=len(grid), max_size=len(grid)).filter(lambda chosen: fits(shape, grid, chosen)))
    whole = np.random.default_rng(len(name)).standard_normal(shape).astype(np.float32)
    uncut = part_of(SimpleNamespace(name=name, shape=shape, dtype="Float32"), model(family), None, 0, 3)
    assert uncut is not None and uncut.counted
    canonical = dict(uncut.fused.split(whole.reshape(uncut.fused.shape)))
    counted: Counter[tuple[str, float]] = Counter()
    for part, here in parts(family, name, whole, grid, placements):
        read = {piece: canonical[piece] for piece in part.fused.pieces}  # a loader reads no other
        np.testing.assert_array_equal(part.fused.join(read).reshape(here.shape), here)
        given = here.reshape(-1) if part.fused.flat is not None else here.reshape(part.fused.shape)
        pieces = [(piece, value) for piece, found in part.fused.split(given) for value in found.reshape(-1).tolist()]
        counted.update(pieces if part.counted else ())
        check_norms(part, given, pieces)
    assert counted == Counter((piece, value) for piece, array in canonical.items() for value in array.reshape(-1).tolist())


def check_norms(part: CellParameter, here: Array, pieces: Sequence[tuple[str, float]]) -> None:
    """The sums of chunks of a rank's part are the squared sums of its pieces, of those alone."""
    plan = ChunkPlan.of([part.fused], [part.fused.shape])
    ((_, width),) = plan.groups
    sums = np.square(here.reshape(-1, width).astype(np.float64)).sum(axis=1)
    expected: dict[str, float] = {}
    for piece, value in pieces:
        expected[piece] = expected.get(piece, 0.0) + value * value
    found = plan.named(sums)
    assert found.keys() == expected.keys()
    np.testing.assert_allclose([found[piece] for piece in expected], [*expected.values()], rtol=1e-6)


def test_a_weight_on_a_grid_of_some_ranks_is_counted_once_in_the_job() -> None:
    whole = np.zeros((8, 8), np.float32)
    grids = {0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3)}  # tensor-parallel ranks of two data-parallel ranks, which share nothing
    layouts = {rank: layout_of(distributed("w", whole, (2,), (0,), grid, rank)) for rank, grid in grids.items()}
    assert [layout.is_counted(rank) for rank, layout in layouts.items() if layout] == [True, True, False, False]
    assert [layout.box(rank)[0] for rank, layout in layouts.items() if layout] == [(0, 4), (4, 8)] * 2


def test_a_weight_that_is_no_dtensor_is_whole_and_counted_on_the_first_rank() -> None:
    weight = SimpleNamespace(name=f"{LAYER}input_layernorm.weight", shape=(8,), dtype="Float32")
    found = [part_of(weight, model(QWEN3), None, rank) for rank in range(2)]
    assert [part is not None and (part.counted, part.trainable, part.fused.flat) for part in found] == [
        (True, False, None),
        (False, False, None),
    ]


@pytest.mark.parametrize(
    ("family", "name", "shape", "placements", "said"),
    [
        (DEEPSEEK_V3, f"{LAYER}mlp.experts.weight1", (4, 8, 8), (1,), "cut through its experts"),
        (QWEN3, f"{LAYER}mlp.linear_fc2.weight", (8, 9), (0,), "where its layout leaves"),
        (QWEN3, f"{LAYER}mlp.linear_fc2.weight", (9, 8), (0,), "2 parts of unequal size"),
    ],
)
def test_parts_that_are_not_read_are_refused_by_name(family: Any, name: str, shape: tuple[int, ...], placements: Any, said: str) -> None:
    axis = placements[0]
    whole = np.zeros([size + size % 2 for size in shape], np.float32)
    weight = distributed(name, whole, (2,), (axis,), (0, 1), 0)
    weight.shape = shape
    if "unequal" not in said and "experts" not in said:
        weight.to_local = lambda: whole
    with pytest.raises(RefusedRun, match=said):
        part_of(weight, model(family), None, 0, 0)


def test_a_rank_outside_the_grid_is_refused() -> None:
    layout = layout_of(distributed("w", np.zeros((4, 4), np.float32), (2,), (0,), (0, 1), 0))
    assert layout is not None
    with pytest.raises(RefusedRun, match=r"divided among ranks \[0, 1\], and rank 2 is none of them"):
        layout.place(2)


def test_experts_that_ranks_divide_have_names_of_a_family() -> None:
    """Own names of a stack say nothing of an expert."""
    name, shape = f"{LAYER}mlp.experts.weight1", (4, 8, 8)
    stranger = model(DEEPSEEK_V3)
    stranger = structs.replace(stranger, given=None)
    whole = np.zeros(shape, np.float32)
    assert part_of(distributed(name, whole, (2,), (None,), (0, 1), 1), stranger, None, 1, 0) is not None
    with pytest.raises(RefusedRun, match="divided among ranks by experts, which no family names"):
        part_of(distributed(name, whole, (2,), (0,), (0, 1), 1), stranger, None, 1, 0)


def test_only_experts_are_held_elsewhere() -> None:
    """A tensor that the model lacks is of no other rank, as there is no other stage."""
    known, name = model(DEEPSEEK_V3), f"{LAYER}mlp.experts.weight2"
    known = structs.replace(known, network=SimpleNamespace(get_parameters=list))
    weights = [distributed(name, np.zeros((4, 4, 8), np.float32), (2,), (0,), (0, 1), 1)]
    is_elsewhere = parameters_of_rank(weights, known, None, Launch(1, 2)).elsewhere()
    names = [f"model.layers.0.mlp.experts.{expert}.down_proj.weight" for expert in range(4)]
    assert [is_elsewhere(each) for each in names] == [True, True, False, False]
    assert not is_elsewhere("lm_head.weight")
