"""Parts of a parameter: what tensor-parallel ranks and distributed optimizers hold, against the whole tensors that they were cut from."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from align_hooks.errors import RefusedRun
from align_hooks.names.blocks import Cut, Dims
from align_hooks.names.fused import Fused
from align_hooks.names.own import canonical_or_own, own_elsewhere
from align_hooks.record.format.shard import shards_of
from tables import MEGATRON_DEEPSEEK, MEGATRON_LLAMA, MEGATRON_MIXTRAL, MINDFORMERS_LLAMA

DIMS = Dims(heads=8, groups=4, head_dim=2, ffn=12, vocabulary=13, padded=16, expert_ffn=8)
HIDDEN = 6
QKV = "self_attention.linear_qkv.weight"
FC1 = "mlp.linear_fc1.weight"
WHOLE = {
    "embedding.word_embeddings.weight": {"model.embed_tokens.weight": (13, 6), "model.embed_tokens.weight#padding": (3, 6)},
    f"decoder.layers.0.{QKV}": {
        f"model.layers.0.self_attn.{name}_proj.weight": (rows, 6) for name, rows in (("q", 16), ("k", 8), ("v", 8))
    },
    f"decoder.layers.0.{FC1}": {f"model.layers.0.mlp.{name}_proj.weight": (12, 6) for name in ("gate", "up")},
    "decoder.layers.0.mlp.linear_fc2.weight": {"model.layers.0.mlp.down_proj.weight": (6, 12)},
    "decoder.layers.0.input_layernorm.weight": {"model.layers.0.input_layernorm.weight": (6,)},
}
"""A native name to the canonical tensors that it holds over all ranks."""


def tensors() -> dict[str, np.ndarray]:
    """Every canonical tensor, each element another number."""
    shapes = {name: shape for parts in WHOLE.values() for name, shape in parts.items()}
    ends = zip(np.cumsum([np.prod(shape) for shape in shapes.values()]), shapes.items(), strict=True)
    return {name: np.arange(end - np.prod(shape), end, dtype=np.float32).reshape(shape) for end, (name, shape) in ends}


CANONICAL = tensors()


def on(native: str, shape: tuple[int, ...], cut: Cut) -> Fused:
    return MEGATRON_LLAMA.fused(native, shape, DIMS, cut=cut)


def by_hand(native: str, rank: int, ranks: int) -> np.ndarray:
    """What Megatron gives to a tensor-parallel rank, by its own rules (``ColumnParallelLinear``, ``VocabParallelEmbedding``)"""
    if native.startswith("embedding"):
        rows = np.concatenate([CANONICAL[name] for name in WHOLE[native]])
        return np.split(rows, ranks)[rank]
    if native.endswith(QKV):
        query, key, value = (CANONICAL[name] for name in WHOLE[native])
        groups = [np.concatenate([query[4 * g : 4 * g + 4], key[2 * g : 2 * g + 2], value[2 * g : 2 * g + 2]]) for g in range(4)]
        return np.concatenate(groups[rank * 4 // ranks : (rank + 1) * 4 // ranks])
    if native.endswith(FC1):
        return np.concatenate([np.split(CANONICAL[name], ranks)[rank] for name in WHOLE[native]])
    return np.split(CANONICAL["model.layers.0.mlp.down_proj.weight"], ranks, axis=1)[rank]


CUT = [(native, ranks) for native in [*WHOLE][:4] for ranks in (1, 2, 4)]


def held(native: str, rank: int, ranks: int) -> tuple[np.ndarray, Fused]:
    """What a rank has, and what our table says of it."""
    numbers = by_hand(native, rank, ranks)
    return numbers, on(native, numbers.shape, Cut(1 if native.endswith("fc2.weight") else 0, rank, ranks))


@pytest.mark.parametrize(("native", "ranks"), CUT)
def test_what_a_rank_holds_is_what_megatron_gives_it_and_the_ranks_together_hold_every_element_once(native: str, ranks: int) -> None:
    seen = {name: np.zeros(shape, int) for name, shape in WHOLE[native].items()}
    for rank in range(ranks):
        wanted, fused = held(native, rank, ranks)
        np.testing.assert_array_equal(fused.join(CANONICAL), wanted)
        for shard, (name, piece) in zip(shards_of(fused, dtype="", counted=True), fused.split(wanted), strict=True):
            box = tuple(slice(*bounds) for bounds in shard.box)
            assert (shard.name, shard.shape) == (name, CANONICAL[name].shape)
            np.testing.assert_array_equal(piece, CANONICAL[name][box])
            seen[name][box] += 1
    assert all((count == 1).all() for count in seen.values())


@settings(max_examples=80)
@given(data=st.data(), native=st.sampled_from(CUT))
def test_ranges_of_a_distributed_optimizer_are_ranges_of_each_piece(data: st.DataObject, native: tuple[str, int]) -> None:
    name, ranks = native
    local, fused = held(name, data.draw(st.integers(0, ranks - 1)), ranks)
    ends = sorted({0, local.size, *data.draw(st.lists(st.integers(0, local.size), max_size=4))})
    ranges: dict[str, list[np.ndarray]] = {}
    for start, stop in pairwise(ends):
        part = fused.narrowed(start, stop)
        mine = local.reshape(-1)[start:stop]
        np.testing.assert_array_equal(part.join(CANONICAL), mine)
        runs = joined(part.split(mine))
        for shard in shards_of(part, dtype="", counted=True):
            whole = CANONICAL[shard.name][tuple(slice(*bounds) for bounds in shard.box)].reshape(-1)
            np.testing.assert_array_equal(runs.pop(shard.name), whole[slice(*shard.flat)])
            ranges.setdefault(shard.name, []).append(np.arange(*shard.flat))
        assert not runs
    for shard in shards_of(fused, dtype="", counted=True):
        np.testing.assert_array_equal(np.concatenate(ranges[shard.name]), np.arange(shard.elements))


def joined(runs: Iterator[tuple[str, np.ndarray]]) -> dict[str, np.ndarray]:
    pieces: dict[str, list[np.ndarray]] = {}
    for name, run in runs:
        pieces.setdefault(name, []).append(run)
    return {name: np.concatenate(parts) for name, parts in pieces.items()}


def test_a_range_that_holds_nothing_of_a_parameter_has_no_piece() -> None:
    fused = on(f"decoder.layers.0.{QKV}", (32, HIDDEN), Cut()).narrowed(0, 0)
    assert fused.pieces == ()
    assert shards_of(fused, dtype="", counted=True) == []
    assert list(fused.split(np.zeros(0))) == []


def test_the_last_rank_of_a_vocabulary_may_hold_padding_alone() -> None:
    fused = on("output_layer.weight", (2, HIDDEN), Cut(0, 7, 8))
    assert [(shard.name, shard.box[0]) for shard in shards_of(fused, dtype="", counted=True)] == [("lm_head.weight#padding", (1, 3))]


def test_a_vocabulary_under_its_own_name_has_its_padding_on_the_last_rank() -> None:
    fused = canonical_or_own(None, "megatron", "output_layer.weight", (8, HIDDEN), DIMS, gated=False, cut=Cut(0, 1, 2))
    assert fused is not None
    held = {shard.name: shard.box[0] for shard in shards_of(fused, dtype="", counted=True)}
    assert held == {"megatron:output_layer.weight": (8, 13), "megatron:output_layer.weight#padding": (0, 3)}


@pytest.mark.parametrize("native", [QKV, FC1])
def test_parts_that_are_not_equal_are_refused(native: str) -> None:
    rows = {QKV: 32, FC1: 24}[native]
    with pytest.raises(RefusedRun, match=r"does not have the layout|not cut into"):
        MEGATRON_LLAMA.fused(f"decoder.layers.0.{native}", (rows // 5, HIDDEN), DIMS, cut=Cut(0, 1, 5))


def test_rows_interleaved_one_by_one_are_cut_by_whole_pairs() -> None:
    """MindFormers' fused gate and up: a contiguous half of it is half of each."""
    fused = MINDFORMERS_LLAMA.fused("model.layers.0.feed_forward.w_gate_hidden.weight", (12, HIDDEN), DIMS, cut=Cut(0, 1, 2))
    whole = np.stack([CANONICAL[f"model.layers.0.mlp.{name}_proj.weight"] for name in ("gate", "up")], axis=1).reshape(24, HIDDEN)
    np.testing.assert_array_equal(fused.join(CANONICAL), whole[12:])


def test_experts_are_counted_over_all_expert_parallel_ranks() -> None:
    experts = "decoder.layers.1.mlp.experts"
    fused = MEGATRON_MIXTRAL.fused(f"{experts}.local_experts.1.linear_fc1.weight", (16, HIDDEN), DIMS, first_expert=4, first_layer=2)
    assert fused.pieces == tuple(f"model.layers.3.block_sparse_moe.experts.5.{name}.weight" for name in ("w1", "w3"))
    grouped = MEGATRON_MIXTRAL.fused(f"{experts}.linear_fc2.weight1", (HIDDEN, 8), DIMS, first_expert=4)
    assert grouped.pieces == ("model.layers.1.block_sparse_moe.experts.5.w2.weight",)


HERE = ("model.embed_tokens.weight", "model.layers.0.input_layernorm.weight", "model.layers.0.block_sparse_moe.experts.1.w1.weight")


@pytest.mark.parametrize(
    ("name", "elsewhere"),
    [
        ("model.layers.1.input_layernorm.weight", True),
        ("model.layers.2.input_layernorm.weight", False),
        ("model.layers.0.post_attention_layernorm.weight", False),
        ("model.layers.0.block_sparse_moe.experts.0.w1.weight", True),
        ("model.layers.0.block_sparse_moe.experts.2.w1.weight", False),
        ("lm_head.weight", True),
        ("lm_head.weight#padding", True),
        ("score.weight", False),
    ],
)
def test_what_another_pipeline_or_expert_rank_holds_is_no_misfit(name: str, elsewhere: bool) -> None:
    assert MEGATRON_MIXTRAL.elsewhere(HERE, layers=2, experts=2)(name) is elsewhere


@pytest.mark.parametrize(
    ("name", "beside", "without"),
    [
        ("model.layers.1.mlp.gate.weight", True, True),
        ("model.layers.2.eh_proj.weight", False, True),
        ("model.layers.2.mlp.experts.0.up_proj.weight", True, True),
        ("model.layers.2.mlp.experts.2.up_proj.weight", False, False),
        ("model.layers.3.eh_proj.weight", False, False),
        ("model.layers.3.mlp.experts.0.up_proj.weight", False, False),
    ],
)
def test_a_layer_that_predicts_is_held_as_others_are(name: str, beside: bool, without: bool) -> None:
    """Layer 2 of a decoder of two layers is the one for multi-token prediction: on a rank with some of its experts, and on one without."""
    first = ("model.layers.0.input_layernorm.weight",)
    behind = ("model.layers.2.enorm.weight", "model.layers.2.mlp.experts.1.up_proj.weight")
    for here, elsewhere in (((*first, *behind), beside), (first, without)):
        assert MEGATRON_DEEPSEEK.elsewhere(here, layers=2, experts=2, predicted=1)(name) is elsewhere


def test_a_model_that_predicts_nothing_further_has_no_layer_behind_its_own() -> None:
    """Of a deeper checkpoint no rank would hold what is left over."""
    assert not MEGATRON_DEEPSEEK.elsewhere(("model.layers.0.input_layernorm.weight",), layers=2, experts=2)("model.layers.2.enorm.weight")


@pytest.mark.parametrize(
    ("name", "stage", "whole"),
    [
        ("megatron:decoder.layers.1.learned_scale", True, False),
        ("megatron:decoder.layers.0.learned_scale", False, False),
        ("megatron:decoder.layers.2.learned_scale", False, False),
        ("megatron:decoder.layers.0.mlp.experts.local_experts.1.scale", True, True),
        ("megatron:decoder.layers.0.mlp.experts.linear_fc1.weight1#gate", True, True),
        ("megatron:decoder.layers.0.mlp.experts.local_experts.2.scale", False, False),
        ("megatron:decoder.final_scale", True, False),
        ("mindformers:decoder.layers.1.learned_scale", False, False),
        ("score.weight", False, False),
    ],
)
def test_an_own_name_is_elsewhere_where_its_layer_or_its_expert_is(name: str, stage: bool, whole: bool) -> None:
    """In a model of two layers and two experts: on a rank with the first layer, and on a rank with both."""
    for here, elsewhere in ((HERE, stage), ((*HERE, "megatron:decoder.layers.1.mlp.linear_fc1.weight"), whole)):
        assert own_elsewhere("megatron", here, layers=2, experts=2)(name) is elsewhere


def test_one_query_group_is_not_shared_by_tensor_parallel_ranks() -> None:
    """From 0.16 on Megatron gives each rank rows of the one group as they lie: no part of q, k and v each."""
    dims = Dims(heads=8, groups=1, head_dim=2, ffn=12, vocabulary=13, padded=16)
    with pytest.raises(RefusedRun, match="has no 2 equal parts of whole runs; use fewer tensor-parallel ranks"):
        MEGATRON_LLAMA.fused(f"decoder.layers.0.{QKV}", (10, HIDDEN), dims, cut=Cut(0, 1, 2))


def test_the_table_says_which_axis_is_cut_whatever_the_framework_marks() -> None:
    name = "decoder.layers.0.mlp.experts.linear_fc2.weight0"
    fused = MEGATRON_MIXTRAL.fused(name, (HIDDEN, 4), DIMS, cut=Cut(None, 1, 2))
    assert [(piece.shape, piece.box) for piece in fused.parts] == [((HIDDEN, 8), ((0, HIDDEN), (4, 8)))]
