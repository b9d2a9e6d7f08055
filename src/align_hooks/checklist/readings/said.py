"""How a reading asks a configuration, and the keys that several readings ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from align_hooks.checklist.row import UNSET, boolean, model, numeric
from align_hooks.configuration.values import Configuration
from align_hooks.messages import Argument


class Unknown(Exception):
    """A value is set from something that only a run knows; ``why`` says what."""

    def __init__(self, why: Argument) -> None:
        super().__init__(why)
        self.why = why


def said(configuration: Configuration, keys: Sequence[str], otherwise: Any = UNSET) -> Any:
    """The value of the first key that is set.

    :raises Unknown: it is set, and not known.
    """
    found = configuration.find(tuple(keys))
    if found is None:
        return otherwise(configuration) if callable(otherwise) else otherwise
    if found.unknown:
        raise Unknown(found.unknown)
    return boolean(found.value)


def number(configuration: Configuration, keys: Sequence[str], otherwise: Any = UNSET) -> Any:
    """The same as a number, also where YAML made text of it."""
    return numeric(said(configuration, keys, otherwise))


def known(*values: Any) -> bool:
    """Whether all of some values are numbers to work with."""
    return all(isinstance(one, int | float) and not isinstance(one, bool) for one in values)


def has(configuration: Configuration, prefix: str) -> bool:
    """Whether a section is there at all."""
    return any(name.startswith(prefix) for name in configuration.values)


LAYERS = model("num_layers", "num_hidden_layers", "n_layer")
HEADS = model("num_heads", "num_attention_heads", "n_head")
GROUPS = model("n_kv_heads", "num_key_value_heads", "num_query_groups", "multi_query_group_num")
FFN = model("intermediate_size", "ffn_hidden_size")
EXPERT_NUM = (*model("num_experts", "n_routed_experts", "num_moe_experts", "expert_num"), "moe_config.expert_num")
TYPE_OF_POSITIONS = model("position_embedding_type", "rope_scaling.type", "rope_scaling.rope_type", "extend_method")
