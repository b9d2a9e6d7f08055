"""Fused layouts as blocks of rows: splitting and joining are inverses, and each layout is the one its framework documents."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from align_hooks.errors import RefusedRun
from align_hooks.names.blocks import (
    EXPERT_GATE_THEN_UP,
    GATE_THEN_UP,
    GATE_UP_BY_ROW,
    QKV_PER_GROUP,
    UNFUSED,
    VOCABULARY,
    Blocks,
    Dims,
    FusedLayout,
)

DIMS = Dims(heads=4, groups=2, head_dim=3, ffn=5, vocabulary=7, padded=8)

tails = st.sampled_from([(), (3,), (2, 2)])
any_blocks = st.builds(Blocks, st.integers(1, 4), st.lists(st.integers(0, 4), min_size=1, max_size=4).map(tuple))
llamas = st.builds(
    lambda groups, each, head_dim, ffn, vocabulary, expert, padding: Dims(
        groups * each, groups, head_dim, ffn, vocabulary, vocabulary + padding, expert
    ),
    *[st.integers(1, 4)] * 6,
    st.integers(0, 3),
)
ROWS = {
    UNFUSED: lambda dims: 7,
    QKV_PER_GROUP: lambda dims: (dims.heads + 2 * dims.groups) * dims.head_dim,
    GATE_THEN_UP: lambda dims: 2 * dims.ffn,
    GATE_UP_BY_ROW: lambda dims: 2 * dims.ffn,
    EXPERT_GATE_THEN_UP: lambda dims: 2 * dims.expert_ffn,
    VOCABULARY: lambda dims: dims.padded,
}


def numbered(rows: int, tail: tuple[int, ...] = ()) -> np.ndarray:
    return np.arange(rows * int(np.prod(tail)), dtype=np.float32).reshape(rows, *tail)


@given(any_blocks, tails)
def test_join_undoes_split(layout: Blocks, tail: tuple[int, ...]) -> None:
    whole = numbered(layout.total, tail)
    np.testing.assert_array_equal(layout.join(layout.split(whole)), whole, strict=True)


@given(any_blocks, tails)
def test_split_undoes_join(layout: Blocks, tail: tuple[int, ...]) -> None:
    pieces = [numbered(layout.repeats * rows, tail) + 1000 * index for index, rows in enumerate(layout.rows)]
    for piece, again in zip(pieces, layout.split(layout.join(pieces)), strict=True):
        np.testing.assert_array_equal(again, piece, strict=True)


@pytest.mark.parametrize("layout", ROWS, ids=lambda layout: layout.name)
@given(dims=llamas)
def test_every_layout_splits_and_joins_exactly(layout: FusedLayout, dims: Dims) -> None:
    whole = numbered(ROWS[layout](dims), (3,))
    blocks = layout.whole(dims, whole.shape)
    pieces = blocks.split(whole)
    assert sum(len(piece) for piece in pieces) == len(whole)
    np.testing.assert_array_equal(blocks.join(pieces), whole, strict=True)


@pytest.mark.parametrize("layout", [layout for layout in ROWS if layout is not UNFUSED], ids=lambda layout: layout.name)
@given(dims=llamas, extra=st.integers(1, 5))
def test_rows_that_do_not_fit_a_layout_are_refused(layout: FusedLayout, dims: Dims, extra: int) -> None:
    assume(layout is not VOCABULARY or dims.padded > dims.vocabulary)  # without padding any number of rows is a vocabulary
    with pytest.raises(RefusedRun, match=f"does not have the layout {layout.name} of"):
        layout.whole(dims, (ROWS[layout](dims) + extra,))


def test_megatrons_fused_attention_repeats_queries_key_and_value_of_each_group() -> None:
    rows = [f"{kind}{group}" for group in "01" for kind in "qqkv" for _ in range(3)]
    queries, keys, values = QKV_PER_GROUP.whole(DIMS, (24,)).split(np.array(rows))
    assert queries.tolist() == ["q0"] * 6 + ["q1"] * 6
    assert keys.tolist() == ["k0"] * 3 + ["k1"] * 3
    assert values.tolist() == ["v0"] * 3 + ["v1"] * 3


@pytest.mark.parametrize(("layout", "rows"), [(GATE_THEN_UP, ["gate"] * 5 + ["up"] * 5), (GATE_UP_BY_ROW, ["gate", "up"] * 5)])
def test_megatrons_gate_stands_before_up_and_mindformers_gate_and_up_alternate(layout: FusedLayout, rows: list[str]) -> None:
    gate, up = layout.whole(DIMS, (10,)).split(np.array(rows))
    assert (set(gate), set(up)) == ({"gate"}, {"up"})


def test_padding_is_the_end_of_a_vocabulary() -> None:
    words, padding = VOCABULARY.whole(DIMS, (8,)).split(np.arange(8))
    assert words.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert padding.tolist() == [7]


def test_torch_tensors_split_as_numpy_arrays_do() -> None:
    layout = QKV_PER_GROUP.whole(DIMS, (24,))
    whole = numbered(24, (2,))
    for ours, theirs in zip(layout.split(whole), layout.split(torch.from_numpy(whole)), strict=True):
        np.testing.assert_array_equal(ours, theirs.numpy(), strict=True)
