"""Every family against Hugging Face's own model of it, and what follows from all of them together."""

import itertools
import math
import re
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from transformers import AutoConfig, AutoModelForCausalLM

from align_hooks.checklist.tables import ROW
from align_hooks.comparison.diagnosis.backward_boundary import LEVEL
from align_hooks.comparison.metrics.model_positions import KINDS
from align_hooks.families import registry
from align_hooks.families.deepseek_v3 import DEEPSEEK_V3
from align_hooks.families.family import NUMBERS, Decoder, Family, RoutingConfig, rows_of, size_of
from align_hooks.families.gpt_oss import GPT_OSS
from align_hooks.families.megatron import BESIDE_CONFIGURATION, LATER, PLAIN, ROUTER, base_of, decoder, function_name, misfits, normalised
from align_hooks.families.mixtral import MIXTRAL
from align_hooks.families.qwen3 import QWEN3
from align_hooks.names.blocks import Dims
from align_hooks.names.stacks import slots, stacked, stacked_names
from chosen import in_one
from plain_minimax import MiniMaxM2ForCausalLM

DIMS = Dims(heads=4, groups=2, head_dim=8, ffn=24, vocabulary=40, padded=64, expert_ffn=12, experts=4, layers=3)
LATENT = {"q_lora_rank": 20, "kv_lora_rank": 14, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6}
ROWS = {
    **{"rows_of_the_embedding": 40, "hidden_size": 16, "num_heads": 4, "n_kv_heads": 2, "head_dim": 8, "intermediate_size": 24},
    **{"expert_num": 4, "size_of_an_expert": 12, "size_of_the_shared_experts": 24, "num_layers": 3, "mtp_num_layers": 0},
    **{"q_lora_rank": 20, "kv_lora_rank": 14, "qk_head_dim": 8, "qk_pos_emb_head_dim": 4, "v_head_dim": 6},
}
NUMBERED = {"layer": range(3), "dense": range(1), "sparse": range(1, 3), "after": range(0), "expert": range(4)}
assert MiniMaxM2ForCausalLM  # known to transformers by its import
EVERY = pytest.mark.parametrize("family", registry.FAMILIES, ids=lambda family: family.name)


def config(family: Family, *, tied: bool) -> dict[str, object]:
    """``config.json`` of a small model."""
    sparse = tuple(layer in numbers(family)["sparse"] for layer in range(3))
    routing = RoutingConfig(4, 2, sparse, factor=2.5, groups=2, chosen_groups=1, shared=24) if family.experts else None
    latent = LATENT if family is DEEPSEEK_V3 else None
    windows = {"window": 16, "windowed": (True, False, True)}
    return family.huggingface(Decoder(DIMS, 16, 3, 1e-5, 1e6, 128, tied, routing, latent, normalised_heads=True, **windows))


def numbers(family: Family) -> dict[str, range]:
    """The numbers of a small model's layers and experts; only some families have dense layers beside those with experts."""
    return NUMBERED if family.mixes else NUMBERED | {"dense": range(0), "sparse": range(3)}


def size(family: Family) -> Callable[[str], int]:
    """The size of an axis, or how many layers of a sort there are."""
    counted = {NUMBERS[word]: len(there) for word, there in numbers(family).items()}
    return lambda name: counted[name] if name in counted else size_of(name, ROWS.__getitem__)


def whole(family: Family, *, tied: bool) -> dict[str, tuple[int, ...]]:
    """Every tensor that a family says its model has, numbers filled in, with its shape."""
    chosen = itertools.product(*(numbers(family)[word] or (-1,) for word in NUMBERED))
    there = [dict(zip(NUMBERED, each, strict=True)) for each in chosen]
    named = {name.format(**each): axes for name, axes in family.shapes(tied=tied).items() for each in there}
    return {name: tuple(map(size(family), axes)) for name, axes in named.items() if "-1" not in name}


@EVERY
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_the_configuration_opens_hugging_faces_model_and_has_its_tensors(family: Family, tied: bool) -> None:
    given = config(family, tied=tied)
    kept = AutoConfig.for_model(**given)
    assert {key: getattr(kept, key) for key in given} == given | {"torch_dtype": kept.torch_dtype}
    model = AutoModelForCausalLM.from_config(kept)
    assert [type(model).__name__] == given["architectures"]
    stored = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    pieces = {name: slot.shape(stored[slot.stack]) for name, slot in slots(stored, family.stacks).items()}
    shapes = {name: shape for name, shape in stored.items() if ".experts." not in name or not family.stacks} | pieces
    assert shapes == whole(family, tied=tied)
    assert family.elements(size(family), tied=tied) == sum(map(math.prod, shapes.values()))
    in_layers = (name for name in family.buffers if "{after}" not in name)
    moved = {name.format(sparse=layer, layer=layer) for name in in_layers for layer in numbers(family)["sparse"]}
    assert moved == {name for name, _ in model.named_buffers() if not name.endswith("inv_freq")}


def test_stacks_are_cut_into_the_pieces_that_make_them_up() -> None:
    """Gate and up in turn, as Hugging Face's model takes them apart."""
    name = "model.layers.3.mlp.experts.gate_up_proj"
    given = np.arange(2 * 5 * 6, dtype=np.float32).reshape(2, 5, 6)
    places = slots({name: given.shape, "model.norm.weight": (5,)}, GPT_OSS.stacks)
    cut = {own: slot.cut(given) for own, slot in places.items()}
    assert {own: piece.shape for own, piece in cut.items()} == {own: slot.shape(given.shape) for own, slot in places.items()}
    np.testing.assert_array_equal(cut["model.layers.3.mlp.experts.1.up_proj.weight"], given[1, :, 1::2].T)
    ((stack, experts),) = stacked_names(sorted(cut, reverse=True), GPT_OSS.stacks).items()
    assert stack == name
    np.testing.assert_array_equal(stacked([cut[own] for own in pieces] for pieces in experts), given)


@EVERY
def test_both_tables_know_every_tensor(family: Family) -> None:
    names = {re.sub(r"\{(dense|sparse)\}", "{layer}", name) for name in family.shapes(tied=False, buffers=True)}
    for table in (family.megatron, *(built.table for built in family.mindformers)):
        assert names <= {name for rule in table.rules for name in rule.canonical}
        assert len({rule.native for rule in table.rules}) == len(table.rules)
        assert table.native(family.embedding) != table.native(family.output)


@EVERY
def test_what_a_configuration_holds_is_rows_of_the_checklist(family: Family) -> None:
    assert set(family.configured) <= set(ROW)
    assert {row for axes in family.shapes(tied=False).values() for axis in axes for row in rows_of(axis)} <= set(ROW)


@EVERY
def test_the_merged_order_is_the_familys_own(family: Family) -> None:
    places = [LEVEL[kind] for level in family.kinds() for kind in level]
    assert places == sorted(places)
    assert len(set(places)) == len(family.levels)


def test_a_kind_has_one_place() -> None:
    assert len(KINDS) == len(set(KINDS))
    assert registry.end_kinds() == {"embed_tokens", "lm_head"}


def silu() -> None:
    """A function of the name of torch's."""


silu.__module__ = "torch.nn.functional"


def gpt(**changes: object) -> SimpleNamespace:
    """What Megatron's model says of itself, a Llama's where nothing is changed."""
    usual = {name: allowed[0] for name, allowed in (PLAIN | ROUTER).items() if name not in BESIDE_CONFIGURATION}
    given: dict[str, object] = {**usual, "num_layers": 2, "num_moe_experts": None, "moe_layer_freq": 1, "activation_func": silu}
    given |= {"moe_router_pre_softmax": False, **changes}
    built = {name: given.pop(name, value) for name, value in {"position_embedding_type": "rope", "rotary_percent": 1.0}.items()}
    return SimpleNamespace(**built, config=SimpleNamespace(**given))


@pytest.mark.parametrize(
    ("changes", "args", "name", "wrong"),
    [
        ({"mtp_num_layers": 0}, {}, "Llama", []),
        ({"num_moe_experts": 8, "moe_router_topk_scaling_factor": 1.0}, {}, "Mixtral", []),
        ({"rotary_interleaved": True}, {}, "Llama", ["rotary_interleaved is True, not False"]),
        ({"rotary_percent": 0.5}, {"use_rope_scaling": True}, "Llama", ["rotary_percent is 0.5, not 1.0"]),
        ({}, {"rotary_seq_len_interpolation_factor": 2}, "Llama", ["rotary_seq_len_interpolation_factor is 2, not None"]),
        ({"position_embedding_type": "none"}, {}, "Llama", ["position_embedding_type is none, not rope"]),
        ({"activation_func": math.sqrt}, {}, "Llama", ["activation_func is math.sqrt, not silu"]),
        (
            {"num_moe_experts": 8, "moe_router_score_function": "sigmoid", "moe_layer_freq": [0, 1]},
            {},
            "GLM4-MoE",
            ["add_qkv_bias is False, not True"],
        ),
        ({"num_moe_experts": 8, "moe_layer_freq": [1, 1], "mtp_num_layers": 1}, {}, "Mixtral", ["mtp_num_layers is 1, not None"]),
    ],
)
def test_a_built_model_is_of_the_family_that_it_says_or_is_told_by_what_the_nearest_has_not(
    changes: dict[str, object], args: dict[str, object], name: str, wrong: list[str]
) -> None:
    family, misfits = registry.nearest(gpt(**changes), SimpleNamespace(**args))
    assert (family.name, misfits) == (name, wrong)


def test_what_a_version_lacks_counts_as_what_it_computes() -> None:
    """0.12.0rc0 has no block of its own for a layer, and no product of a token with its weights before an expert."""
    older = gpt(num_moe_experts=8)
    for name in LATER:
        delattr(older.config, name)
    assert registry.nearest(older, SimpleNamespace()) == (MIXTRAL, [])
    assert "softmax_type is vanilla, not learnable" in misfits(GPT_OSS, older, SimpleNamespace())


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({"original_max_position_embeddings": 4096, "max_position_embeddings": 128, "rope_type": "yarn"}, 4096),
        ({"max_position_embeddings": 128, "rope_type": "yarn"}, 128),  # 0.12 and 0.13
        ({"max_position_embeddings": 128}, 128),  # the first of 0.12.0rc0
        ({"max_position_embeddings": 128, "rope_type": "rope"}, None),
        ({"max_position_embeddings": 128, "rope_type": "yarn", "rotary_scaling_factor": 1.0}, None),
    ],
)
def test_positions_of_latent_attention_are_those_that_a_version_computes(own: dict[str, object], expected: int | None) -> None:
    numbers = dict.fromkeys(("rotary_scaling_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"), 4.0)
    built = gpt(multi_latent_attention=True, q_lora_rank=None, **(numbers | own))
    scaling = decoder(built, DIMS, SimpleNamespace()).rope_scaling
    assert (scaling and scaling["original_max_position_embeddings"]) == expected


def with_norms(*widths: int) -> SimpleNamespace:
    """A model with norms of queries and keys of these widths."""
    weights = (SimpleNamespace(numel=partial(int, width)) for width in widths)
    norms = {f"{name}_layernorm": SimpleNamespace(weight=weight) for name, weight in zip("qk", weights, strict=True)}
    layer = SimpleNamespace(self_attention=SimpleNamespace(**norms))
    built = gpt(qk_layernorm=True, kv_channels=8)
    built.decoder = SimpleNamespace(layers=[layer])
    return built


def test_norms_over_all_heads_are_seen_in_the_built_layers() -> None:
    """No property of Megatron's configuration says how wide its layers' norms are."""
    assert registry.nearest(with_norms(8, 8), SimpleNamespace()) == (QWEN3, [])
    family, misfits = registry.nearest(with_norms(32, 16), SimpleNamespace())
    assert (family, misfits) == (QWEN3, ["norms of queries and keys over all heads is True, not False"])


def test_a_function_of_the_same_name_is_not_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    assert function_name(silu) == "silu"
    monkeypatch.setattr(silu, "__module__", "mine.own")
    assert function_name(silu) == "mine.own.silu"


@pytest.mark.parametrize("base", [10000.0, 10001.0, 500000.0, 1e6, 1234567.0, 2.0])
@pytest.mark.parametrize("size", [4, 64, 128])
def test_a_base_is_read_back_from_its_frequencies(base: float, size: int) -> None:
    turned = [float(np.float32(1.0) / np.float32(base ** (at / size))) for at in range(0, size, 2)]
    assert base_of(turned) == pytest.approx(base, rel=1e-6)
    assert base == 1234567.0 or base_of(turned) == base
    assert base_of([one / (1 + at) for at, one in enumerate(turned)]) is None or size == 4  # two numbers are powers of something


@in_one(itertools.product([10000.0, 500000.0, 1234567.0, 8e6, 25600000.0, 1e10], [4, 6, 40, 64, 72, 80, 96, 120, 128, 256]))
def test_a_base_that_a_model_states_is_its_own_where_it_turns_by_it(base: float, size: int) -> None:
    """torch rounds the exponent to fp32 before it takes the power."""
    exponents = np.arange(0, size, 2, dtype=np.float32) / np.float32(size)
    turned = [float(one) for one in 1 / np.float32(base) ** exponents]
    assert base_of(turned, [base * 1.01, base]) == base
    assert base_of(turned) == pytest.approx(base, rel=3e-6)
    assert base_of([one / (1 + at) for at, one in enumerate(turned)], [base]) is None or size == 4


@pytest.mark.parametrize(
    ("settings", "args", "wanted"),
    [
        ({"moe_router_pre_softmax": False, "moe_router_score_function": "softmax"}, {}, True),
        ({"moe_router_pre_softmax": True, "moe_router_score_function": "softmax"}, {}, False),
        ({"moe_router_pre_softmax": True, "moe_router_score_function": "sigmoid"}, {}, True),
        ({"moe_router_score_function": "softmax"}, {}, None),
        ({"moe_router_pre_softmax": True, "moe_router_load_balancing_type": "aux_loss"}, {"norm_topk_prob": True}, True),
        ({"moe_router_pre_softmax": False, "moe_router_load_balancing_type": "softmax_topk"}, {"norm_topk_prob": True}, None),
        ({"moe_router_pre_softmax": False, "moe_router_load_balancing_type": "aux_loss"}, {"norm_topk_prob": False}, True),
    ],
)
def test_whether_the_chosen_add_up_to_one_is_read_of_megatrons_routers_and_of_mindspeed_llms(
    settings: dict[str, object], args: dict[str, object], wanted: bool | None
) -> None:
    assert normalised(SimpleNamespace(**settings), SimpleNamespace(**args)) is wanted
