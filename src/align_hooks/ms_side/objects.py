"""Names for the frameworks' own objects, which carry no types that a checker could read. Imports no framework."""

from collections.abc import Sequence
from typing import Any, TypeAlias

Tensor: TypeAlias = Any
"""A tensor of MindSpore."""
Weight: TypeAlias = Any
"""A Parameter of MindSpore: a model's, or one that an optimizer keeps."""
Cell: TypeAlias = Any
"""A Cell of MindSpore: a model, a training cell, or a part of either."""
Optimizer: TypeAlias = Any
"""An optimizer of MindSpore or MindFormers."""
Schedule: TypeAlias = Any
"""A learning rate of an optimizer: a Parameter, or a schedule of rates."""
Config: TypeAlias = Any
"""MindFormers' configuration of a run, a mapping whose keys are attributes too; or a section or a value of it."""
LayoutEntry: TypeAlias = Sequence[Any]
"""MindSpore's layout of a weight, an entry of ``parameter_layout_dict``."""
RunContext: TypeAlias = Any
"""The argument of a MindSpore callback."""
Loop: TypeAlias = Any
"""The state of a training loop of MindSpore, ``original_args()`` of a run context."""
