"""Plain layers in the place of Transformer Engine's, for a rehearsal of a HybridModel, whose own specification names no others.

A GPTModel needs none: it has a specification of Megatron's local layers. Parameters have the names that they have in Transformer Engine.
Attention of packed samples is for both.
"""

from collections.abc import Callable, Sequence

import torch
from megatron.core.tensor_parallel.layers import ColumnParallelLinear

from align_hooks.errors import RefusedRun
from align_hooks.settings import PREFIX
from align_hooks.torch_side.objects import Config, Tensor
from align_hooks.torch_side.packing import spans_of


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


def by_document(
    attend: Callable[..., Tensor], width: int, params: Tensor, inputs: Sequence[Tensor], *args: object, **kwargs: object
) -> Tensor:
    """Return the attention of packed samples, ``[tokens, hidden]``, 0 between documents; ``attend`` takes one, and returns ``width``.

    ``inputs`` are queries, keys and values, ``[tokens, heads, size]``. Latent attention has filled values up to the size of queries."""
    spans, (query, key, value) = spans_of(params), inputs
    if not spans:
        raise RefusedRun(f"{PREFIX}DEVICE=cpu: packed samples whose cu_seqlens of queries and keys differ; run them on an accelerator")
    heads, filled = query.shape[1], value.shape[2]
    size = width // heads
    parts, end = [], 0
    for start, stop in spans:
        document = (tensor[start:stop].unsqueeze(1) for tensor in (query, key, value[..., :size]))
        part = attend(*document, *args, **kwargs).squeeze(1)
        parts.append(torch.nn.functional.pad(part, (0, 0, start - end, 0)))
        end = stop
    whole = torch.nn.functional.pad(torch.cat(parts), (0, 0, 0, len(query) - end))
    return torch.nn.functional.pad(whole.unflatten(1, (heads, size)), (0, filled - size)).flatten(1)
