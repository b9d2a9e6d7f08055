"""How the settings of a side are asked for, and the keys that several rows ask for."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from align_hooks.checklist.canonical_values import UNSET, plain
from align_hooks.configuration.values import MINDFORMERS, Configuration, Setting, Unknown

Read: TypeAlias = Callable[[Configuration], Setting]
MODEL = "model.model_config."
"""The beginning of MindFormers' names for settings of a model."""


def model(*names: str) -> tuple[str, ...]:
    """Return keys of MindFormers' ``model_config``."""
    return tuple(MODEL + name for name in names)


def is_new(configuration: Configuration) -> bool:
    """Return whether a MindFormers configuration builds one of the newer models, ``use_legacy: False``."""
    return (legacy := configuration.find(("use_legacy",))) is not None and legacy.value is False


def by_side(megatron: Read, mindformers: Read) -> Read:
    """Return a reader of what either framework computes in its own way."""
    return lambda c: (mindformers if c.side == MINDFORMERS else megatron)(c)


class Unstated(Unknown):
    """A value is needed and nothing states it, or states it in a way that is not followed."""


def value_of(configuration: Configuration, keys: Sequence[str], otherwise: Setting = UNSET) -> Setting:
    """Return the value of the first key that is set; else ``otherwise``, a value or a function of the configuration.

    :raises Unknown: the key is set, and its value is not known.
    """
    if (value := configuration.find(tuple(keys))) is not None:
        return plain(value.value)
    return otherwise(configuration) if callable(otherwise) else otherwise


def known(configuration: Configuration, name: str) -> Setting:
    """Return the value that a name is set to; None where it is not set or not known."""
    value = configuration.values.get(name)
    return None if value is None or value.unknown else value.value


def all_sides(read: Read, *sides: Configuration) -> bool:
    """Return whether a reader's answer is true of every side; False where it is false of one, whatever is not known of another.

    :raises Unknown: it is not known of a side, and true of all others.
    """
    missing: Unknown | None = None
    for side in sides:
        try:
            if not read(side):
                return False
        except Unknown as unknown:
            missing = unknown
    if missing is not None:
        raise missing
    return True


def are_numbers(*values: Setting) -> bool:
    """Return whether all of some values are numbers to work with."""
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def on(name: str) -> Read:
    """Return a reader of whether a switch is on."""
    return lambda c: is_on(c, name)


def off(name: str) -> Read:
    """Return a reader of whether a switch is not on."""
    return lambda c: not value_of(c, (name,), False)


def is_on(configuration: Configuration, *keys: str) -> bool:
    """Return whether the first key that is set is set to True."""
    value = configuration.find(keys)
    return value is not None and value.value is True


def is_off(configuration: Configuration, *keys: str) -> bool:
    """Return whether the first key that is set is set to False."""
    value = configuration.find(keys)
    return value is not None and value.value is False


def has(configuration: Configuration, prefix: str) -> bool:
    """Return whether a section is there at all."""
    return any(name.startswith(prefix) for name in configuration.values)


def is_older_core(configuration: Configuration) -> bool:
    """Return whether :data:`OLDER_CORE` or an older one made a record, or is to read a script; the newest does where that is not known."""
    known = configuration.version or (configuration.fact("versions") or {}).get("megatron-core", "")
    found = re.match(r"(\d+)\.(\d+)", str(known))
    return found is not None and (int(found[1]), int(found[2])) <= OLDER_CORE


def is_since(version: str, *since: int) -> bool:
    """Return whether a version is that one or a later one; one that is not known is."""
    numbers = re.findall(r"\d+", version)[:2]
    return len(numbers) < 2 or tuple(map(int, numbers)) >= since


OLDER_CORE = (0, 12)
"""A core of Megatron-LM whose source does in places what MindFormers does, and 0.19 does not; MindSpeed-LLM stands on it."""
LONGEST = 10_000
"""No model has more layers."""
LAYERS = model("num_layers", "num_hidden_layers", "n_layer")
HEADS = model("num_heads", "num_attention_heads", "n_head")
GROUPS = model("n_kv_heads", "num_key_value_heads", "num_query_groups", "multi_query_group_num")
FFN = model("intermediate_size", "ffn_hidden_size")
EXPERT_NUM = (*model("num_experts", "n_routed_experts", "num_moe_experts", "expert_num"), "moe_config.expert_num")
TYPE_OF_POSITIONS = model("position_embedding_type", "rope_scaling.type", "rope_scaling.rope_type", "extend_method")
