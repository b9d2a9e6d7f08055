"""The loss term that balances experts, from router logits: Switch Transformers, equations 4 to 6, as Megatron-LM weighs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from align_hooks.oracle.inputs import Objective


def balance(objective: Objective, logits: Sequence[torch.Tensor], configuration: Any) -> tuple[float, list[torch.Tensor] | None]:
    """Return a layer's term, coefficient included, and its derivatives by the ``logits`` of each row, ``[sequence, experts]``, or None."""
    if objective.shares is None:
        return 0.0, None
    leaves = [each.detach().clone().requires_grad_() for each in logits]
    total = torch.zeros((), dtype=leaves[0].dtype)
    for piece, share in zip(objective.pieces, objective.shares, strict=True):
        rows = leaves[piece]
        together = rows if objective.by_sequence else [torch.cat(rows)]
        total = total + sum(share * imbalance(each, configuration) for each in together) / len(together)
    total.backward()
    return float(total.detach()), [leaf.grad for leaf in leaves if leaf.grad is not None]


def imbalance(logits: torch.Tensor, configuration: Any) -> torch.Tensor:
    """Return how unevenly tokens use the experts, from logits ``[tokens, experts]``; 1 where they use all alike."""
    chosen = int(configuration.num_experts_per_tok)
    scores = logits.softmax(-1)
    if configuration.model_type == "deepseek_v3":  # whose routers make scores by another function
        scores = logits.sigmoid()
        scores = scores / (scores.sum(-1, keepdim=True) + 1e-20)
    # tokens count by their best scores, without bias and groups
    used = torch.nn.functional.one_hot(scores.topk(chosen).indices, scores.shape[-1]).sum(1).to(scores.dtype).mean(0) / chosen
    return scores.shape[-1] * (used * scores.mean(0)).sum()
