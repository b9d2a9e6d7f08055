"""Layers of a MiniMax-M2 for Megatron-LM's ``--spec minimax_m2 layers``, with this folder on PYTHONPATH.

It normalises queries and keys over all heads, where Megatron-LM does so head by head. One tensor-parallel rank.
"""

from __future__ import annotations

import torch
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec


class NormOverHeads(torch.nn.RMSNorm):
    """The root mean square over ``[..., heads, size]``, with a weight for each element."""

    def forward(self, heads):
        return super().forward(heads.flatten(-2)).view_as(heads)


class QueryNorm(NormOverHeads):
    def __init__(self, hidden_size, config, eps):
        super().__init__(hidden_size * config.num_attention_heads, eps=eps)


class KeyNorm(NormOverHeads):
    def __init__(self, hidden_size, config, eps):
        super().__init__(hidden_size * config.num_query_groups, eps=eps)


def layers(config):
    """The local layers of a model with experts, with the norms above."""
    transformer = config.transformer
    spec = get_gpt_layer_local_spec(transformer.num_moe_experts, qk_layernorm=True, normalization=transformer.normalization)
    attention = spec.submodules.self_attention.submodules
    attention.q_layernorm, attention.k_layernorm = QueryNorm, KeyNorm
    return spec
