"""What a record says of a model of no family: its sizes, under the names that every family's ``config.json`` has."""

from __future__ import annotations

from collections.abc import Sequence

from align_hooks.families.family import Decoder
from align_hooks.quantities.weights import NEAREST, NO_FAMILY


def own_model(decoder: Decoder, nearest: str, misfits: Sequence[str]) -> dict[str, object]:
    """The sizes of a decoder, the ``nearest`` family, and in what it differs from it (``NO_FAMILY``)."""
    dims = decoder.dims
    return {
        NO_FAMILY: list(misfits),
        NEAREST: nearest,
        "hidden_size": decoder.hidden,
        "intermediate_size": dims.ffn,
        "num_hidden_layers": decoder.layers,
        "num_attention_heads": dims.heads,
        "num_key_value_heads": dims.groups,
        "rms_norm_eps": decoder.epsilon,
        "vocab_size": dims.vocabulary,
        "max_position_embeddings": decoder.positions,
        "tie_word_embeddings": decoder.tied,
        "num_experts": decoder.routing.experts if decoder.routing else 0,
    }
