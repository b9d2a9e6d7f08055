"""MiniMax-M2 in plain torch, after the modelling code of its checkpoint: transformers 4.57 has no class of it.

Importing the module makes it known to transformers under ``model_type`` minimax_m2, with the names of the checkpoint's tensors.
"""

from types import SimpleNamespace
from typing import Any, ClassVar

import torch
import transformers
from torch import Tensor, nn

Config = Any


class MiniMaxM2Config(transformers.PretrainedConfig):
    model_type = "minimax_m2"


class Attention(nn.Module):
    """Grouped queries; norms over all heads before the rotation, which turns the first ``rotary_dim`` elements of each head."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        queries, keys = (count * config.head_dim for count in (config.num_attention_heads, config.num_key_value_heads))
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(config.hidden_size, width, bias=False) for width in (queries, keys, keys))
        self.o_proj = nn.Linear(queries, config.hidden_size, bias=False)
        self.q_norm, self.k_norm = (nn.RMSNorm(width, eps=config.rms_norm_eps) for width in (queries, keys))

    def forward(self, hidden: Tensor) -> Tensor:
        rows, length, size = *hidden.shape[:2], self.config.head_dim
        projected = self.q_norm(self.q_proj(hidden)), self.k_norm(self.k_proj(hidden)), self.v_proj(hidden)
        query, key, value = (one.view(rows, length, -1, size).transpose(1, 2) for one in projected)
        key, value = (one.repeat_interleave(self.config.num_attention_heads // one.shape[1], 1) for one in (key, value))
        scores = self.turned(query) @ self.turned(key).transpose(2, 3) / size**0.5
        scores = scores + torch.full((length, length), float("-inf")).triu(1)
        return self.o_proj((scores.softmax(-1) @ value).transpose(1, 2).reshape(rows, length, -1))

    def turned(self, heads: Tensor) -> Tensor:
        turned, half = self.config.rotary_dim, self.config.rotary_dim // 2
        frequencies = self.config.rope_theta ** (-torch.arange(0, turned, 2) / turned)
        angles = torch.outer(torch.arange(heads.shape[2]).float(), frequencies)
        one, other, rest = heads[..., :half], heads[..., half:turned], heads[..., turned:]
        cosine, sine = angles.cos(), angles.sin()
        return torch.cat([one * cosine - other * sine, other * cosine + one * sine, rest], -1)


class Expert(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.w1, self.w3 = (nn.Linear(config.hidden_size, config.intermediate_size, bias=False) for _ in range(2))
        self.w2 = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.w2(nn.functional.silu(self.w1(tokens)) * self.w3(tokens))


class SparseMoe(nn.Module):
    """Experts chosen by sigmoid and bias, and weighed by the sigmoid alone."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.chosen = config.num_experts_per_tok
        self.gate = nn.Linear(config.hidden_size, config.num_local_experts, bias=False)
        self.experts = nn.ModuleList(Expert(config) for _ in range(config.num_local_experts))
        self.register_buffer("e_score_correction_bias", torch.zeros(config.num_local_experts))

    def forward(self, hidden: Tensor) -> Tensor:
        scores = self.gate(hidden).sigmoid()
        chosen = (scores + self.e_score_correction_bias).topk(self.chosen).indices
        weights = torch.zeros_like(scores).scatter(-1, chosen, scores.gather(-1, chosen))
        weights = weights / weights.sum(-1, keepdim=True)
        return sum(weights[..., index, None] * expert(hidden) for index, expert in enumerate(self.experts))


class Layer(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = (nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps) for _ in range(2))
        self.self_attn, self.block_sparse_moe = Attention(config), SparseMoe(config)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.self_attn(self.input_layernorm(hidden))
        return hidden + self.block_sparse_moe(self.post_attention_layernorm(hidden))


class Decoder(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(self, tokens: Tensor) -> SimpleNamespace:
        hidden = self.embed_tokens(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return SimpleNamespace(last_hidden_state=self.norm(hidden))


class MiniMaxM2ForCausalLM(transformers.PreTrainedModel):
    config_class = MiniMaxM2Config
    _tied_weights_keys: ClassVar = ["lm_head.weight"]

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.model = Decoder(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.model.embed_tokens

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head


transformers.AutoConfig.register(MiniMaxM2Config.model_type, MiniMaxM2Config, exist_ok=True)
transformers.AutoModelForCausalLM.register(MiniMaxM2Config, MiniMaxM2ForCausalLM, exist_ok=True)
