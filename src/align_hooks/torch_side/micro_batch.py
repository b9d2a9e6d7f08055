"""One forward pass of a model chunk on a selected step: its inputs, its token losses, and the weight of each token."""

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
    """The inputs of one forward pass, and what becomes of its token losses."""

    inputs: dict[str, Array]
    """Host copies of the model's arguments, and token losses."""
    differentiable: bool = True
    """Whether the pass was made with gradients."""
    passes: int = 1
    """The number of passes with gradients in its forward step."""
    candidates: list[Array] = field(default_factory=list)
    """Tensors that may be the loss mask, the model's own first."""
    loss: int | None = None
    """Its index in :attr:`.ForwardBackward.losses`; None before the last stage."""
    weights: Tensor | None = None
    """The gradients of its token losses."""
    eps: float = 0.0
    """The precision of the type of ``weights``."""

    def keep_losses(self, output: object) -> bool:
        """Keep the model's output where it is one loss a label; return whether the output has a gradient to come."""
        labels = self.inputs.get(LABELS)
        if labels is None or not isinstance(output, torch.Tensor) or output.shape != labels.shape:
            return False
        self.inputs[TOKEN_LOSSES], self.eps = to_numpy(output), torch.finfo(output.dtype).eps
        return bool(output.requires_grad)

    def weigh(self, gradient: torch.Tensor) -> None:
        """Keep a gradient on its device, in memory of its own; add it to that of an earlier backward pass."""
        kept = gradient.detach().clone()
        self.weights = kept if self.weights is None else self.weights + kept

    def add_candidates(self, arguments: Mapping[str, object] | tuple[object, ...]) -> None:
        """Keep the tensors among the loss function's arguments that have one element a label."""
        labels = self.inputs.get(LABELS)
        if labels is None:
            return
        values = arguments.values() if isinstance(arguments, Mapping) else arguments
        self.candidates += [to_numpy(value) for value in values if isinstance(value, torch.Tensor) and value.numel() == labels.size]

    def arrays(self, weights: Array | None, loss: float | None) -> tuple[dict[str, Array], set[Unseen]]:
        """Return the arrays of a record by name, and why some are missing, from :attr:`weights` on the host, flat, and the loss."""
        unseen = {Unseen.PASSES} if self.passes > 1 else set()
        if loss is None:  # only the last stage reduces with a mask
            return self.inputs, unseen
        if LABELS not in self.inputs:
            return self.inputs, unseen | {Unseen.LABELS}
        weights = None if weights is None else weights.reshape(self.inputs[LABELS].shape)
        mask = loss_mask(weights, self.candidates, self.eps, self.inputs.get(TOKEN_LOSSES), loss)
        if isinstance(mask, Unseen):
            return self.inputs, unseen | {mask}
        return self.inputs | {MASK: mask}, unseen
