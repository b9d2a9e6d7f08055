"""Older models of MindFormers, read as their sources build them; each case names the branch, the file and the line that make it so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from align_hooks.checklist.judge import Outcome
from align_hooks.checklist.result import Checklist, check
from align_hooks.checklist.side_value import read_row
from align_hooks.checklist.tables import ROW
from align_hooks.checklist.traps import passed_over
from align_hooks.configuration.megatron import read_command
from align_hooks.configuration.mindformers import read_yaml
from align_hooks.configuration.values import Configuration
from align_hooks.messages import rendered
from checklist.exercises import OLD, megatron, mindformers, row
from chosen import in_one
from worded import ids

DEEPSEEK2_CONFIG = "r1.5.0 research/deepseek2/deepseek2_config.py"
DEEPSEEK2 = "r1.5.0 research/deepseek2/deepseek2_model.py"
DEEPSEEK3_CONFIG = "r1.5.0 research/deepseek3/deepseek3_config.py"
MOE = "r1.5.0 mindformers/modules/transformer/moe.py"
MOEV3 = "r1.5.0 mindformers/modules/transformer/moev3.py"
LLAMA = "r1.5.0 mindformers/models/llama/llama_transformer.py"
LAYER = "r1.5.0 mindformers/models/llama/llama_layer.py"
LAYERS = "r1.5.0 mindformers/modules/layers.py"
BAICHUAN = "r1.3.0 research/baichuan2/baichuan2_13b.py"
GPT2_CONFIG = "r1.3.0 mindformers/models/gpt2/gpt2_config.py"
GPT2 = "r1.3.0 mindformers/models/gpt2/gpt2.py"
LR = "r1.3.0 mindformers/core/lr/build_lr.py"

SPARSE = "moe.expert_num: 8, moe.num_experts_chosen: 2"
SHARED = f"{SPARSE}, moe.shared_expert_num: 2"
CASES = f"""
# type | keys | row | what it holds | where it stands
DeepseekV2Config | | num_layers | 30 | {DEEPSEEK2_CONFIG}:117
DeepseekV2Config | | vocab_size | 102400 | {DEEPSEEK2_CONFIG}:127
DeepseekV2Config | | rms_norm_eps | 1e-06 | {DEEPSEEK2_CONFIG}:130
DeepseekV2Config | | multi_latent_attention | True | {DEEPSEEK2}:390, with no key to say otherwise
DeepseekV2Config | | norm_of_queries_and_keys | True | {DEEPSEEK2}:399 and 434, with no key to say otherwise
DeepseekV2Config | | q_lora_rank | 1536 | {DEEPSEEK2_CONFIG}:123
DeepseekV2Config | m.qk_nope_head_dim: 96 | qk_head_dim | 96 | {DEEPSEEK2_CONFIG}:126
DeepseekV2Config | | rope_scaling | yarn | {DEEPSEEK2_CONFIG}:150
DeepseekV2Config | m.extend_method: None | position_embedding_type | rope | {LAYERS}:1202
DeepseekV2Config | m.init_method_std: 0.02 | init_method_std | 0.01 | {DEEPSEEK2}:1276, where Linear takes its default
DeepseekV2Config | | activation_function | swiglu | {DEEPSEEK2}:866
DeepseekV2Config | {SHARED} | layers_with_experts | 1 dense, 29 with experts | {MOE}:134, which is True, and {DEEPSEEK2}:862
DeepseekV2Config | {SHARED}, moe.first_k_dense_replace: 3 | layers_with_experts | 3 dense, 27 with experts | {DEEPSEEK2}:862
DeepseekV2Config | {SHARED}, moe.first_k_dense_replace: 0 | layers_with_experts | 30 with experts | {DEEPSEEK2}:862
DeepseekV2Config | {SHARED}, moe.moe_intermediate_size: 1536 | size_of_an_expert | 1536 | {DEEPSEEK2}:895
DeepseekV2Config | {SHARED} | size_of_an_expert | 1407 | {MOE}:134
DeepseekV2Config | {SPARSE}, moe.moe_intermediate_size: 1536 | size_of_an_expert | 12288 | {DEEPSEEK2}:887
DeepseekV2Config | {SHARED}, moe.moe_intermediate_size: 1536 | size_of_the_shared_experts | 3072 | {LAYER}:821
DeepseekV2Config | {SPARSE}, moe.aux_loss_factor: 0.05 | aux_loss_factor | 0 | {MOE}:1328
DeepseekV2Config | {SPARSE}, moe.aux_loss_types: [device, expert], moe.aux_loss_factors: [0.5, 0.003] | aux_loss_factor | 0.003 | {MOE}:1571
DeepseekV2Config | moe.aux_loss_types: [comm], moe.aux_loss_factors: [0.02] | moe_comm_aux_loss_coeff | 0.02 | {MOE}:1579
DeepseekV2Config | moe.aux_loss_types: [device], moe.aux_loss_factors: [0.05] | moe_device_level_aux_loss_coeff | 0.05 | {MOE}:1575
LlamaConfig | moe.aux_loss_types: [device], moe.aux_loss_factors: [0.05] | moe_device_level_aux_loss_coeff | 0 | {LLAMA}:961
DeepseekV2Config | {SPARSE}, moe.n_group: 4, moe.topk_group: 2 | groups_of_experts | None | {MOE}:1525, by greedy of {MOE}:133
DeepseekV2Config | {SPARSE}, moe.n_group: 4, moe.topk_method: group_limited_greedy | groups_of_experts | 4 | {MOE}:1525
DeepseekV2Config | {SPARSE}, moe.topk_group: 2, moe.topk_method: noaux_tc | groups_chosen | 2 | {MOE}:1525
DeepseekV2Config | {SPARSE}, moe.n_group: 4, moe.topk_method: noaux_tc, moe.use_gmm: true | groups_of_experts | None | {MOEV3}:363
DeepseekV2Config | {SPARSE}, moe.capacity_factor: 0 | capacity_factor | None | {MOE}:1619
DeepseekV2Config | {SPARSE}, moe.capacity_factor: 2.0, moe.use_gmm: true | capacity_factor | None | {MOEV3}:96
DeepseekV2Config | {SPARSE} | tokens_that_are_dropped | first choices are kept before second ones, then by position | {MOE}:1628
DeepseekV3Config | | init_method_std | 0.006 | {DEEPSEEK3_CONFIG}:135
DeepseekV3Config | | compute_dtype | bfloat16 | {DEEPSEEK3_CONFIG}:130
DeepseekV3Config | m.mtp_depth: 1 | mtp_loss_scaling_factor | 0.3 | {DEEPSEEK3_CONFIG}:158
LlamaConfig | {SPARSE}, moe.aux_loss_factor: 0.01 | aux_loss_factor | 0 | {LLAMA}:961, which asks its router for no loss
LlamaConfig | {SPARSE}, moe.aux_loss_types: [expert], moe.aux_loss_factors: [0.1] | aux_loss_factor | 0 | {LLAMA}:961
LlamaConfig | {SPARSE}, moe.first_k_dense_replace: 2 | layers_with_experts | 32 with experts | {LLAMA}:907-975, which has no such layers
LlamaConfig | {SHARED}, m.intermediate_size: 96, moe.moe_intermediate_size: 32 | size_of_an_expert | 96 | {LLAMA}:968
LlamaConfig | m.extend_method: YARN, m.scaling_factor: {{factor: 4.0}} | rotary_scaling_factor | 4 | {LAYERS}:1204
LlamaConfig | m.scaling_factor: {{original_max_position_embeddings: 9}} | original_max_position_embeddings | 9 | {LAYERS}:1208
LlamaConfig | m.scaling_factor: {{mscale: 1.5}} | mscale | 1.5 | {LAYERS}:1210
LlamaConfig | m.kv_channels: 77 | head_dim | 128 | r1.5.0 mindformers/models/llama/llama_config.py:134, with none of the name
LlamaConfig | model.arch: {{type: Baichuan13BV2ForCausalLM}} | position_embedding_type | alibi | {BAICHUAN}:326
InternLM2Config | | n_kv_heads | 8 | r1.3.0 research/internlm2/internlm2_config.py:99
InternLM2Config | | rotary_base | 1000000 | r1.3.0 research/internlm2/internlm2_config.py:110
QwenConfig | m.qkv_has_bias: false | bias_of_queries_keys_and_values | True | r1.3.0 research/qwen/qwen_model.py:266
QwenConfig | m.kv_channels: 77, m.rotary_emb_base: 1000000 | rotary_base | 10000 | r1.3.0 research/qwen/qwen_model.py:282, which reads theta
GPT2Config | | position_embedding_type | learned_absolute | {GPT2}:329
GPT2Config | m.seq_length: 2048 | max_position_embeddings | 2048 | {GPT2_CONFIG}:160
GPT2Config | m.hidden_size: 5120 | intermediate_size | 20480 | {GPT2}:431, by expand_ratio 4 of {GPT2_CONFIG}:121
GPT2Config | m.hidden_size: 64, m.expand_ratio: 3 | intermediate_size | 192 | {GPT2}:431
GPT2Config | | normalization | layernorm | {GPT2}:403
GPT2Config | | activation_function | gelu (tanh) | r1.3.0 mindformers/modules/activation.py:928, by default approximate
GPT2Config | m.hidden_act: fast_gelu | activation_function | fast_gelu | r1.3.0 mindformers/modules/activation.py:1624
GPT2Config | | gated_linear_unit | False | {GPT2}:428, one FeedForward of two layers
GPT2Config | | bias_of_linear_layers | True | r1.3.0 mindformers/modules/layers.py:431, whose Linear has one by default
GPT2Config | | tied_embeddings | True | {GPT2}:178, whose head takes the embedding's table
GPT2Config | | hidden_dropout | 0.1 | {GPT2_CONFIG}:123
GPT2Config | m.attention_dropout_rate: 0.2 | attention_dropout | 0.2 | {GPT2_CONFIG}:124
GPT2Config | m.compute_dtype: float32 | compute_dtype | float16 | {GPT2}:427-446, which passes none on to its layers
LlamaConfig | optimizer: {{type: adamw}} | optimizer | adamw without bias correction | r1.3.0 mindformers/core/optim/build_optim.py:87
LlamaConfig | optimizer: {{type: AdamWeightDecayX}} | optimizer | adamw | r1.3.0 research/qwen/optim.py:57-59
LlamaConfig | lr_schedule: {{type: cosine}} | lr_decay_style | cosine | {LR}:85
LlamaConfig | lr_schedule: {{type: constant_with_warmup}} | lr_decay_style | constant | {LR}:79
LlamaConfig | lr_schedule: {{type: polynomial}} | lr_decay_style | linear | {LR}:91
"""
"""A line is a type of configuration, what a YAML says of the model (``m.``) and of its experts (``moe.``), and what a row then holds."""


def older(kind: str, keys: str) -> Configuration:
    """A YAML of an older model: ``m.`` stands for ``model.model_config.``, ``moe.`` for ``moe_config.``."""
    tree: dict[str, Any] = {"model": {"model_config": {"type": kind}}, "moe_config": {}}
    for name, value in (yaml.safe_load("{" + keys + "}") or {}).items():
        section, _, rest = name.partition(".")
        value = "None" if value == "None" else value
        if section == "m":
            tree["model"]["model_config"][rest] = value
        elif section == "moe":
            tree["moe_config"][rest] = value
        elif section == "model":
            tree["model"][rest] = value
        else:
            tree[name] = value
    configuration = read_yaml(yaml.safe_dump(tree), "older.yaml", Path())
    return replace(configuration, passed_over=passed_over(configuration, "1.5"))


def cases() -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in CASES.strip().splitlines() if not line.startswith("#")]


@in_one(cases())
def test_a_row_holds_what_the_source_builds(kind: str, keys: str, name: str, holds: str, source: str) -> None:
    assert rendered(read_row(ROW[name], older(kind, keys)).shown) == holds, source


def test_a_loss_that_nobody_adds_is_told() -> None:
    """r1.5.0 mindformers/models/llama/llama_transformer.py:961 builds MoEV2 with return_extra_loss left False."""
    sparse = {"moe_config.expert_num": 4, "moe_config.routing_policy": "TopkRouterV2"}
    sparsely = check(megatron(OLD, {"num-experts": 4}), mindformers(OLD, {**sparse, "moe_config.aux_loss_factor": 0.05}))
    assert row(sparsely, "aux_loss_factor").outcome is Outcome.SAME
    assert "trap.no_auxiliary_loss" in ids(*sparsely.sides[1].traps)
    dense = check(megatron(OLD, {}), mindformers(OLD, {"moe_config.expert_num": 1, "moe_config.aux_loss_factor": 0.05}))
    assert "trap.no_auxiliary_loss" not in ids(*dense.sides[1].traps)


def test_how_positions_are_turned_says_nothing_where_none_are() -> None:
    """r1.3.0 mindformers/models/gpt2/gpt2.py:329: positions are learned."""
    learned = read_command("torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4", {})
    both = check(learned, older("GPT2Config", "m.num_layers: 2, m.hidden_size: 64, m.num_heads: 4"))
    for name in ("rotary_base", "rotary_percent", "rotary_interleaved"):
        assert row(both, name).outcome in (Outcome.SAME, Outcome.HARMLESS)
    assert row(both, "position_embedding_type").outcome is Outcome.SAME


def told(flags: str, kind: str, keys: str) -> Checklist:
    """A script with some flags against a YAML of an older model."""
    return check(read_command(f"torchrun pretrain_gpt.py --num-layers 4 {flags}", {}), older(kind, f"m.num_layers: 4, {keys}"))


def test_the_size_of_a_dense_layer_says_nothing_where_there_is_none() -> None:
    """r1.5.0 mindformers/models/llama/llama_transformer.py:967-975: every layer of such a LLaMA has experts."""
    sparse, keys = "--num-experts 8 --hidden-size 64 --ffn-hidden-size 96 --moe-ffn-hidden-size 32", f"m.intermediate_size: 32, {SPARSE}"
    one = told(sparse, "LlamaConfig", keys)
    assert (row(one, "intermediate_size").outcome, row(one, "size_of_an_expert").outcome) == (Outcome.HARMLESS, Outcome.SAME)
    other = told(f"{sparse} --moe-layer-freq [0]+[1]*3", "LlamaConfig", keys)
    assert row(other, "intermediate_size").outcome is Outcome.DIFFERENT


def test_numbers_of_yarn_say_nothing_of_a_side_without_it() -> None:
    """r1.5.0 mindformers/modules/layers.py:1202: scaling_factor is read by the method that extend_method names."""
    latent = "--multi-latent-attention --rotary-scaling-factor 4 --mscale 1.5"
    one = told(latent, "DeepseekV2Config", "m.extend_method: None")
    assert row(one, "rope_scaling").outcome is Outcome.DIFFERENT
    names = ("rotary_scaling_factor", "mscale", "mscale_all_dim", "original_max_position_embeddings")
    assert {row(one, name).outcome for name in names} == {Outcome.HARMLESS}
    factors = "factor: 8.0, mscale: 1.5, mscale_all_dim: 0.0, original_max_position_embeddings: 4096, beta_fast: 32, beta_slow: 1"
    other = told(latent, "DeepseekV2Config", f"m.scaling_factor: {{{factors}}}")
    outcomes = [row(other, name).outcome for name in names]
    assert outcomes == [Outcome.DIFFERENT, Outcome.SAME, Outcome.SAME, Outcome.SAME]


BALANCED = "moe.aux_loss_types: [expert], moe.aux_loss_factors: [0.01]"
CUT = "parallel_config: {use_seq_parallel: true, model_parallel: 2}"


@pytest.mark.parametrize(
    ("batch", "keys", "outcome"),
    [(1, "", Outcome.SAME), (2, "runner_config: {batch_size: 2}", Outcome.DIFFERENT), (1, CUT, Outcome.DIFFERENT)],
)
def test_balancing_over_one_sequence_is_balancing_over_its_micro_batch(batch: int, keys: str, outcome: Outcome) -> None:
    """r1.5.0 mindformers/modules/transformer/moe.py:1794: a mean over all tokens of a group, which use_seq_parallel cuts (713)."""
    flags = f"--num-experts 8 --moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 0.01 --micro-batch-size {batch}"
    one = told(flags, "DeepseekV3Config", ", ".join(filter(None, (SPARSE, BALANCED, keys))))
    assert row(one, "aux_loss_factor").outcome is Outcome.SAME
    assert row(one, "load_balancing_type").outcome is outcome


def test_megatron_deepspeed_may_be_told_the_rows_of_the_embedding() -> None:
    """bigscience-workshop/Megatron-DeepSpeed megatron/tokenizer/tokenizer.py, ``_vocab_size_with_padding``; its --embed-layernorm norms
    what comes of the embedding, which MindFormers' models do not."""
    one = told("--pad-vocab-size-to 250880 --embed-layernorm", "GPT2Config", "m.vocab_size: 250880")
    assert row(one, "rows_of_the_embedding").outcome is Outcome.SAME
    assert row(one, "embed_layernorm").outcome is Outcome.DIFFERENT
