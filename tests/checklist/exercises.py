"""Every row of the CheckList, exercised: what Megatron is told, a YAML that means the same, and one that does not.

``m.`` stands for ``model.model_config.``, ``D.`` for the keys of the data set; ``style`` is the base that both are put on: an older model, a newer one, or a newer one with
experts and latent attention. What an exercise says replaces what its base says. Where MindFormers makes first weights otherwise than
Megatron-LM, which is everywhere but in newer models without experts, the bases load them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from align_hooks.checklist.judge import Checked
from align_hooks.checklist.result import Checklist
from align_hooks.configuration.megatron import read_command
from align_hooks.configuration.mindformers import read_yaml
from align_hooks.configuration.values import Configuration
from align_hooks.messages import rendered

OLD, NEW, EXPERTS, LATENT = "old", "new", "experts", "latent"


def flags(words: str) -> dict[str, str | None]:
    """Flags of Megatron's and their values: empty where a flag takes none, None for OUT."""
    pairs = [word.strip().partition(" ") for word in words.split("--")[1:]]
    return {name: None if value == "OUT" else value for name, _, value in pairs}


def typed(words: str) -> dict[str, Any]:
    """Flags and their values as YAML reads them; None where a flag takes none."""
    return {name: yaml.safe_load(value or "") for name, value in flags(words).items()}


def keys(text: str) -> dict[str, Any]:
    """Keys of a YAML, written in one line."""
    return yaml.safe_load("{" + text + "}") or {}


MEGATRON = typed("""
    --num-layers 2 --hidden-size 64 --ffn-hidden-size 128 --num-attention-heads 4 --kv-channels 16 --seq-length 128
    --max-position-embeddings 128 --position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear
    --untie-embeddings-and-output-weights --attention-dropout 0.0 --hidden-dropout 0.0 --micro-batch-size 1 --global-batch-size 1
    --train-iters 10 --lr 0.001 --min-lr 0.0 --lr-decay-style constant --weight-decay 0.1 --adam-beta2 0.95 --clip-grad 1.0
    --vocab-size 256 --make-vocab-size-divisible-by 1 --data-path /data/wiki_text_document --split 1,0,0
    --tensor-model-parallel-size 1 --bf16 --load /data/weights
""")
TRAINING = keys("""
    use_parallel: false, runner_config.epochs: 1, runner_config.batch_size: 1, optimizer.type: AdamW, optimizer.betas: [0.9, 0.95],
    optimizer.eps: 1.0e-08, optimizer.weight_decay: 0.1, lr_schedule.type: ConstantWarmUpLR, lr_schedule.learning_rate: 0.001,
    lr_schedule.warmup_steps: 0, lr_schedule.total_steps: -1, train_dataset.data_loader.sizes: [10, 0, 0],
    train_dataset.data_loader.config.split: '1, 0, 0', train_dataset.data_loader.config.seed: 1234,
    train_dataset.data_loader.config.data_path: ['1', /mnt/wiki_text_document], runner_wrapper.type: MFTrainOneStepCell,
    runner_wrapper.scale_sense: 1.0, runner_wrapper.use_clip_grad: true, seed: 1234
""")
BASES = {}
BASES[OLD] = TRAINING | keys("""
    use_legacy: true, m.type: LlamaConfig, m.seq_length: 128, m.hidden_size: 64, m.intermediate_size: 128, m.num_layers: 2,
    m.num_heads: 4, m.vocab_size: 256, m.max_position_embedding: 128, m.init_method_std: 0.02, m.rms_norm_eps: 1.0e-05,
    m.compute_dtype: bfloat16, m.param_init_type: float32, m.use_flash_attention: true, m.pad_token_id: -1,
    load_checkpoint: /mnt/weights
""")
BASES[NEW] = TRAINING | keys("""
    use_legacy: false, m.model_type: qwen2, m.seq_length: 128, m.hidden_size: 64, m.intermediate_size: 128, m.num_hidden_layers: 2,
    m.num_attention_heads: 4, m.head_dim: 16, m.vocab_size: 256, m.max_position_embeddings: 128, m.rms_norm_eps: 1.0e-05,
    m.hidden_dropout: 0.0, m.bias_swiglu_fusion: true, m.pad_token_id: -1
""")
BASES[EXPERTS] = BASES[NEW] | keys("""
    m.model_type: qwen3_moe, m.num_key_value_heads: 4, m.num_experts: 8, m.num_experts_per_tok: 2, m.moe_intermediate_size: 96,
    m.routed_scaling_factor: 1.0, m.norm_topk_prob: true, load_checkpoint: /mnt/weights
""")
BASES[LATENT] = BASES[NEW] | keys("""
    m.model_type: deepseek_v3, m.q_lora_rank: 24, m.kv_lora_rank: 32, m.n_routed_experts: 8, m.num_experts_per_tok: 2,
    m.moe_intermediate_size: 96, m.qk_layernorm: true, m.rope_scaling.type: yarn, m.rope_scaling.factor: 1.0,
    m.rope_scaling.original_max_position_embeddings: 4096, m.rope_scaling.mscale: 1.0, m.rope_scaling.mscale_all_dim: 1.0,
    m.first_k_dense_replace: 1, m.moe_router_enable_expert_bias: false, m.n_group: 1, m.topk_group: 1, m.routed_scaling_factor: 1.0,
    m.num_nextn_predict_layers: 0, load_checkpoint: /mnt/weights
""")
FLAGS: dict[str, dict[str, Any]] = {OLD: {}, NEW: {}}
FLAGS[EXPERTS] = typed("--num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 96 --qk-layernorm --moe-router-dtype fp32")
FLAGS[LATENT] = typed("""
    --multi-latent-attention --q-lora-rank 24 --kv-lora-rank 32 --num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 96
    --moe-shared-expert-intermediate-size 96 --moe-layer-freq "'[0]+[1]'" --moe-router-score-function sigmoid --qk-layernorm
    --moe-router-dtype fp32 --mscale-all-dim 1.0
""")


@dataclass(frozen=True)
class Exercise:
    """One row: flags of Megatron's (None takes one out, "" is a switch), keys of a YAML that agrees, and of one that does not."""

    row: str
    flags: dict[str, Any]
    same: dict[str, Any]
    other: dict[str, Any]
    style: str = OLD

    @property
    def id(self) -> str:
        return f"{self.row} ({self.style})" if self.style != OLD else self.row


def megatron(style: str, flags: dict[str, Any]) -> Configuration:
    """Megatron's side of a base with an exercise's flags on it."""
    arguments = {**MEGATRON, **FLAGS[style]}
    for name, value in flags.items():
        if value is None:
            arguments.pop(name, None)
        else:
            arguments[name] = None if value == "" else value
    return read_command(" ".join(f"--{name}" if value is None else f"--{name} {value}" for name, value in arguments.items()), {})


def mindformers(style: str, keys: dict[str, Any]) -> Configuration:
    """MindFormers' side; a key that is None is taken out."""
    return read_yaml(yaml.safe_dump(mindformers_tree(style, keys)), f"{style}.yaml", Path())


def mindformers_tree(style: str, keys: dict[str, Any]) -> dict[str, Any]:
    """What MindFormers' YAML of a base holds, with an exercise's keys."""
    tree: dict[str, Any] = {}
    for name, value in {**BASES[style], **keys}.items():
        if value is None:
            continue
        *path, last = name.replace("m.", "model.model_config.", 1).split(".") if name.startswith("m.") else name.split(".")
        place = tree
        for part in path:
            inner = place.setdefault(part, {})
            if not isinstance(inner, dict):
                inner = place[part] = {}
            place = inner
        place[last] = value
    return tree


def exercises(table: str) -> Iterator[Exercise]:
    """The exercises of a table: a line is a row's id, flags, a YAML that agrees, one that does not, and a style, OLD where it is empty."""
    for line in (line for line in table.strip().splitlines() if not line.startswith("#")):
        row, words, same, other, style = (cell.strip() for cell in line.replace("D.", f"{DATA}.").split("|"))
        yield Exercise(row, flags(words), keys(same), keys(other), style or OLD)


DATA = "train_dataset.data_loader.config"
TABLE = """
# structure
num_layers | --num-layers 4 | m.num_layers: 4 | m.num_layers: 5 |
num_layers | --num-layers 4 | m.num_hidden_layers: 4 | m.num_hidden_layers: 5 | new
num_layers | --num-layers OUT --encoder-num-layers 4 | m.num_layers: 4 | m.num_layers: 3 |
decoder_num_layers |  |  | FLAGS: '--decoder-num-layers 2' |
hidden_size | --hidden-size 128 | m.hidden_size: 128 | m.hidden_size: 96 |
intermediate_size | --ffn-hidden-size 352 | m.intermediate_size: 352 | m.intermediate_size: 353 |
intermediate_size | --ffn-hidden-size 256 | m.intermediate_size: null, m.multiple_of: 256 | m.intermediate_size: null, m.multiple_of: 32 |
intermediate_size | --hidden-size 4096 --ffn-hidden-size 14336 | m.hidden_size: 4096, m.intermediate_size: null, m.multiple_of: 1024, m.ffn_dim_multiplier: 1.3 | m.hidden_size: 4096, m.intermediate_size: null, m.multiple_of: 1024 |
intermediate_size | --hidden-size 96 --ffn-hidden-size OUT | m.hidden_size: 96, m.intermediate_size: 256 | m.hidden_size: 96 |
num_heads | --num-attention-heads 8 | m.num_heads: 8 | m.num_heads: 4 |
num_heads | --num-attention-heads 8 | m.num_attention_heads: 8 |  | new
n_kv_heads | --group-query-attention --num-query-groups 2 | m.n_kv_heads: 2 | m.n_kv_heads: 4 |
n_kv_heads | --num-query-groups 2 |  | m.n_kv_heads: 2 |
n_kv_heads | --group-query-attention --num-query-groups 2 | m.num_key_value_heads: 2 |  | new
head_dim | --kv-channels 32 | m.head_dim: 32 | m.head_dim: 16 | new
head_dim | --kv-channels OUT --hidden-size 128 | m.hidden_size: 128 | m.hidden_size: 64 |
sliding_window | --window-size 32 | m.sliding_window: 32 | m.sliding_window: 64 | new
sliding_window |  | m.sliding_window: 32, m.use_sliding_window: false | m.sliding_window: 32 | new
normalization |  |  | m.normalization: LayerNorm |
rms_norm_eps | --norm-epsilon 1e-6 | m.rms_norm_eps: 1.0e-6 | m.rms_norm_eps: 1.0e-5 |
rms_norm_eps | --norm-epsilon 1e-6 | m.rms_norm_eps: 1e-6 | m.rms_norm_eps: 2e-6 |
zero_centred_norm_weights |  |  | FLAGS: '--apply-layernorm-1p' |
residual_after_the_norm |  |  | m.apply_residual_connection_post_layernorm: true | new
activation_function |  | m.hidden_act: silu | m.hidden_act: gelu | new
activation_function |  | m.hidden_act: swiglu, m.gated_linear_unit: false | m.hidden_act: silu, m.gated_linear_unit: false | new
activation_function | --swiglu OUT | m.hidden_act: gelu, m.gated_linear_unit: false | m.hidden_act: silu | new
activation_function | --swiglu OUT --openai-gelu | m.hidden_act: gelu_new, m.gated_linear_unit: false | m.hidden_act: gelu, m.gated_linear_unit: false | new
activation_function | --swiglu OUT --squared-relu | m.hidden_act: relu2, m.gated_linear_unit: false | m.hidden_act: relu, m.gated_linear_unit: false | new
gated_linear_unit |  |  | m.gated_linear_unit: false | new
bias_of_linear_layers |  | m.add_bias_linear: false | m.add_bias_linear: true | new
bias_of_linear_layers | --disable-bias-linear OUT | m.add_bias_linear: true |  | new
bias_of_queries_keys_and_values | --add-qkv-bias | m.qkv_has_bias: true | m.qkv_has_bias: false |
bias_of_queries_keys_and_values | --add-qkv-bias | m.attention_bias: true |  | new
norm_of_queries_and_keys | --qk-layernorm | m.qk_layernorm: true | m.qk_layernorm: false | new
tied_embeddings |  | m.tie_word_embeddings: false | m.tie_word_embeddings: true |
tied_embeddings | --untie-embeddings-and-output-weights OUT | m.tie_word_embeddings: true |  | new
vocab_size | --vocab-size 512 | m.vocab_size: 512 | m.vocab_size: 500 |
rows_of_the_embedding | --make-vocab-size-divisible-by 128 --vocab-size 250 | m.vocab_size: 256 | m.vocab_size: 250 |
rows_of_the_embedding | --make-vocab-size-divisible-by 128 --tensor-model-parallel-size 2 | m.vocab_size: 256 | m.vocab_size: 128 |
rows_of_the_embedding | --make-vocab-size-divisible-by 128 --vocab-size 250 --no-pad-vocab-size | m.vocab_size: 250 | m.vocab_size: 256 |
max_position_embeddings | --max-position-embeddings 256 | m.max_position_embedding: 256 | m.max_position_embedding: 512 |
rope_scaling |  |  | m.extend_method: YARN |
position_embedding_type | --position-embedding-type OUT --use-rotary-position-embeddings |  | m.position_embedding_type: none | new
no_position_embedding | --no-position-embedding | m.no_position_embedding: true |  | new
rotary_base | --rotary-base 500000 | m.theta: 500000.0 | m.theta: 10000.0 |
rotary_base | --rotary-base 1000000 | m.rope_theta: 1000000 | m.rope_theta: 10000 | new
rotary_percent | --rotary-percent 0.5 | m.rotary_percent: 0.5 |  | new
rotary_interleaved | --rotary-interleaved | m.rotary_interleaved: true |  | new
rotary_seq_len_interpolation_factor | --rotary-seq-len-interpolation-factor 4 | m.rotary_seq_len_interpolation_factor: 4 | m.rotary_seq_len_interpolation_factor: 2 |
rope_scaling | --use-rope-scaling | m.rope_scaling.rope_type: llama3, m.rope_scaling.factor: 8.0 | m.rope_scaling.rope_type: llama3, m.rope_scaling.factor: 4.0 | new
rope_scaling | --use-rope-scaling --rope-scaling-factor 4 | m.max_position_embedding: 16384, m.extend_method: LLAMA3, m.scaling_factor.factor: 4.0 | m.max_position_embedding: 16384, m.extend_method: PI, m.scaling_factor: 4.0 |
mrope_section |  |  | FLAGS: '--mrope-section 16 24 24' |
init_method_std | --init-method-std 0.01 | m.init_method_std: 0.01 | m.init_method_std: 0.02 |
initial_scale_of_output_projections |  |  | use_legacy: true, m.type: LlamaConfig | new
initial_scale_of_output_projections |  |  | FLAGS: '--hybrid-layer-pattern MEME' | new
attention_dropout |  | m.attention_dropout: 0.0 | m.attention_dropout: 0.1 |
hidden_dropout |  | m.hidden_dropout: 0.0 | m.hidden_dropout: null | new
multi_latent_attention |  |  |  | latent
multi_latent_attention |  |  | FLAGS: '--multi-latent-attention' | new
q_lora_rank |  |  | m.q_lora_rank: 48 | latent
kv_lora_rank |  |  | m.kv_lora_rank: 48 | latent
qk_head_dim | --qk-head-dim 96 | m.qk_nope_head_dim: 96 | m.qk_nope_head_dim: 80 | latent
qk_pos_emb_head_dim | --qk-pos-emb-head-dim 16 | m.qk_rope_head_dim: 16 | m.qk_rope_head_dim: 8 | latent
v_head_dim | --v-head-dim 48 | m.v_head_dim: 48 | m.v_head_dim: 32 | latent
rotary_scaling_factor | --rotary-scaling-factor 40 | m.rope_scaling.factor: 40 | m.rope_scaling.factor: 4 | latent
original_max_position_embeddings |  |  | m.rope_scaling.original_max_position_embeddings: 8192 | latent
mscale |  |  | m.rope_scaling.mscale: 0.5 | latent
mscale_all_dim |  |  | m.rope_scaling.mscale_all_dim: 0.5 | latent
beta_fast |  | m.rope_scaling.beta_fast: 32 | m.rope_scaling.beta_fast: 16 | latent
beta_slow |  | m.rope_scaling.beta_slow: 1 | m.rope_scaling.beta_slow: 2 | latent
stretch_of_latent_attentions_scores | --rotary-scaling-factor 40 | m.rope_scaling.factor: 40 | m.rope_scaling.factor: 40, m.rope_scaling.mscale: 0.5 | latent
fused_projections |  | m.qkv_concat: true | m.qkv_concat: false |
use_legacy | --use-mcore-models |  | use_legacy: true, m.type: LlamaConfig | new
# experts
expert_num |  | m.num_experts: 8 | m.num_experts: 16 | experts
expert_num | --num-experts 4 | moe_config.expert_num: 4 | moe_config.expert_num: 8 |
expert_num |  | moe_config.expert_num: 1 | moe_config.expert_num: 2 |
layers_with_experts | --num-layers 4 --moe-layer-freq '[0]+[1]*3' | m.num_hidden_layers: 4 | m.num_hidden_layers: 4, m.first_k_dense_replace: 2 | latent
layers_with_experts | --num-layers 4 --moe-layer-freq '([0]+[1])*2' | m.num_hidden_layers: 4, m.first_k_dense_replace: 0, m.moe_layer_freq: [0, 1, 0, 1] | m.num_hidden_layers: 4 | latent
num_experts_chosen | --moe-router-topk 4 | m.num_experts_per_tok: 4 |  | experts
num_experts_chosen | --num-experts 4 --moe-router-topk 2 | moe_config.expert_num: 4, moe_config.num_experts_chosen: 2 | moe_config.expert_num: 4 |
size_of_an_expert |  |  | m.moe_intermediate_size: 64 | experts
size_of_the_shared_experts | --moe-shared-expert-intermediate-size 192 | m.n_shared_experts: 2 | m.n_shared_experts: 1 | latent
use_shared_expert_gating | --moe-shared-expert-gate | m.use_shared_expert_gating: true |  | experts
score_function |  | m.moe_router_score_function: sigmoid | m.moe_router_score_function: softmax | latent
score_function | --num-experts 4 --moe-router-score-function sigmoid | moe_config.expert_num: 4, moe_config.use_gating_sigmoid: true | moe_config.expert_num: 4 |
weights_of_the_chosen_add_up_to_one | --moe-router-pre-softmax | m.norm_topk_prob: false |  | experts
groups_of_experts | --moe-router-num-groups 4 | m.n_group: 4 | m.n_group: 2 | latent
groups_chosen | --moe-router-group-topk 2 | m.topk_group: 2 | m.topk_group: 4 | latent
routed_scaling_factor | --moe-router-topk-scaling-factor 2.5 | m.routed_scaling_factor: 2.5 |  | experts
bias_of_the_experts | --moe-router-enable-expert-bias | m.moe_router_enable_expert_bias: true |  | latent
that_bias_is_moved | --moe-router-enable-expert-bias | m.moe_router_enable_expert_bias: true, callbacks: [{type: TopkBiasBalanceCallback}] | m.moe_router_enable_expert_bias: true, callbacks: [{type: MFLossMonitor}] | latent
update_rate_of_that_bias | --moe-router-enable-expert-bias --moe-router-bias-update-rate 1e-4 | m.moe_router_enable_expert_bias: true, m.moe_router_bias_update_rate: 1.0e-4 | m.moe_router_enable_expert_bias: true | latent
aux_loss_factor | --moe-aux-loss-coeff 0.01 | m.moe_aux_loss_coeff: 0.01 |  | experts
aux_loss_factor | --num-experts 4 --moe-aux-loss-coeff 0.01 | m.type: DeepseekV3Config, moe_config.expert_num: 4, moe_config.aux_loss_types: [expert], moe_config.aux_loss_factors: [0.01] | m.type: DeepseekV3Config, moe_config.expert_num: 4 |
moe_device_level_aux_loss_coeff | --num-experts 4 --moe-device-level-aux-loss-coeff 0.05 | m.type: DeepseekV3Config, moe_config.expert_num: 4, moe_config.aux_loss_types: [expert, device], moe_config.aux_loss_factors: [0.01, 0.05] | moe_config.expert_num: 4 |
moe_comm_aux_loss_coeff | --num-experts 4 --moe-comm-aux-loss-coeff 0.02 | m.type: DeepseekV3Config, moe_config.expert_num: 4, moe_config.aux_loss_types: [comm], moe_config.aux_loss_factors: [0.02] | moe_config.expert_num: 4 |
load_balancing_type | --moe-aux-loss-coeff 0.01 --moe-router-load-balancing-type seq_aux_loss | m.moe_aux_loss_coeff: 0.01, m.moe_router_load_balancing_type: seq_aux_loss | m.moe_aux_loss_coeff: 0.01, m.moe_router_load_balancing_type: gbs_aux_loss | experts
load_balancing_type | --moe-aux-loss-coeff 0.01 --micro-batch-size 4 --global-batch-size 4 | m.moe_aux_loss_coeff: 0.01, runner_config.batch_size: 4 | m.moe_aux_loss_coeff: 0.01, runner_config.batch_size: 2 | experts
load_balancing_type | --moe-aux-loss-coeff 0.01 --moe-router-load-balancing-type global_aux_loss | m.moe_aux_loss_coeff: 0.01, m.moe_router_load_balancing_type: gbs_aux_loss | m.moe_aux_loss_coeff: 0.01 | experts
choices_that_this_loss_counts | --moe-aux-loss-coeff 0.01 | m.moe_aux_loss_coeff: 0.01 | m.moe_aux_loss_coeff: 0.01, m.moe_router_enable_expert_bias: true | latent
groups_that_are_not_chosen | --moe-router-num-groups 4 --moe-router-group-topk 2 | m.n_group: 4, m.topk_group: 2 | m.n_group: 4, m.topk_group: 2, m.moe_router_enable_expert_bias: true | latent
z-loss | --moe-z-loss-coeff 0.001 | m.moe_z_loss_coeff: 0.001 |  | experts
capacity_factor | --num-experts 4 --moe-expert-capacity-factor 1.5 | moe_config.expert_num: 4, moe_config.capacity_factor: 1.5 | moe_config.expert_num: 4 |
capacity_factor | --num-experts 4 | moe_config.expert_num: 4, moe_config.capacity_factor: -1 | moe_config.expert_num: 4 |
tokens_that_are_dropped | --num-experts 4 --moe-expert-capacity-factor 1.1 --moe-token-drop-policy position | moe_config.expert_num: 4, moe_config.enable_sdrop: true | moe_config.expert_num: 4 |
experts_padded_to_their_capacity | --num-experts 4 --moe-expert-capacity-factor 1.1 --moe-pad-expert-input-to-capacity | moe_config.expert_num: 4, moe_config.enable_sdrop: true | moe_config.expert_num: 4 |
router_dense_type |  | m.moe_router_dtype: float32 | m.moe_router_dtype: bfloat16 | experts
jitter_of_the_input | --moe-input-jitter-eps 0.01 | m.moe_input_jitter_eps: 0.01 |  | experts
routing_policy |  | m.routing_policy: TopkRouterV2 |  | experts
use_fused_ops_topkrouter | --moe-router-fusion | m.use_fused_ops_topkrouter: true |  | experts
grouped_matrix_product_of_experts | --moe-grouped-gemm | m.moe_grouped_gemm: true |  | experts
token_dispatcher | --moe-token-dispatcher-type alltoall |  | m.moe_token_dispatcher_type: alltoall_deredundency | experts
fused_permutation | --moe-permute-fusion | m.moe_permute_fusion: true |  | experts
overlap_of_the_shared_experts | --moe-shared-expert-overlap | m.moe_shared_expert_overlap: true |  | experts
upcycling |  |  | FLAGS: '--moe-use-upcycling' | experts
extended_tensor_parallelism_of_experts |  |  | FLAGS: '--moe-extended-tp' | experts
log_of_every_layer | --moe-per-layer-logging | m.moe_per_layer_logging: true |  | experts
mtp_num_layers | --mtp-num-layers 1 | m.num_nextn_predict_layers: 1 |  | latent
mtp_loss_scaling_factor | --mtp-num-layers 1 --mtp-loss-scaling-factor 0.3 | m.num_nextn_predict_layers: 1, m.mtp_loss_factor: 0.3 | m.num_nextn_predict_layers: 1, m.mtp_loss_factor: 0.1 | latent
tokens_that_the_loss_of_further_tokens_is_divided_by | --mtp-num-layers 1 | m.num_nextn_predict_layers: 1 | m.num_nextn_predict_layers: 1, calculate_per_token_loss: true | latent
loss_that_is_printed | --mtp-num-layers 1 | m.num_nextn_predict_layers: 1 |  | latent
# optimizer
optimizer | --optimizer adam | optimizer.type: FusedAdamW | optimizer.type: Adam |
optimizer |  |  | optimizer.type: FP32StateAdamWeightDecay |
beta1 | --adam-beta1 0.8 | optimizer.betas: [0.8, 0.95] | optimizer.betas: [0.9, 0.95] |
beta2 | --adam-beta2 0.99 | optimizer.betas: null, optimizer.beta1: 0.9, optimizer.beta2: 0.99 | optimizer.betas: null |
eps | --adam-eps 1e-6 | optimizer.eps: 1.0e-6 | optimizer.eps: 1.0e-8 |
weight_decay | --weight-decay 0.01 | optimizer.weight_decay: 0.01 | optimizer.weight_decay: null |
weights_that_decay |  |  | FLAGS: '--apply-wd-to-qk-layernorm' |
start_weight_decay |  |  | FLAGS: '--weight-decay-incr-style linear --start-weight-decay 0.01 --end-weight-decay 0.1' |
end_weight_decay |  |  | FLAGS: '--weight-decay-incr-style cosine --start-weight-decay 0.01 --end-weight-decay 0.1' |
weight_decay_incr_style |  |  | FLAGS: '--weight-decay-incr-style linear --start-weight-decay 0.01 --end-weight-decay 0.1' |
clip_grad |  |  | runner_wrapper.use_clip_grad: false |
clip_grad | --clip-grad 0.5 | runner_wrapper.max_grad_norm: 0.5 |  |
clip_grad | --clip-grad 0.0 | runner_wrapper.use_clip_grad: null |  |
lr | --lr 1e-4 | lr_schedule.learning_rate: 1.0e-4 | lr_schedule.learning_rate: 1.0e-3 |
min_lr | --lr-decay-style cosine --min-lr 1e-5 | lr_schedule.type: CosineWithWarmUpLR, lr_schedule.lr_end: 1.0e-5 | lr_schedule.type: CosineWithWarmUpLR |
lr_decay_style | --lr-decay-style cosine | lr_schedule.type: CosineWithWarmUpLR | lr_schedule.type: LinearWithWarmUpLR |
lr_decay_iters | --lr-decay-style linear --lr-decay-iters 20 | lr_schedule.type: LinearWithWarmUpLR, lr_schedule.total_steps: 20 | lr_schedule.type: LinearWithWarmUpLR |
lr_decay_samples |  |  | FLAGS: '--train-iters OUT --train-samples 10 --lr-decay-samples 5 --lr-decay-style cosine' |
lr_warmup_iters | --lr-warmup-iters 5 | lr_schedule.warmup_steps: 5 | lr_schedule.warmup_steps: 2 |
lr_warmup_fraction | --lr-warmup-fraction 0.5 | lr_schedule.warmup_ratio: 0.5 | lr_schedule.warmup_ratio: 0.2 |
lr_warmup_init | --lr-warmup-iters 5 --lr-warmup-init 1e-5 | lr_schedule.warmup_steps: 5, lr_schedule.warmup_lr_init: 1.0e-5 | lr_schedule.warmup_steps: 5 |
rates_of_their_own_for_the_embedding_and_output |  |  | FLAGS: '--decoupled-lr 1e-4' |
minimum_of_the_embeddings_own_rate |  |  | FLAGS: '--decoupled-min-lr 1e-5' |
global_batch_size | --global-batch-size 8 | runner_config.batch_size: 8 | runner_config.batch_size: 4 |
global_batch_size | --global-batch-size 64 | use_parallel: true, parallel_config.data_parallel: 2, parallel_config.pipeline_stage: 2, parallel_config.micro_batch_num: 4, runner_config.batch_size: 8 | use_parallel: true, parallel_config.data_parallel: 2, parallel_config.micro_batch_num: 4, runner_config.batch_size: 8 |
global_batch_size | --global-batch-size 32 | use_parallel: true, parallel_config.data_parallel: 2, runner_config.gradient_accumulation_steps: 4, micro_batch_interleave_num: 2, runner_config.batch_size: 2 | use_parallel: true, parallel_config.data_parallel: 2, runner_config.gradient_accumulation_steps: 4, runner_config.batch_size: 2 |
# precision
compute_dtype |  | m.compute_dtype: bf16 | m.compute_dtype: float16 |
compute_dtype | --bf16 OUT | m.compute_dtype: float32 | m.compute_dtype: float16 |
type_of_the_main_weights |  | m.param_init_type: fp32 | m.param_init_type: bfloat16 |
type_of_the_gradients_reduction |  |  | m.param_init_type: bfloat16 |
type_of_the_gradients_reduction | --grad-reduce-in-bf16 | m.param_init_type: bfloat16 |  |
type_of_the_gradients_reduction | --bf16 OUT --fp16 | m.param_init_type: float16 |  |
layernorm_compute_type |  | m.layernorm_compute_type: float32 | m.layernorm_compute_type: bfloat16 |
softmax_compute_type |  | m.softmax_compute_type: float32 | m.use_flash_attention: false, m.softmax_compute_type: bfloat16 |
softmax_compute_type | --transformer-impl local --no-masked-softmax-fusion | m.use_flash_attention: false, m.softmax_compute_type: bfloat16 |  |
rotary_dtype |  | m.rotary_dtype: float32 |  |
type_of_the_embedding |  | m.embedding_init_type: float32 | m.embedding_init_type: bfloat16 |
type_of_the_router | --num-experts 4 | moe_config.expert_num: 4 | moe_config.expert_num: 4, moe_config.router_dense_type: bfloat16 |
type_of_the_norms |  | m.layernorm_compute_type: float32 | m.layernorm_compute_type: bfloat16 |
type_of_the_output_layer |  |  | m.compute_dtype: float16 |
type_in_which_a_bias_is_added | --disable-bias-linear OUT | m.add_bias_linear: true | m.add_bias_linear: true, m.compute_dtype: float16 | new
type_in_which_the_residual_is_added | --fp32-residual-connection | m.fp32_residual_connection: true |  | new
type_in_which_the_residual_is_added | --fp32-residual-connection | m.residual_dtype: float32 |  |
types_that_the_built_layers_compute_in |  |  |  |
type_of_the_cross_entropy |  |  | FLAGS: '--fp16-lm-cross-entropy' |
fp8 |  |  | FLAGS: '--fp8-format hybrid' |
first_last_layers_bf16 |  |  | FLAGS: '--first-last-layers-bf16' |
use_precision_aware_optimizer |  |  | FLAGS: '--use-precision-aware-optimizer' |
exp_avg_dtype |  |  | FLAGS: '--exp-avg-dtype bf16' |
exp_avg_sq_dtype |  |  | FLAGS: '--exp-avg-sq-dtype fp16' |
loss_scale |  |  | runner_wrapper.scale_sense: 1024.0 |
loss_scale | --bf16 OUT --fp16 --initial-loss-scale 65536 | runner_wrapper.scale_sense: null, runner_wrapper.scale_sense.type: DynamicLossScaleUpdateCell, runner_wrapper.scale_sense.loss_scale_value: 65536 |  |
min_loss_scale | --bf16 OUT --fp16 |  | FLAGS: '--bf16 OUT --fp16 --min-loss-scale 128' |
loss_scale_window | --bf16 OUT --fp16 --loss-scale-window 100 | runner_wrapper.scale_sense: null, runner_wrapper.scale_sense.type: DynamicLossScaleUpdateCell, runner_wrapper.scale_sense.scale_window: 100 |  |
hysteresis | --bf16 OUT --fp16 --hysteresis 1 |  | FLAGS: '--bf16 OUT --fp16' |
high_precision_of_operators |  | context.ascend_config.precision_mode: must_keep_origin_dtype |  |
# parallel layout
data_parallel |  | parallel_config.data_parallel: 1 | parallel_config.data_parallel: 2 |
model_parallel | --tensor-model-parallel-size 2 | parallel_config.model_parallel: 2 |  |
pipeline_stage | --pipeline-model-parallel-size 2 | parallel_config.pipeline_stage: 2 |  |
use_seq_parallel | --sequence-parallel | parallel_config.use_seq_parallel: true |  |
context_parallel | --context-parallel-size 2 | parallel_config.context_parallel: 2 |  |
expert_parallel | --expert-model-parallel-size 2 | parallel_config.expert_parallel: 2 |  | experts
expert_model_parallel | --expert-tensor-parallel-size 2 | m.expert_model_parallel: 2 |  | experts
enable_parallel_optimizer | --use-distributed-optimizer | parallel.enable_parallel_optimizer: true |  |
micro_batch_interleave_num |  | micro_batch_interleave_num: 2 |  |
micro_batch_size | --micro-batch-size 2 --global-batch-size 2 | runner_config.batch_size: 2 |  |
micro_batches_of_a_step | --global-batch-size 4 --data-parallel-size 1 | use_parallel: true, runner_config.gradient_accumulation_steps: 4 |  |
gradients_are_averaged_over_ranks |  | use_parallel: true, parallel.parallel_mode: 0, device_num: 2, parallel.gradients_mean: true | use_parallel: true, parallel.parallel_mode: 0, device_num: 2 |
loss_of_every_token_alike | --calculate-per-token-loss | calculate_per_token_loss: true |  |
# data
seq_length | --seq-length 256 --max-position-embeddings 256 | m.seq_length: 256 |  |
seq_length |  | D.seq_length: 128 | D.seq_length: 256 |
decoder_seq_length |  |  | FLAGS: '--decoder-seq-length 64' |
retriever_seq_length |  |  | FLAGS: '--retriever-seq-length 64' |
data_path |  |  | D.data_path: ['1', /mnt/other_text_document] |
data_path | --data-path 0.3 /a/one 0.7 /b/two | D.data_path: ['0.3', /mnt/one, '0.7', /mnt/two] | D.data_path: ['0.3', /mnt/two, '0.7', /mnt/one] |
split | --split 98,2,0 | D.split: '98, 2, 0' |  |
seed_of_the_data | --seed 7 | D.seed: 7 |  |
shuffle |  |  | train_dataset.data_loader.shuffle: true |
shuffle |  | D.split: null, train_dataset.data_loader.type: MindDataset, train_dataset.data_loader.shuffle: false | train_dataset.data_loader.type: MindDataset |
reset_position_ids | --reset-position-ids | D.reset_position_ids: true |  |
reset_attention_mask | --reset-attention-mask | D.create_compressed_eod_mask: true |  |
reset_attention_mask | --reset-attention-mask | D.create_compressed_eod_mask: true |  | new
reset_attention_mask | --reset-attention-mask | D.create_compressed_eod_mask: true | train_dataset.input_columns: [input_ids, labels, loss_mask, position_ids] |
eod_mask_loss | --eod-mask-loss | D.eod_mask_loss: true |  |
vocab_file | --vocab-file /a/vocab.json | processor.tokenizer.vocab_file: /b/vocab.json | processor.tokenizer.vocab_file: /b/other.json |
merge_file | --merge-file /a/merges.txt | processor.tokenizer.merges_file: /b/merges.txt |  |
tokenizer_type |  |  | processor.tokenizer.type: LlamaTokenizer |
bos_token_id |  | m.bos_token_id: 1 |  |
eos_token_id | --null-tokenizer-eod-id 2 | m.eos_token_id: 2 | m.eos_token_id: 3 |
pad_token_id |  | m.pad_token_id: -100 | m.pad_token_id: 5 |
pad_token_id |  | m.pad_token_id: -1 | m.pad_token_id: 5 | new
padding_of_the_data | --tokenizer-type NullTokenizer --null-tokenizer-pad-id 0 | D.pad: 0 | D.pad: 5 |
ignore_token_id |  | m.ignore_token_id: -100 |  |
template_of_training_and_inference |  |  |  |
num_workers | --num-workers 4 | train_dataset.num_parallel_workers: 4 | train_dataset.num_parallel_workers: 8 |
num_dataset_builder_threads | --num-dataset-builder-threads 4 | D.num_dataset_builder_threads: 4 | D.num_dataset_builder_threads: 8 |
data_cache_path | --data-cache-path /cache | D.path_to_cache: /cache | D.path_to_cache: /other |
valid_data_path | --valid-data-path /v | eval_dataset.data_loader.dataset_dir: /v | eval_dataset.data_loader.dataset_dir: /w |
test_data_path | --test-data-path /t |  |  |
# kernels and fusions
use_flash_attention |  | m.use_flash_attention: true | m.use_flash_attention: false |
use_flash_attention | --attention-backend unfused | m.use_flash_attention: false |  |
fused_masked_softmax | --no-masked-softmax-fusion |  |  |
fused_bias_and_gelu | --no-bias-gelu-fusion |  |  |
fused_bias_and_swiglu | --no-bias-swiglu-fusion | m.bias_swiglu_fusion: false | m.bias_swiglu_fusion: true | new
fused_bias_and_dropout | --no-bias-dropout-fusion |  |  |
fused_rotary_embedding | --no-rope-fusion |  | m.apply_rope_fusion: true | new
fused_norm | --no-persist-layer-norm | m.fused_rms_norm: false |  |
fused_cross_entropy | --cross-entropy-loss-fusion |  |  |
gradient_accumulation_fusion | --no-gradient-accumulation-fusion |  |  |
overlap_of_the_gradients_reduction |  |  | FLAGS: '--overlap-grad-reduce' |
compressed_attention_mask |  | m.use_attn_mask_compression: true |  |
recompute-activations | --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 | recompute_config.recompute: true |  |
recompute-activations | --recompute-activations | recompute_config.select_recompute: true | recompute_config.recompute: true |
distribute-saved-activations | --distribute-saved-activations |  |  |
checkpoint-activations | --checkpoint-activations |  |  |
moe-layer-recompute | --moe-layer-recompute |  |  | experts
# environment: what a record alone can tell is in test_rows.py
deterministic_algorithms | --deterministic-mode | train_precision_sync: true |  |
seed | --seed 7 | seed: 7 | seed: 8 |
enable_graph_kernel |  | context.enable_graph_kernel: false |  |
jit_level |  | context.jit_config.jit_level: O0 |  |
# training control
train-iters | --train-iters 20 | train_dataset.data_loader.sizes: [20, 0, 0] |  |
train-samples | --train-iters OUT --train-samples 10 | train_dataset.data_loader.sizes: [10, 0, 0] | train_dataset.data_loader.sizes: [20, 0, 0] |
log-interval | --log-interval 1 | callbacks: [{type: MFLossMonitor, per_print_times: 1}] | callbacks: [{type: MFLossMonitor, per_print_times: 5}] |
eval-iters | --eval-iters 3 |  |  |
eval-interval | --eval-interval 3 |  |  |
save | --save /out | output_dir: /out | output_dir: /other |
save-interval | --save-interval 5 | callbacks: [{type: CheckpointMonitor, save_checkpoint_steps: 5}] | callbacks: [{type: CheckpointMonitor, save_checkpoint_steps: 6}] |
non-persistent-save-interval | --non-persistent-save-interval 3 |  |  |
non-persistent-ckpt-type | --non-persistent-ckpt-type local |  |  |
pretrained-checkpoint | --pretrained-checkpoint /p |  |  |
ckpt-step | --ckpt-step 3 | resume_training: 3 |  |
load | --load /ckpt | load_checkpoint: /ckpt | load_checkpoint: /other |
load | --load /ckpt | load_checkpoint: null, run_mode: finetune, auto_trans_ckpt: true, m.checkpoint_name_or_path: /ckpt | load_checkpoint: null, run_mode: finetune, m.checkpoint_name_or_path: /ckpt |
exit-interval | --exit-interval 5 | callbacks: [{type: TrainCallBack, stop_step: 5}] |  |
exit-duration-in-mins | --exit-duration-in-mins 10 |  |  |
"""
"""``FLAGS`` in the last text are flags that make Megatron the odd one, where MindFormers cannot be told."""
EXERCISES = tuple(exercises(TABLE))


def row(found: Checklist, name: str) -> Checked:
    return next(checked for checked in found.checked if checked.row.id == name)


def to_change(checked: Checked) -> str:
    """What a reader is told to change, in English; empty where nothing is."""
    return rendered(checked.change.words) if checked.change is not None else ""
