"""What the processes ran in: variables, versions and deterministic switches, read back where a record has them."""

from __future__ import annotations

from typing import Any

from align_hooks.checklist.meaning import Released
from align_hooks.checklist.row import UNSET
from align_hooks.configuration.values import Configuration

PAIRS = {"1.3": "2.4", "1.5": "2.6", "1.6": "2.7.0", "1.7": "2.7.1", "1.8": "2.7.2", "1.9": "2.9.0"}
"""MindFormers to the MindSpore that it was released with."""


def variable(name: str) -> Any:
    """A reading of an environment variable, None where it is not set and known not to be."""

    def read(c: Configuration) -> Any:
        found = c.environment.get(name)
        if found is None:
            return None if c.facts is not None and name in (c.facts.get("environment") or {}) else UNSET
        return found.value

    return read


def version(c: Configuration, package: str) -> Any:
    """A package with its version, as a record holds it."""
    versions = c.fact("versions") or {}
    return f"{package} {versions[package]}" if package in versions else UNSET


def paired(c: Configuration) -> Any:
    """The MindSpore found, and whether MindFormers was released with it."""
    versions = c.fact("versions") or {}
    formers, spore = versions.get("mindformers"), versions.get("mindspore")
    if not formers or not spore:
        return UNSET
    return Released(str(formers), str(spore), PAIRS.get(".".join(str(formers).split(".")[:2])))


def deterministic_megatron(c: Configuration) -> Any:
    """Whether torch was deterministic, or was asked to be."""
    held = c.fact("determinism") or {}
    on = held.get("torch.are_deterministic_algorithms_enabled")
    flag = c.find(("deterministic_mode",))
    return bool(on) if on is not None else bool(flag is not None and flag.value is True)


def deterministic_mindformers(c: Configuration) -> Any:
    """Whether MindSpore was deterministic, or was asked to be."""
    held = c.fact("determinism") or {}
    on = held.get("mindspore.get_context(deterministic)")
    flags = [c.find((name,)) for name in ("train_precision_sync", "context.deterministic")]
    asked = any(found is not None and found.value in (True, "ON") for found in flags)
    return on == "ON" if on is not None else asked
