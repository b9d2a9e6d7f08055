"""The terms of a step's loss besides the language model's: their names and their sum over ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

AUXILIARY, Z_LOSS, PREDICTION, INDEXER = "auxiliary", "router_z_loss", "multi_token_prediction", "sparse_attention_indexer"
"""The load balance of experts, the size of their routers' logits, the prediction of further tokens, and what teaches an indexer attention's
scores; each times its coefficient."""
NAMED = (AUXILIARY, Z_LOSS, PREDICTION, INDEXER)
"""The terms that reports know."""


def whole(parts: Iterable[Mapping[str, float] | None]) -> dict[str, float] | None:
    """Return the sums of the ranks' terms; None where a rank's terms are unknown."""
    total: dict[str, float] = {}
    for part in parts:
        if part is None:
            return None
        for name, term in part.items():
            total[name] = total.get(name, 0.0) + term
    return total
