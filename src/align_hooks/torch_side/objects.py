"""Names for the frameworks' own objects, which carry no types that a checker could read. Imports no framework."""

from typing import Any, TypeAlias

Tensor: TypeAlias = Any
"""A tensor of torch, in modules that do not import torch."""
Module: TypeAlias = Any
"""A module of torch: a model, a chunk of it, or a part."""
Optimizer: TypeAlias = Any
"""An optimizer of Megatron, or a leaf of a chain of them; ``optimizer`` of a leaf is the torch-like optimizer."""
Scheduler: TypeAlias = Any
"""Megatron's OptimizerParamScheduler."""
Arguments: TypeAlias = Any
"""Megatron's arguments, a namespace."""
Argument: TypeAlias = Any
"""The value of one of Megatron's arguments."""
Config: TypeAlias = Any
"""Megatron's TransformerConfig."""
Group: TypeAlias = Any
"""A process group of torch."""
