"""Our own Parameters in a compiled graph, in which it keeps values for us, unseen by the run's checkpoints and its optimizer."""

import numpy as np
from mindspore import Parameter, Tensor, nn

from align_hooks.names.blocks import Array


def set_unregistered(cell: nn.Cell, **attributes: object) -> None:
    """Set attributes of a Cell without registering them: the run's checkpoints would hold a registered Parameter."""
    for name, value in attributes.items():
        object.__setattr__(cell, name, value)


def own_parameter(name: str, shape: tuple[int, ...], value: float = 0.0) -> Parameter:
    """Make a Parameter of ours, fp32, filled with ``value``."""
    return own_array(name, np.full(shape, value, np.float32))


def switch(name: str = "injecting") -> Parameter:
    """Make a Parameter of ours that switches a replacement on, off at first."""
    return own_array(name, np.array(False))


def own_array(name: str, array: Array) -> Parameter:
    """Make a Parameter of ours with the values and the type of an array."""
    return Parameter(Tensor(array), name=f"align_hooks.{name}", requires_grad=False)
