"""One forward pass of a model chunk on a selected step: what it was given, what it made of each token, and what a token weighed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from align_hooks.names.blocks import Array
from align_hooks.record.format.missing_batch import Unseen
from align_hooks.torch_side.arrays import to_numpy
from align_hooks.torch_side.loss_mask import loss_mask
from align_hooks.torch_side.objects import Tensor

MASK, LABELS, TOKEN_LOSSES = "loss_mask", "labels", "token_losses"


@dataclass(eq=False)
class MicroBatch:
    """``inputs`` are host copies of what the model was given, ``handed`` of what may be the loss mask, the model's own first.

    ``differentiable`` says whether the pass was made with gradients, ``passes`` how many such passes its forward step made. ``loss`` is the
    number, in the session's list, of the loss that was made of it, as on the last stage alone. ``weights`` are the gradients of its output,
    ``eps`` is the precision of their type.
    """

    inputs: dict[str, Array]
    differentiable: bool = True
    passes: int = 1
    handed: list[Array] = field(default_factory=list)
    loss: int | None = None
    weights: Tensor | None = None
    eps: float = 0.0

    def made(self, output: object) -> bool:
        """Keep what the model made of each token, where it is one loss a label; say whether its gradient weighs them."""
        labels = self.inputs.get(LABELS)
        if labels is None or not isinstance(output, torch.Tensor) or output.shape != labels.shape:
            return False
        self.inputs[TOKEN_LOSSES], self.eps = to_numpy(output), torch.finfo(output.dtype).eps
        return bool(output.requires_grad)

    def weigh(self, gradient: torch.Tensor) -> None:
        """Keep a gradient on its device, in memory of its own. A second backward pass adds to the first, as it does in the parameters."""
        kept = gradient.detach().clone()
        self.weights = kept if self.weights is None else self.weights + kept

    def hand(self, arguments: Mapping[str, object] | tuple[object, ...]) -> None:
        """Keep the tensors among arguments of the loss function that have one element a label."""
        labels = self.inputs.get(LABELS)
        if labels is None:
            return
        values = arguments.values() if isinstance(arguments, Mapping) else arguments
        self.handed += [to_numpy(value) for value in values if isinstance(value, torch.Tensor) and value.numel() == labels.size]

    def arrays(self, weights: Array | None, loss: float | None) -> tuple[dict[str, Array], set[Unseen]]:
        """The arrays of a record by name, and what was not seen. ``weights`` is :attr:`weights` on the host, flat, and ``loss`` what the
        loss function returned.

        The loss mask is the last stage's to tell: what an earlier one is given nobody reduces with.
        """
        unseen = {Unseen.PASSES} if self.passes > 1 else set()
        if loss is None:
            return self.inputs, unseen
        if LABELS not in self.inputs:
            return self.inputs, unseen | {Unseen.LABELS}
        weights = None if weights is None else weights.reshape(self.inputs[LABELS].shape)
        mask = loss_mask(weights, self.handed, self.eps, self.inputs.get(TOKEN_LOSSES), loss)
        if isinstance(mask, Unseen):
            return self.inputs, unseen | {mask}
        return self.inputs | {MASK: mask}, unseen
