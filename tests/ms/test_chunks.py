"""Which chunk of a gradient belongs to which piece, before MindSpore compiles anything."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from align_hooks.ms_side.plans import LARGE, ChunkPlan, chunks_of
from align_hooks.names.blocks import Blocks, Stack
from align_hooks.record.format.norms import CHUNK
from synthetic import fused


def squares(blocks: Blocks | Stack, array: np.ndarray) -> list[float]:
    """The squared sum of each piece, cut out."""
    return [float(np.square(piece.astype(np.float64)).sum()) for piece in blocks.filled.split(array)]


@given(
    rows=st.lists(st.integers(0, 5), min_size=1, max_size=3).filter(any),
    repeats=st.integers(1, 4),
    width=st.one_of(st.none(), st.sampled_from([1, 3, 64, 1024, 1536, 4099])),
)
def test_chunks_of_rows(rows: list[int], repeats: int, width: int | None) -> None:
    blocks = Blocks(repeats, tuple(rows))
    check(blocks, (blocks.total,) if width is None else (blocks.total, width))


@given(experts=st.integers(1, 3), height=st.integers(1, 5), columns=st.lists(st.sampled_from([4, 64, 96]), min_size=1, max_size=2))
def test_chunks_of_stacked_experts(experts: int, height: int, columns: list[int]) -> None:
    stack = Stack(experts, height, tuple(columns))
    check(stack, (stack.total, sum(columns)))


def check(blocks: Blocks | Stack, shape: Sequence[int]) -> None:
    array = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    width, owners = chunks_of(blocks, shape)
    assert width <= CHUNK and len(owners) * width == array.size
    of_chunks = np.square(array.reshape(-1, width).astype(np.float64)).sum(axis=1)
    np.testing.assert_allclose(np.bincount(owners, of_chunks, len(squares(blocks, array))), squares(blocks, array), rtol=1e-12)


def test_small_gradients_of_one_width_are_joined_and_large_ones_are_not() -> None:
    shapes = [(64, 64), (64,), (LARGE // 64, 64), (48, 64), (16, 1024)]
    plan = ChunkPlan.of([fused(f"{index}", {f"p{index}": shape}, Blocks(1, shape[:1])) for index, shape in enumerate(shapes)], shapes)
    assert plan.groups == (((0, 1, 3), 64), ((2,), 64), ((4,), 1024))
    sums = np.array([1.0] * 64 + [10.0] + [100.0] * 48 + [0.0] * (LARGE // 64) + [2.0] * 16)
    assert plan.named(sums) == {"p0": 64, "p1": 10, "p2": 0, "p3": 4800, "p4": 32}
