"""What the processes ran in: variables, versions and deterministic switches, read back where a record has them."""

from __future__ import annotations

from align_hooks.checklist.canonical_values import UNSET, Released
from align_hooks.checklist.lookup import Read, is_on, value_of
from align_hooks.configuration.values import Configuration, Setting
from align_hooks.messages import message, terms

PAIRS = {"1.3": "2.4", "1.5": "2.6", "1.6": "2.7.0", "1.7": "2.7.1", "1.8": "2.7.2", "1.9": "2.9.0", "2.0": "2.10", "2.1": "2.11"}
"""MindFormers to the MindSpore that it was released with, those of 2.0 and 2.1 by what their wheels ask for."""
PAIRS_BY_HAND = message(
    "by_hand.versions",
    pairs=terms(message("by_hand.version_pair", mindformers=name, mindspore=released) for name, released in PAIRS.items()),
)


def variable(name: str) -> Read:
    """Return a reader of an environment variable; None where it is known not to be set."""

    def read(c: Configuration) -> Setting:
        if (value := c.environment.get(name)) is None:
            return None if c.facts is not None and name in (c.facts.get("environment") or {}) else UNSET
        return value.value

    return read


def version(package: str) -> Read:
    """Return a reader of a package with its version, as a record holds it."""
    return lambda c: f"{package} {c.fact('versions')[package]}" if package in (c.fact("versions") or {}) else UNSET


def paired(c: Configuration) -> Setting:
    """Return the MindSpore that a record names, and whether its MindFormers was released with it."""
    versions = c.fact("versions") or {}
    mindformers, mindspore = versions.get("mindformers"), versions.get("mindspore")
    if not mindformers or not mindspore:
        return UNSET
    return Released(str(mindformers), str(mindspore), PAIRS.get(".".join(str(mindformers).split(".")[:2])))


def deterministic_megatron(c: Configuration) -> Setting:
    """Return whether torch was deterministic, or was asked to be."""
    on, asked = (c.fact("determinism") or {}).get("torch.are_deterministic_algorithms_enabled"), is_on(c, "deterministic_mode")
    return asked if on is None else bool(on)


def deterministic_mindformers(c: Configuration) -> Setting:
    """Return whether MindSpore was deterministic, or was asked to be."""
    on = (c.fact("determinism") or {}).get("mindspore.get_context(deterministic)")
    asked = any(value_of(c, (name,), False) in (True, "ON") for name in ("train_precision_sync", "context.deterministic"))
    return asked if on is None else on == "ON"
