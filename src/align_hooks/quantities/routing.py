"""The experts of each token, layer by layer: many numbers, so recorded only on request, unlike the counts in :mod:`.batches`."""

from __future__ import annotations

from align_hooks.quantities.kind import Quantity, Switch

CHOICES = "routing.safetensors"
"""Router, by the name of its weight without ``.weight``, to int16 ``[rows, positions, experts a token]``, ascending; -1 for a dropped
token."""

ROUTING = Quantity(
    "routing",
    Switch("routing", "record the experts that each token was given to (the counts of each expert come with every batch)"),
    files=(CHOICES,),
    whole=CHOICES,
    choice_bytes=2,
)
