"""Plain layers in the place of Transformer Engine's, for a rehearsal of a HybridModel, whose own specification names no others.

A GPTModel needs none: it has a specification of Megatron's local layers. Parameters have the names that they have in Transformer Engine.
"""

import torch
from megatron.core.tensor_parallel.layers import ColumnParallelLinear

from align_hooks.torch_side.objects import Config, Tensor


class NormThenLinear(ColumnParallelLinear):  # type: ignore[misc]
    """A column-parallel linear layer of the norm of its input, ``[positions, rows, hidden]``."""

    def __init__(self, input_size: int, output_size: int, *, config: Config, **given: object) -> None:
        super().__init__(input_size, output_size, config=config, **given)
        self.is_centred = config.normalization == "LayerNorm"
        self.layer_norm_weight = torch.nn.Parameter(torch.ones(input_size, dtype=config.params_dtype))
        self.layer_norm_bias = torch.nn.Parameter(torch.zeros(input_size, dtype=config.params_dtype)) if self.is_centred else None
        for parameter in (self.layer_norm_weight, *([self.layer_norm_bias] if self.is_centred else [])):
            parameter.sequence_parallel = config.sequence_parallel  # whose gradients Megatron sums over tensor-parallel ranks

    def forward(self, input_: Tensor, *args: object, **kwargs: object) -> Tensor:
        """Return what ``ColumnParallelLinear`` returns."""
        norm, biases = (torch.nn.functional.layer_norm, [self.layer_norm_bias]) if self.is_centred else (torch.nn.functional.rms_norm, [])
        normalised = norm(input_, input_.shape[-1:], self.layer_norm_weight, *biases, self.config.layernorm_epsilon)
        return super().forward(normalised, *args, **kwargs)
