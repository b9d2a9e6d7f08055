"""The batch of a step, with the loss of each token and the number of tokens of each expert."""

from __future__ import annotations

from align_hooks.quantities.kind import Quantity, Switch

INPUTS = ("tokens", "labels", "loss_mask", "attention_mask", "position_ids", "documents")
"""The inputs of a model; ``documents`` of packed samples alone."""
ARRAYS = (*INPUTS, "token_losses")
"""The arrays of a batch: the inputs, and each token's loss before the mask, fp32 ``[rows, sequence]``."""
DESCRIPTION = "batch.json"
CAUSAL_MASK = "causal_attention_mask.npy"

BATCHES = Quantity(
    "batches",
    Switch("batches", "save what the model consumed, in the guide's layout, each token's loss, and the tokens of each expert"),
    files=(*(f"{name}.npy" for name in ARRAYS), DESCRIPTION),
    whole=DESCRIPTION,
    shared=(CAUSAL_MASK,),
    saved_by_hand=True,
    token_bytes=32,  # ids, labels and positions in int64, loss mask and loss in fp32; a mask of its own is more
)
