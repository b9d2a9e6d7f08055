"""The description of a model in a record: Hugging Face's ``config.json``, or for a model of no family its sizes under the same keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from align_hooks.errors import RefusedRun
from align_hooks.families.family import Decoder, Family
from align_hooks.quantities.weights import NEAREST, NO_FAMILY, UNKNOWN

NULLS = ("rope_scaling", "q_lora_rank", "sliding_window")
"""Keys of ``config.json`` whose null means "off", not "unknown"."""


def described(family: Family, decoder: Decoder, misfits: Sequence[str]) -> dict[str, object]:
    """Return a record's description of a built decoder of a family, or of one that differs from its nearest family by ``misfits``."""
    if not misfits:
        return with_unknown(family.huggingface(decoder))
    sizes = {
        NO_FAMILY: list(misfits),
        NEAREST: family.name,
        "hidden_size": decoder.hidden,
        "intermediate_size": decoder.dims.ffn,
        "num_hidden_layers": decoder.layers,
        "num_attention_heads": decoder.dims.heads,
        "num_key_value_heads": decoder.dims.groups,
        "rms_norm_eps": decoder.epsilon,
        "vocab_size": decoder.dims.vocabulary,
        "max_position_embeddings": decoder.positions,
        "tie_word_embeddings": decoder.tied,
        "num_experts": decoder.routing.experts if decoder.routing else 0,
    }
    return with_unknown(sizes)


def with_unknown(model: Mapping[str, object]) -> dict[str, object]:
    """Return a model's settings with the names of unknown ones under ``UNKNOWN``."""
    unknown = [key for key, value in model.items() if value is None and key not in NULLS]
    return {key: value for key, value in model.items() if key not in unknown} | ({UNKNOWN: unknown} if unknown else {})


@contextmanager
def refuse_without_sizes() -> Iterator[None]:
    """Raise RefusedRun where a configuration lacks a size that names or cuts parameters."""
    try:
        yield
    except AttributeError as error:
        where = f"{type(error.obj).__module__}.{type(error.obj).__qualname__}"
        raise RefusedRun(
            f"parameters of the model cannot be named: {where} has no {error.name}; give it one, or train without ALIGN_HOOKS_ variables"
        ) from error
