"""What one router chooses in a step, and what is chosen for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from mindspore import Parameter, Tensor

from align_hooks.names.blocks import Array
from align_hooks.replay.routing import Router

UNTOUCHED = -1
"""The buffer's first value: no expert."""


@dataclass(frozen=True)
class Choice:
    """What one router chooses in a step: its buffer, and what is chosen for it where the switch is on. ``groups`` is 0 without groups;
    ``is_led`` says that the router must be led to the groups of the experts that are given to its tokens."""

    name: str
    facts: Router
    groups: int
    is_led: bool
    kept: Parameter
    given: Parameter
    giving: Parameter

    def experts(self, shape: tuple[int, ...]) -> Array | None:
        """The experts of the last step's tokens, int16 ``[rows, sequence, experts a token]``, ascending; None where the graph was compiled
        without the Cell, or for another batch."""
        experts: Array = self.kept.asnumpy()
        if experts.size != np.prod(shape) * self.facts.chosen or (experts == UNTOUCHED).all():
            return None
        return np.sort(experts.reshape(*shape, self.facts.chosen), axis=2).astype(np.int16)

    def give(self, experts: Array | None) -> None:
        """Have the next step's tokens given to ``experts``; with None the router chooses."""
        self.giving.set_data(Tensor(experts is not None))
        if experts is not None:
            self.given.set_data(Tensor(np.ascontiguousarray(experts.reshape(self.given.shape), np.int32)))
