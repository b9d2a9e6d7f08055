"""The experts that each token was given to, layer by layer.

How many tokens each expert was given comes with every batch (:mod:`.batches`), for it is a few numbers. Each token's own experts are asked
for: there are as many as tokens times layers.
"""

from __future__ import annotations

from align_hooks.quantities.kind import Quantity, Switch

CHOICES = "routing.safetensors"
"""A tensor a layer, by the name of its router's weight without ``.weight``: int16 ``[rows, positions, experts a token]``, ascending, and -1
where a token was given to fewer."""

ROUTING = Quantity(
    "routing",
    Switch("routing", "record the experts that each token was given to (the counts of each expert come with every batch)"),
    files=(CHOICES,),
    whole=CHOICES,
    choice_bytes=2,
)
