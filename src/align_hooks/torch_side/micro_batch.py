"""One forward pass of a model chunk on a selected step: its inputs, its token losses, and the mask that weighed these.

The mask is that which training used, from the gradient of the objective by each token's loss. A script makes its mask anywhere: in the
arguments of a ``functools.partial``, a closure, a dict, an attribute, ``forward_step`` itself. Megatron's schedule sees a function of the
model's output and no mask. The gradient by the model's output, one loss a token, is each token's weight however the script made it: a hook
on that tensor reads it in the run's own backward pass (``torch.Tensor.register_hook`` adds no node to the graph and changes no number),
summed over all uses of the tensor.

A factor that all weights of a micro-batch share is no part of a mask: the schedule divides by tokens and micro-batches (not with a
per-token loss) and multiplies by context-parallel ranks (:func:`megatron.core.pipeline_parallel.schedules.forward_step_calc_loss`), fp16
multiplies by the loss scale. So only two facts of the weights are used: which are 0, and whether the others are equal.

- **Proportional to a candidate** (``loss_mask=`` of the model, tensors among the arguments of the loss function): the candidate is the
  mask, with its own values. A tensor with negative elements, or with integers other than 0 and 1, is no candidate: labels are no mask.
- **Equal where they are not 0**: a mask of 0 and 1, known exactly, with or without a candidate.
- **Unequal, and a candidate of 0 and 1 counts the same tokens**: the candidate. The script reduces rows separately, or its loss is no sum;
  the self-check of the record says so, for its loss is not the mean of the token losses.
- **Otherwise**: unknown. The factor of a fractional mask is not known, and 1 for every counted token would be invented.

A token of weight 0 did not count, whatever the reason (a clamp, a dropped outlier). Gradients say nothing where there are none, where all
are 0 under a loss other than 0 (the code behind the loss function lost a micro-batch), and where one is NaN, which comes of dividing by no
tokens (Megatron-LM before 0.15) and not of a loss that is NaN. Then a candidate is the mask where the token losses under it make the
returned loss, as a sum or as a mean. Recomputed layers are inside the model, whose output is made once.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from msgspec import Struct, field

from align_hooks.names.blocks import Array
from align_hooks.record.format.missing_batch import MissingBatchReason
from align_hooks.torch_side.arrays import to_numpy
from align_hooks.torch_side.objects import Tensor

MASK, LABELS, TOKEN_LOSSES, DOCUMENTS = "loss_mask", "labels", "token_losses", "documents"
ROUNDINGS = 8
"""Units in the last place between weights that are equal but for rounding: a loss function multiplies a few times."""
SAME_LOSS = 1e-4
"""Relative difference between the returned loss and its recomputed value: both sum the same numbers in fp32."""


class MicroBatch(Struct, eq=False, weakref=True):
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
    unseen: set[MissingBatchReason] = field(default_factory=set)
    """Why some of ``inputs`` are missing."""

    def keep_documents(self, documents: Array | None) -> None:
        """Keep the documents of packed samples, None where they are unknown."""
        if documents is None:
            self.unseen.add(MissingBatchReason.DOCUMENTS)
        else:
            self.inputs[DOCUMENTS] = documents

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

    def arrays(self, weights: Array | None, loss: float | None) -> tuple[dict[str, Array], set[MissingBatchReason]]:
        """Return the arrays of a record by name, and why some are missing, from :attr:`weights` on the host, flat, and the loss."""
        unseen = self.unseen | ({MissingBatchReason.PASSES} if self.passes > 1 else set())
        if loss is None:  # only the last stage reduces with a mask
            return self.inputs, unseen
        if LABELS not in self.inputs:
            return self.inputs, unseen | {MissingBatchReason.LABELS}
        weights = None if weights is None else weights.reshape(self.inputs[LABELS].shape)
        mask = loss_mask(weights, self.candidates, self.eps, self.inputs.get(TOKEN_LOSSES), loss)
        if isinstance(mask, MissingBatchReason):
            return self.inputs, unseen | {mask}
        return self.inputs | {MASK: mask}, unseen


def loss_mask(
    weights: Array | None, candidates: Sequence[Array], eps: float, losses: Array | None = None, loss: float = 0.0
) -> Array | MissingBatchReason:
    """Return the mask, fp32 in the shape of ``losses``, or the reason for its absence.

    ``weights`` are the gradients of token losses, None where no gradient came, and ``eps`` is the precision of their type. ``candidates``
    have any shape. ``losses`` are each token's loss, None where the model made none, ``loss`` is the loss function's result."""
    masks: list[Array] = []
    if losses is not None:
        fit = (given for given in candidates if given.size == losses.size and _may_be_a_mask(given))
        masks = [given.reshape(losses.shape).astype(np.float32) for given in fit]
    if weights is None or np.isnan(weights).any() or (loss and not weights.any()):
        made = (mask for mask in masks if losses is not None and _makes(loss, losses, mask))
        return next(made, MissingBatchReason.NO_GRADIENT if weights is None or not weights.any() else MissingBatchReason.NOT_A_NUMBER)
    counts = weights != 0
    masks = [mask for mask in masks if ((mask != 0) == counts).all()]
    for mask in masks:
        if _are_equal(weights[counts] / mask[counts], eps):
            return mask
    zeros_and_ones: Array = counts.astype(np.float32)
    if _are_equal(weights[counts], eps) or any((mask == zeros_and_ones).all() for mask in masks):
        return zeros_and_ones
    return MissingBatchReason.WEIGHTS


def _makes(loss: float, losses: Array, mask: Array) -> bool:
    """Return whether the sum or the mean of token losses under a mask is the loss."""
    total = float((np.where(mask > 0, losses, 0) * mask.astype(np.float64)).sum())
    return any(abs(made - loss) <= SAME_LOSS * abs(loss) for made in (total, total / max(float(mask.sum()), 1.0)))


def _may_be_a_mask(given: Array) -> bool:
    """Return whether a tensor can weigh tokens: floats without negatives, or integers that are all 0 or 1."""
    if given.dtype.kind == "f":
        return bool(np.isfinite(given).all() and (given >= 0).all())
    return given.dtype.kind in "biu" and bool(((given == 0) | (given == 1)).all())


def _are_equal(values: Array, eps: float) -> bool:
    """Return whether all values are equal but for rounding, infinities included; True of no values."""
    if not values.size:
        return True
    least, most = float(values.min()), float(values.max())
    return least == most or (least * most > 0 and most - least <= ROUNDINGS * eps * max(abs(least), abs(most)))
