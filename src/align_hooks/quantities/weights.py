"""Weights after N updates, as a Hugging Face checkpoint where a rank holds all of the model."""

from __future__ import annotations

from collections.abc import Mapping

from align_hooks.quantities.kind import Quantity, Switch

MODEL = "weights/model.safetensors"
PADDING = "weights/padding.safetensors"
CONFIG = "weights/config.json"
# Keys of a record's ``model``. With the first or the third there is no ``config.json``, where a missing key would mean its default.
NO_FAMILY = "no_family"
"""How a model of no family differs from the nearest family."""
NEAREST = "nearest_family"
"""The nearest family; missing for a class that no family has."""
UNKNOWN = "unknown_settings"
"""The settings that could not be read."""
SQUARED = "weights/squared.json"

WEIGHTS = Quantity(
    "weights",
    Switch("weights", "record weights; N is the state after N updates, 0 the initial one"),
    is_state=True,
    files=(MODEL, PADDING, CONFIG, SQUARED),
    whole=MODEL,
    copies=1,
)


def unknown_of(model: Mapping[str, object]) -> list[str]:
    """Return the names of a recorded model's settings that could not be read."""
    names = model.get(UNKNOWN)
    return [str(name) for name in names] if isinstance(names, list) else []


def not_compared(*models: Mapping[str, object]) -> set[str]:
    """Return the keys by which recorded models are not compared: unknown settings, and keys that are no setting."""
    # the longest sequence allowed changes nothing for shorter ones
    return {UNKNOWN, NO_FAMILY, NEAREST, "max_position_embeddings"}.union(*map(unknown_of, models))
