"""Which elements of a gradient go into which signed sum, before MindSpore compiles anything: the graph's arithmetic, done by numpy."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from align_hooks.ms_side.plans import LARGE, Matrix, SignedSumPlan
from align_hooks.names.blocks import Blocks, Stack
from align_hooks.names.fused import Fused, Piece
from align_hooks.record.format.shard import Shard
from align_hooks.record.format.sketch import PROJECTIONS, TURNS, sketch
from synthetic import fused

Gradients = Sequence[np.ndarray]


def as_matrix(matrix: Matrix, gradients: Gradients) -> np.ndarray:
    """What the graph makes of a piece."""
    box = tuple(slice(begin, begin + size) for begin, size in zip(matrix.begin, matrix.size, strict=True))
    piece = gradients[matrix.gradient].reshape(matrix.view)[box]
    piece = piece.reshape(matrix.columns, matrix.rows).T if matrix.transposed else piece.reshape(matrix.rows, matrix.columns)
    return np.pad(piece, matrix.padding)


def sums(plan: SignedSumPlan, gradients: Gradients) -> np.ndarray:
    """All sums of a plan, in fp64."""
    taken = []
    for group in plan.groups:
        joined = np.concatenate([as_matrix(member, gradients) for member in group.members]).astype(np.float64)
        signed = joined.reshape(-1, TURNS, joined.shape[1]) * group.column_signs
        by_turn = signed.reshape(-1, TURNS, joined.shape[1] // PROJECTIONS, PROJECTIONS).sum(axis=2) * group.row_signs
        taken.append(by_turn.reshape(-1, group.at_once, TURNS, PROJECTIONS).sum(axis=1).reshape(-1))
    assert sum(map(len, taken)) == plan.numbers
    return np.concatenate(taken)


def check(parameters: Sequence[tuple[Blocks | Stack, Sequence[int]]]) -> SignedSumPlan:
    whole = [
        fused(f"{index}", {f"{index}.{part}": size for part, size in enumerate(blocks.shapes(shape))}, blocks)
        for index, (blocks, shape) in enumerate(parameters)
    ]
    random = np.random.default_rng(0)
    gradients = [random.standard_normal(shape).astype(np.float32) for _, shape in parameters]
    plan = SignedSumPlan.of(whole, [tuple(shape) for _, shape in parameters])
    named = plan.named(sums(plan, gradients), dict.fromkeys(plan.names, 7.0))
    pieces = {name: piece for each, gradient in zip(whole, gradients, strict=True) for name, piece in each.split(gradient)}
    expected = {name: sketch(piece, Shard(name, piece.shape, name, "float32")) for name, piece in pieces.items()}
    assert {*named} == {*expected}
    for name, signed in named.items():
        assert signed[0] == 7.0
        np.testing.assert_allclose(signed[1:], expected[name][1:], rtol=0, atol=1e-12 * np.sqrt(expected[name][0]), err_msg=name)
    return plan


@given(
    rows=st.lists(st.integers(0, 20), min_size=1, max_size=3).filter(any),
    repeats=st.integers(1, 20),
    width=st.sampled_from([None, (1,), (3,), (16,), (64,), (70,), (2, 5)]),
)
def test_pieces_of_rows(rows: list[int], repeats: int, width: tuple[int, ...] | None) -> None:
    blocks = Blocks(repeats, tuple(rows))
    check([(blocks, (blocks.total, *(width or ())))])


@given(experts=st.integers(1, 3), height=st.integers(1, 40), columns=st.lists(st.sampled_from([4, 16, 37]), min_size=1, max_size=2))
def test_stacked_experts(experts: int, height: int, columns: list[int]) -> None:
    stack = Stack(experts, height, tuple(columns))
    check([(stack, (stack.total, sum(columns)))])


def test_pieces_of_as_many_columns_are_joined_and_large_ones_are_not() -> None:
    shapes = [(64, 64), (64,), (LARGE // 64, 64), (48, 64), (7, 64), (64,)]
    plan = check([(Blocks(1, shape[:1]), shape) for shape in shapes])
    assert [[member.gradient for member in group.members] for group in plan.groups] == [[0, 1, 3, 4, 5], [2]]
    assert [group.at_once for group in plan.groups] == [1, 64]


def test_a_part_of_a_tensor_is_refused() -> None:
    part = Fused("part", (Piece("part", (8, 4), ((4, 8), (0, 4))),), Blocks(1, (4,)))
    with pytest.raises(ValueError, match="part is cut"):
        SignedSumPlan.of([part], [(4, 4)])
