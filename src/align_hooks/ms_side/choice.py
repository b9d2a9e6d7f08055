"""One router's choice of experts in a step, and a recorded choice in its place."""

import numpy as np
from mindspore import Parameter, Tensor
from msgspec import Struct

from align_hooks.names.blocks import Array
from align_hooks.replay.routing import Router

UNTOUCHED = -1
"""The buffer's first value: no expert."""


class Choice(Struct, frozen=True):
    """One router's buffers in the compiled graph."""

    name: str
    facts: Router
    groups: int
    """The number of groups of experts; 0 without groups."""
    is_led: bool
    """Whether the router must be led to the groups of the given experts."""
    kept: Parameter
    given: Parameter
    giving: Parameter
    """The switch between ``given`` and the router's own choice."""

    def experts(self, shape: tuple[int, ...]) -> Array | None:
        """Return the last step's experts, int16 ``[rows, sequence, experts a token]``, ascending; None where the graph kept none."""
        experts: Array = self.kept.asnumpy()
        if experts.size != np.prod(shape) * self.facts.chosen or (experts == UNTOUCHED).all():
            return None
        return np.sort(experts.reshape(*shape, self.facts.chosen), axis=2).astype(np.int16)

    def give(self, experts: Array | None) -> None:
        """Send the next step's tokens to ``experts``; with None the router chooses."""
        self.giving.set_data(Tensor(experts is not None))
        if experts is not None:
            self.given.set_data(Tensor(np.ascontiguousarray(experts.reshape(self.given.shape), np.int32)))
