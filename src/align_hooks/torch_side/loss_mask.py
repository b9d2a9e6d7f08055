"""The loss mask that training used, from the weight of each token in what was differentiated.

A script makes its mask where it likes: in the arguments of a ``functools.partial``, a closure, a dict, an attribute, in ``forward_step``
itself. Megatron's schedule sees a function of the model's output and no mask. So nothing is guessed from the code. The gradient of the
objective by the model's output, one loss a token, is each token's weight, in whatever way the script came to it: a hook on that tensor
reads the gradient in the backward pass that the run makes anyhow (``torch.Tensor.register_hook`` adds no node to the graph and changes no
number). The gradient is that of all uses of the tensor together.

What the weights have in common is no part of a mask: the schedule divides by tokens and micro-batches (not with a per-token loss) and
multiplies by context-parallel ranks (:func:`megatron.core.pipeline_parallel.schedules.forward_step_calc_loss`), fp16 multiplies by the loss
scale. All of these are one factor a micro-batch. So of weights only these are looked at: which are 0, and whether the others are equal.

- **Proportional to a mask that was handed over** (``loss_mask=`` of the model, tensors among the arguments of the loss function): that is
  the mask, with its own values. A tensor that is negative, or of whole numbers other than 0 and 1, is none: labels are no mask, even where
  every label is the same.
- **Equal where they are not 0**: a mask of 0 and 1, known exactly, whether or not it was handed over.
- **Unequal, and a mask of 0 and 1 that was handed over counts the same tokens**: that mask. The script reduces rows apart, or its loss is
  no sum; the self-check of the record says so, for its loss is not the mean of the token losses.
- **Unequal otherwise**: not seen. The factor of a fractional mask is not known, and 1 for every token that counts would be invented.

A weight of 0 is a token on which training does not depend, whatever made it so (a clamp, a dropped outlier): it did not count. Gradients
say nothing where there are none, where all are 0 under a loss that is not (what follows the loss function lost a micro-batch), and where
one is NaN, which comes of dividing by no tokens (Megatron-LM before 0.15) and not of a loss that is NaN. Then a mask that was handed over
is believed where the token losses under it make the loss that was returned, as a sum or as a mean. Layers whose activations are computed
again are inside the model, whose output is made once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from align_hooks.names.blocks import Array
from align_hooks.record.format.missing_batch import Unseen

ROUNDINGS = 8
"""Units in the last place by which two weights may differ that are equal but for rounding: a loss function multiplies a few times."""
MADE = 1e-4
"""How far a loss may be from the sum or the mean that it is, relative: both are sums in fp32 of one set of fp32 numbers."""


def loss_mask(weights: Array | None, handed: Sequence[Array], eps: float, losses: Array | None = None, loss: float = 0.0) -> Array | Unseen:
    """The mask, fp32 in the shape of ``losses``, or why there is none.

    ``weights`` are the gradients of token losses, None where no gradient came, and ``eps`` is the precision of their type. ``handed`` are
    tensors that may be the mask, of any shape. ``losses`` are each token's loss, None where the model made none, and ``loss`` is what the
    loss function made of them.
    """
    fit = [given for given in handed if losses is not None and given.size == losses.size and _may_be_a_mask(given)]
    masks = [given.reshape(losses.shape).astype(np.float32) for given in fit] if losses is not None else []
    if weights is None or np.isnan(weights).any() or (loss and not weights.any()):
        made = (mask for mask in masks if losses is not None and _makes(loss, losses, mask))
        return next(made, Unseen.NO_GRADIENT if weights is None or not weights.any() else Unseen.NOT_A_NUMBER)
    counts = weights != 0
    masks = [mask for mask in masks if ((mask != 0) == counts).all()]
    for mask in masks:
        if _are_equal(weights[counts] / mask[counts], eps):
            return mask
    zeros_and_ones: Array = counts.astype(np.float32)
    if _are_equal(weights[counts], eps) or any((mask == zeros_and_ones).all() for mask in masks):
        return zeros_and_ones
    return Unseen.WEIGHTS


def _makes(loss: float, losses: Array, mask: Array) -> bool:
    """Whether token losses under a mask make a loss, as their sum or as their mean."""
    total = float((np.where(mask > 0, losses, 0) * mask.astype(np.float64)).sum())
    return any(abs(made - loss) <= MADE * abs(loss) for made in (total, total / max(float(mask.sum()), 1.0)))


def _may_be_a_mask(given: Array) -> bool:
    """Whether a tensor can be weights of tokens: none is negative, and of whole numbers all are 0 or 1."""
    if given.dtype.kind == "f":
        return bool(np.isfinite(given).all() and (given >= 0).all())
    return given.dtype.kind in "biu" and bool(((given == 0) | (given == 1)).all())


def _are_equal(values: Array, eps: float) -> bool:
    """Whether numbers are one number but for rounding, of one sign; true of none. Infinity is an overflow, and equal to itself."""
    if not values.size:
        return True
    least, most = float(values.min()), float(values.max())
    return least == most or (least * most > 0 and most - least <= ROUNDINGS * eps * max(abs(least), abs(most)))
