"""The terms of a step's loss beside the language model's: their names, and how the parts of all ranks make one number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

AUXILIARY, PREDICTION = "auxiliary", "multi_token_prediction"
"""What balances the load of experts, and what predicts further tokens; each with its coefficient, as it was differentiated."""


def whole(parts: Iterable[Mapping[str, float] | None]) -> dict[str, float] | None:
    """The terms of a job, which those of its ranks add up to; None where a rank does not know its own."""
    total: dict[str, float] = {}
    for part in parts:
        if part is None:
            return None
        for name, term in part.items():
            total[name] = total.get(name, 0.0) + term
    return total
