"""Models as Megatron-LM builds them: another class is refused, and a fact that cannot be read is unknown, never another value."""

from pathlib import Path
from typing import Any

import pytest

from align_hooks.quantities.weights import NO_FAMILY, UNKNOWN
from real import frameworks

REFUSED = {
    "a HybridModel without a pattern": "megatron.core.models.hybrid.hybrid_model.HybridModel: only megatron.core's GPTModel",
    "T5Model": "megatron.core.models.T5.t5_model.T5Model: only megatron.core's GPTModel",
    "BertModel": "megatron.core.models.bert.bert_model.BertModel: only megatron.core's GPTModel",
    "RetroModel": "megatron.core.models.retro.model.RetroModel: only megatron.core's GPTModel",
    "no GPTModel": "LooksAlike: only megatron.core's GPTModel",
    "another decoder": "the decoder of the model is a megatron.core.models.hybrid.hybrid_block.HybridStack",
    "layers from 0": "layers are numbered 0, 1",
    "layers of one number": "layers are numbered 1, 1",
    "layers without a number": "layers are numbered None, None",
}
RECORDED = ("GPTModel", "a class derived from it", "a decoder derived from TransformerBlock", "HybridModel", "MambaModel")
UNREAD = {
    "GPTModel.max_sequence_length": "max_position_embeddings",
    "TransformerConfig.hidden_size": "hidden_size",
    "TransformerConfig.layernorm_epsilon": "rms_norm_eps",
}
"""An attribute to the setting that is unknown without it."""


@pytest.fixture(scope="module")
def answers(real_corpus: Path) -> dict[str, Any]:
    return frameworks.answered("built_models.py")


def test_a_model_of_another_structure_is_refused_by_name(answers: dict[str, Any]) -> None:
    refusals = answers["refusals"]
    assert {name for name, why in refusals.items() if why} == set(REFUSED)
    assert set(refusals) == {*REFUSED, *RECORDED}
    for name, part in REFUSED.items():
        assert part in refusals[name] and "\n" not in refusals[name]


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "qwen3_moe"])
def test_a_fact_is_right_or_unknown_whatever_attribute_is_missing(answers: dict[str, Any], kind: str) -> None:
    recorded = answers["facts"][kind]
    whole = recorded[""]
    assert (whole["model_type"], whole["rope_theta"]) == (kind, 1234567.0)
    assert UNKNOWN not in whole and NO_FAMILY not in whole
    for without, model in recorded.items():
        if "refused" in model:
            assert without.rpartition(".")[2] in model["refused"]
            continue
        assert {key: model[key] for key in whole.keys() & model.keys()} == {key: whole[key] for key in whole.keys() & model.keys()}, without
        assert NO_FAMILY in model or set(model.get(UNKNOWN, ())) == whole.keys() - model.keys(), without
        assert model.get(UNKNOWN, []) == ([UNREAD[without]] if without in UNREAD else model.get(UNKNOWN, [])), without
    assert recorded["GPTModel.rotary_base"] == whole  # which MindSpeed-LLM's model does not have
    assert recorded["scaled frequencies"][NO_FAMILY] == ["frequencies of one base is False, not True"]
    (lacks,) = recorded["a renamed layer"][NO_FAMILY]
    assert lacks == "layers lack 1 of its tensors, first model.layers.1.self_attn.o_proj.weight"
    assert kind != "qwen3_moe" or recorded["TransformerConfig.moe_router_pre_softmax"][UNKNOWN] == ["norm_topk_prob"]


def test_the_facts_of_a_hybrid_model_are_those_of_its_blocks_or_unknown(answers: dict[str, Any]) -> None:
    whole, of_gpt = answers["hybrid"][""], answers["facts"]["llama"][""]
    assert whole == of_gpt
    for without, model in answers["hybrid"].items():
        assert "refused" in model or {key: model[key] for key in whole.keys() & model.keys()}.items() <= whole.items(), without
        assert "refused" in model or NO_FAMILY in model or set(model.get(UNKNOWN, ())) == whole.keys() - model.keys(), without


def test_what_is_no_block_keeps_the_numbers_of_its_own_layers(answers: dict[str, Any]) -> None:
    names = answers["names"]
    assert {name.partition(".self_attn")[0] for name in names["*-*-"] if ".self_attn" in name} == {"model.layers.0", "model.layers.1"}
    assert [name for name in names["*-*-"] if name.startswith("megatron:")] == []
    for pattern, layers in (("*M-", 3), ("**--", 4)):
        own = [name for name in names[pattern] if ".layers." in name]
        assert {name.split(".")[2] for name in own} == set(map(str, range(layers)))
        assert all(name.startswith("megatron:decoder.layers.") for name in own)
        assert set(names[pattern]) - set(own) == {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"}
    assert {"megatron:decoder.layers.1.mixer.weight", "megatron:decoder.layers.2.mlp.linear_fc2.weight"} < set(names["*M-"])
    assert answers["of no blocks"][NO_FAMILY] == ["hybrid_layer_pattern is *M-, not pairs of attention and feed-forward"]


def test_whether_the_model_draws_is_unknown_where_an_argument_is_missing(answers: dict[str, Any]) -> None:
    assert answers["draws"] == [False, True, True, None]
