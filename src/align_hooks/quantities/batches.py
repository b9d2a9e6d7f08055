"""What the model consumed in a step, what it made of each token, and how many tokens it gave to each expert."""

from __future__ import annotations

from align_hooks.quantities.kind import Quantity, Switch

FED = ("tokens", "labels", "loss_mask", "attention_mask", "position_ids")
"""What a model consumes."""
ARRAYS = (*FED, "token_losses")
"""What is kept of a batch: beside what was consumed, each token's loss before the mask, ``[rows, sequence]`` fp32."""
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
