"""Parameters of ours in a compiled graph, which are none of the model's.

A graph keeps what it computes in Parameters. A Cell that registered them would have the run's checkpoints hold them, and its optimizer see
them.
"""

from __future__ import annotations

import numpy as np
from mindspore import Parameter, Tensor, nn

from align_hooks.names.blocks import Array


def set_unregistered(cell: nn.Cell, **attributes: object) -> None:
    """Set attributes of a Cell past its own bookkeeping: a registered Parameter would end up in the run's checkpoints."""
    for name, value in attributes.items():
        object.__setattr__(cell, name, value)


def own_parameter(name: str, shape: tuple[int, ...], value: float = 0.0) -> Parameter:
    """A Parameter of ours, fp32, filled with ``value``."""
    return own_array(name, np.full(shape, value, np.float32))


def switch(name: str = "injecting") -> Parameter:
    """Make a Parameter of ours that says whether a step is given something, off at first."""
    return own_array(name, np.array(False))


def own_array(name: str, array: Array) -> Parameter:
    """A Parameter of ours with the values and the type of an array."""
    return Parameter(Tensor(array), name=f"align_hooks.{name}", requires_grad=False)
