"""Layers for multi-token prediction (DeepSeek-V3 Technical Report, 2.2), which ``transformers`` leaves out, made of its parts."""

from __future__ import annotations

from typing import Any

import torch


def predicting_layer(configuration: Any, number: int) -> Any:
    """Build a layer for multi-token prediction, with the names of DeepSeek's checkpoint."""
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3DecoderLayer, DeepseekV3RMSNorm

    layer = DeepseekV3DecoderLayer(configuration, number)
    layer.enorm, layer.hnorm, last = (DeepseekV3RMSNorm(configuration.hidden_size, configuration.rms_norm_eps) for _ in range(3))
    layer.eh_proj = torch.nn.Linear(2 * configuration.hidden_size, configuration.hidden_size, bias=False)
    layer.shared_head = torch.nn.ModuleDict({"norm": last})
    return layer


def joined(layer: Any, embedded: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """Return the input of the layer's block: each hidden state and the embedding of the next token, projected together."""
    projected: torch.Tensor = layer.eh_proj(torch.cat([layer.enorm(embedded), layer.hnorm(hidden)], dim=-1))
    return projected
