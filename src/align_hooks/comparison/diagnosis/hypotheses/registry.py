"""Every hypothesis of the files beside this one; their order means nothing."""

from __future__ import annotations

from align_hooks.comparison.diagnosis.hypotheses import backward, forward, start, updates
from align_hooks.comparison.diagnosis.hypothesis import Hypothesis

MODULES = (start, forward, backward, updates)
TESTED = (one for module in MODULES for one in vars(module).values() if isinstance(one, Hypothesis))
HYPOTHESES: tuple[Hypothesis, ...] = (*TESTED, *(one for module in MODULES for one in module.NAMED))
BY_CAUSE = {one.cause: one for one in HYPOTHESES}
