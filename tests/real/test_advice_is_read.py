"""What a YAML says is what MindFormers' own trainer builds, and names that it does not read are known to the CheckList."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import yaml

from real import advice
from real.advice import FAMILIES, base, long

TRAINING = """
optimizer.betas: optimizer.beta2 = 0.95
optimizer.eps: optimizer.eps = 1.0e-8
lr_schedule.learning_rate: schedule.learning_rate = 0.001
runner_wrapper.scale_sense: wrapper.scale_sense = 1.0
runner_wrapper.use_clip_grad: wrapper.use_clip_grad = true
D.split: data.split = '1, 0, 0'
D.seed: data.random_seed = 1234
D.data_path: data.blend = [[/mnt/wiki_text_document], [1.0]]
train_dataset.data_loader.sizes: data.steps = 10
runner_config.batch_size: run.global_batch_size = 1
seed: run.seed = 1234
"""
NEWER = """
m.num_hidden_layers: transformer.num_layers = 2
m.hidden_size: transformer.hidden_size = 64
m.intermediate_size: transformer.ffn_hidden_size = 128
m.num_attention_heads: transformer.num_attention_heads = 4
m.vocab_size: network.model.vocab_size = 256
m.seq_length: transformer.seq_length = 128
m.rms_norm_eps: transformer.layernorm_epsilon = 1.0e-5
m.hidden_dropout: transformer.hidden_dropout = 0.0
"""
OF_EXPERTS = """
m.num_experts_per_tok: transformer.moe_router_topk = 2
m.moe_intermediate_size: transformer.moe_ffn_hidden_size = 96
m.routed_scaling_factor: transformer.moe_router_topk_scaling_factor = 1.0
"""
LATENT = """
m.q_lora_rank: transformer.q_lora_rank = 24
m.kv_lora_rank: transformer.kv_lora_rank = 32
m.n_routed_experts: transformer.num_moe_experts = 8
m.first_k_dense_replace: transformer.first_k_dense_replace = 1
m.rope_scaling.type: transformer.position_embedding_type = yarn
m.rope_scaling.original_max_position_embeddings: transformer.max_position_embeddings = 4096
"""
BUILT = {
    "llama": """
m.num_layers: model.num_layers = 2
m.hidden_size: model.hidden_size = 64
m.intermediate_size: model.intermediate_size = 128
m.num_heads: model.num_heads = 4
m.vocab_size: model.vocab_size = 256
m.rms_norm_eps: model.rms_norm_eps = 1.0e-5
m.init_method_std: model.init_method_std = 0.02
""",
    "qwen3": NEWER + "m.head_dim: transformer.kv_channels = 16\n",
    "qwen3_moe": NEWER + OF_EXPERTS + "m.num_experts: transformer.num_moe_experts = 8\n",
    "deepseek_v3": NEWER + OF_EXPERTS + LATENT,
    "telechat3": NEWER + "m.head_dim: transformer.kv_channels = 16\n",
    "telechat3_moe": NEWER + OF_EXPERTS + LATENT,
}
"""Family to keys that its base sets, where each shows, and the value."""


@cache
def bases() -> dict[str, dict[str, Any]]:
    """What the bases build."""
    return dict(zip(FAMILIES, advice.read_back([advice.text(base(family)) for family in FAMILIES]), strict=True))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_base_is_built_with_what_it_says(family: str) -> None:
    found, keys, wrong = bases()[family], base(family), {}
    assert "refused" not in found, found["refused"]
    for line in filter(None, (TRAINING + BUILT[family]).splitlines()):
        key, _, rest = line.partition(": ")
        field, _, value = rest.partition(" = ")
        if long(key) not in keys or found["built"].get(field) != yaml.safe_load(value):
            wrong[key] = (keys.get(long(key)), field, found["built"].get(field))
    assert wrong == {}


def test_the_rates_are_those_of_the_schedule() -> None:
    keys = advice.changed(base("llama"), {"lr_schedule.type": "LinearWithWarmUpLR", "lr_schedule.warmup_steps": 5})
    (answer,) = advice.read_back([advice.text(keys)])
    rates = answer["built"]["schedule.rates"]
    assert len(rates) == 60
    assert rates[:7] == pytest.approx([0, 2e-4, 4e-4, 6e-4, 8e-4, 1e-3, 8e-4], abs=1e-9)
