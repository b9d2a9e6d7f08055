"""Every family against Hugging Face's own model of it, and what follows from all of them together."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from transformers import AutoConfig, AutoModelForCausalLM

from align_hooks.checklist.tables import ROW
from align_hooks.compare.frontier import LEVEL
from align_hooks.compare.places import KINDS
from align_hooks.families import registry
from align_hooks.families.family import Decoder, Family, rows_of
from align_hooks.families.llama import LLAMA
from align_hooks.families.megatron import function_name
from align_hooks.families.mixtral import MIXTRAL
from align_hooks.names.blocks import Dims

DIMS = Dims(heads=4, groups=2, head_dim=8, ffn=24, vocabulary=40, padded=64, expert_ffn=12)
SIZES = {"hidden": 16, "layers": 2, "queries": 32, "keys": 16, "ffn": 24, "experts": 4, "expert_ffn": 12, "vocabulary": 40, "head": 8}
EVERY = pytest.mark.parametrize("family", registry.FAMILIES, ids=lambda family: family.name)


def config(family: Family, *, tied: bool) -> dict[str, object]:
    """``config.json`` of a small model."""
    experts = {"experts": 4, "chosen_experts": 2} if family.experts else {}
    return family.huggingface(Decoder(DIMS, 16, 2, 1e-5, 1e6, 128, tied, **experts))


def whole(family: Family, *, tied: bool) -> dict[str, tuple[int, ...]]:
    """Every tensor that a family says its model has, numbers filled in, with its shape."""
    return {
        name.format(layer=layer, expert=expert): tuple(SIZES[axis] for axis in axes)
        for name, axes in family.shapes(tied=tied).items()
        for layer in range(SIZES["layers"])
        for expert in range(SIZES["experts"])
    }


@EVERY
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_the_configuration_opens_hugging_faces_model_and_has_its_tensors(family: Family, tied: bool) -> None:
    given = config(family, tied=tied)
    kept = AutoConfig.for_model(**given)
    assert {key: getattr(kept, key) for key in given if key != "torch_dtype"} == {key: given[key] for key in given if key != "torch_dtype"}
    model = AutoModelForCausalLM.from_config(kept)
    assert [type(model).__name__] == given["architectures"]
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    assert shapes == whole(family, tied=tied)
    assert family.elements(SIZES.__getitem__, tied=tied) == sum(map(math.prod, shapes.values()))


@EVERY
def test_both_tables_know_every_tensor(family: Family) -> None:
    names = set(family.shapes(tied=False))
    for built in (family.megatron, family.mindformers):
        if built is not None:
            assert names <= {name for rule in built.table.rules for name in rule.canonical}
            assert len({rule.native for rule in built.table.rules}) == len(built.table.rules)
            assert built.table.native(family.embedding) != built.table.native(family.output)


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


def test_the_families_are_named_as_a_refusal_needs_them() -> None:
    assert registry.models([LLAMA]) == "dense Llama models"
    assert registry.models([LLAMA, MIXTRAL]) == "Llama models, dense or with experts as in Mixtral,"


def silu() -> None:
    """A function of the name of torch's."""


silu.__module__ = "torch.nn.functional"


def gpt(**changes: object) -> SimpleNamespace:
    """What Megatron's model says of itself, a Llama's where nothing is changed."""
    settings: dict[str, object] = {"num_layers": 2, "num_moe_experts": None, "activation_func": silu} | changes
    built = {name: settings.pop(name) for name in ("position_embedding_type",) if name in settings}
    return SimpleNamespace(**({"position_embedding_type": "rope"} | built), config=SimpleNamespace(**settings))


def nearest(model: SimpleNamespace, **args: object) -> tuple[str, list[str]]:
    def misfits(family: Family) -> list[str]:
        assert family.megatron is not None
        return family.megatron.misfits(model, SimpleNamespace(**args))

    closest = registry.closest((LLAMA, MIXTRAL), misfits, experts=bool(model.config.num_moe_experts))
    return closest[0].name, closest[1]


def test_a_built_model_is_of_the_family_that_it_says() -> None:
    assert nearest(gpt(mtp_num_layers=0)) == ("Llama", [])
    assert nearest(gpt(num_moe_experts=8, moe_router_topk_scaling_factor=1.0)) == ("Mixtral", [])


@pytest.mark.parametrize(
    ("changes", "args", "name", "wrong"),
    [
        ({"rotary_interleaved": True}, {}, "Llama", ["rotary_interleaved is True, not False"]),
        (
            {},
            {"rotary_percent": 0.5, "use_rope_scaling": True},
            "Llama",
            ["rotary_percent is 0.5, not 1.0", "use_rope_scaling is True, not False"],
        ),
        ({"position_embedding_type": "none"}, {}, "Llama", ["position_embedding_type is none, not rope"]),
        ({"activation_func": math.sqrt}, {}, "Llama", ["activation_func is math.sqrt, not silu"]),
        (
            {"num_moe_experts": 8, "moe_router_score_function": "sigmoid", "moe_router_enable_expert_bias": True, "moe_layer_freq": [0, 1]},
            {},
            "Mixtral",
            [
                "moe_router_score_function is sigmoid, not softmax",
                "moe_router_enable_expert_bias is True, not False",
                "dense layers between experts is True, not False",
            ],
        ),
        ({"num_moe_experts": 8, "moe_layer_freq": [1, 1], "mtp_num_layers": 1}, {}, "Mixtral", ["mtp_num_layers is 1, not None"]),
    ],
)
def test_a_model_of_no_family_is_told_by_what_the_nearest_has_not(
    changes: dict[str, object], args: dict[str, object], name: str, wrong: list[str]
) -> None:
    assert nearest(gpt(**changes), **args) == (name, wrong)


def test_a_function_of_the_same_name_is_not_the_same() -> None:
    silu.__module__ = "mine.own"
    try:
        assert function_name(silu) == "mine.own.silu"
    finally:
        silu.__module__ = "torch.nn.functional"
    assert function_name(silu) == "silu"
