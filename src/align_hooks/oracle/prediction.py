"""Layers for multi-token prediction, which ``transformers`` leaves out: of its own parts, under the names of DeepSeek's checkpoint
(DeepSeek-V3 Technical Report, 2.2)."""

from __future__ import annotations

from typing import Any

import torch


def predicting_layer(configuration: Any, number: int) -> Any:
    """A layer for multi-token prediction: a decoder's layer, the norms of what it joins, the projection of both, and the last norm."""
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3DecoderLayer, DeepseekV3RMSNorm

    layer = DeepseekV3DecoderLayer(configuration, number)
    layer.enorm, layer.hnorm, last = (DeepseekV3RMSNorm(configuration.hidden_size, configuration.rms_norm_eps) for _ in range(3))
    layer.eh_proj = torch.nn.Linear(2 * configuration.hidden_size, configuration.hidden_size, bias=False)
    layer.shared_head = torch.nn.ModuleDict({"norm": last})
    return layer


def joined(layer: Any, embedded: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """What the layer's block is given: each token's hidden state beside the embedding of the token behind it, projected."""
    both: torch.Tensor = layer.eh_proj(torch.cat([layer.enorm(embedded), layer.hnorm(hidden)], dim=-1))
    return both
