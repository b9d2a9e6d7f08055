"""Every hypothesis of the files beside this one; their order means nothing."""

from __future__ import annotations

from align_hooks.comparison.diagnosis.hypotheses import backward, data, forward, state, updates
from align_hooks.comparison.diagnosis.hypothesis import Hypothesis

HYPOTHESES = tuple(
    one for module in (data, state, forward, backward, updates) for one in vars(module).values() if isinstance(one, Hypothesis)
)
BY_CAUSE = {one.cause: one for one in HYPOTHESES}
