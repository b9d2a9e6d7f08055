"""Weights after N updates, as a Hugging Face checkpoint where a rank holds all of the model."""

from __future__ import annotations

from collections.abc import Mapping

from align_hooks.quantities.kind import Numbering, Quantity, Switch

MODEL = "weights/model.safetensors"
PADDING = "weights/padding.safetensors"
CONFIG = "weights/config.json"
NO_FAMILY = "no_family"
"""The key of a record's ``model`` under which a model of no family says in what it differs from the nearest; it has no ``config.json``."""
NEAREST = "nearest_family"
"""The key under which it says which family is the nearest; a class that no family has does not hold it."""
UNKNOWN = "unknown_settings"
"""The key under which it lists settings that could not be read; a model that has some has no ``config.json``, which would mean defaults."""
SQUARED = "weights/squared.json"

WEIGHTS = Quantity(
    "weights",
    Switch("weights", "record weights; N is the state after N updates, 0 the initial one"),
    Numbering.STATE,
    files=(MODEL, PADDING, CONFIG, SQUARED),
    whole=MODEL,
    copies=1,
)


def unknown_of(model: Mapping[str, object]) -> list[str]:
    """The names of a recorded model's settings that could not be read."""
    names = model.get(UNKNOWN)
    return [str(name) for name in names] if isinstance(names, list) else []


def not_compared(*models: Mapping[str, object]) -> set[str]:
    """The names by which recorded models are not compared: what could not be read of one, what is no setting, and how long sequences may
    be, which changes nothing for those that are shorter."""
    return {UNKNOWN, NO_FAMILY, NEAREST, "max_position_embeddings"}.union(*map(unknown_of, models))
