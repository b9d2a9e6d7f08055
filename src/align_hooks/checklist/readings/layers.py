"""What the layers of both sides together say of a row."""

from __future__ import annotations

from align_hooks.checklist.meaning import ExpertLayers, Words
from align_hooks.checklist.readings.experts import expert_layers
from align_hooks.configuration.values import Configuration
from align_hooks.messages import message


def no_dense_layer(reference: Configuration, candidate: Configuration) -> Words | None:
    """The size of a dense layer says nothing where every layer has experts: these have a size of their own."""
    layers = [expert_layers(c) for c in (reference, candidate)]
    sparse = all(isinstance(held, ExpertLayers) and held.sparse and not held.dense for held in layers)
    return message("harmless.no_dense_layer") if sparse else None
