"""What may be written into a candidate: the names that its framework reads, and the values that each accepts."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from align_hooks.checklist.change import flag_of
from align_hooks.checklist.class_keys import class_of, keys_read
from align_hooks.checklist.defaults import DEFAULTS, family
from align_hooks.checklist.meaning import Meaning
from align_hooks.checklist.newer_names import ignored, refused, refuses, unread
from align_hooks.checklist.older_families import DEEPSEEK
from align_hooks.checklist.readings.data import LOADER, OF_MEGATRON, RESETS, reader, sequence
from align_hooks.checklist.readings.lookup import has, known
from align_hooks.checklist.readings.precision import mindformers_flash
from align_hooks.checklist.readings.schedule import GROUPED
from align_hooks.checklist.row import MODEL, UNSET, Edits, is_new, model, plain
from align_hooks.configuration import mindspeed
from align_hooks.configuration.megatron import CHOICES, defaults_of, flags_of
from align_hooks.configuration.values import MEGATRON, MINDFORMERS, Configuration, Setting, Unknown
from align_hooks.data_file import sections

GROUPS = "grouped_lr_schedule.grouped"
"""A list of groups, each with its own parameters: no value for a single number."""
TYPES = {name: kind for kind, lines in sections(Path(__file__).parent / "setting_types.txt").items() for name in " ".join(lines).split()}
"""Setting of MindFormers to the type of number that its class takes."""
OF_DEEPSEEK = tuple(f"moe_config.{name}" for name in ("moe_intermediate_size", "aux_loss_factors", "aux_loss_types"))
"""Settings of experts that no other older family reads."""
BETWEEN = {**dict.fromkeys(("optimizer.betas", "optimizer.beta1", "optimizer.beta2"), (0.0, 1.0)), "optimizer.eps": (0.0, math.inf)}
"""AdamW's exclusive bounds of a setting."""
GROUPED_EXPERTS = model("n_group", "topk_group")
"""The groups of experts, and how many of them a token may choose."""
COMPRESSED, SHORTEST = (*RESETS, *model("use_attn_mask_compression", "use_eod_attn_mask_compression")), 2048
"""Settings that compress a mask, and the shortest sequence for that, in flash attention only (1.9, ``mask_generate.py:66``)."""
SWITCH = ("use_", "enable_", "is_", "no_", "has_")
"""The beginnings of MindFormers' names for switches."""


def usable(keys: Sequence[str], candidate: Configuration) -> list[str]:
    """Return the names that a candidate's framework reads, those that are set first."""
    newer, of_family, kind = False, None, ""
    try:
        newer = candidate.side == MINDFORMERS and is_new(candidate)
        of_family = family(candidate) if candidate.side == MINDFORMERS else None
        kind = class_of(candidate)
    except Unknown:  # without the class of the model nobody knows which of its keys are read
        keys = [key for key in keys if not key.startswith((MODEL, "moe_config."))]
    unfit = {f"{MODEL}{name}" for name in ignored(of_family) | refused(of_family) | unread(of_family)} if newer else set()
    grouped = GROUPS in candidate.values or has(candidate, GROUPED)  # MindFormers wants all of a group then

    def fits(key: str) -> bool:
        if candidate.side == MEGATRON:
            known = flag_of(key)[0].replace("_", "-") in flags_of(candidate.fork)
            return known and (key not in mindspeed.ARGUMENTS or key in defaults_of(candidate.fork))
        if key.startswith(f"{LOADER}.config.") and reader(candidate) not in ("", OF_MEGATRON):
            return False  # other readers refuse a section of that name
        if key in OF_DEEPSEEK and of_family not in DEEPSEEK:
            return False
        if key in unfit or (newer and key.startswith("moe_config.")) or (key.startswith(GROUPED) and not grouped):
            return False
        own = key.removeprefix(MODEL) if key.startswith(MODEL) else ""
        read = not kind or not own or own in keys_read(kind, candidate.version)
        return key not in candidate.passed_over and (read or key in candidate.values)

    return sorted(filter(fits, keys), key=lambda key: key not in candidate.values)


def is_refused(edits: Edits, candidate: Configuration) -> bool:
    """Return whether a framework ends a training for one of these values."""
    if candidate.side != MINDFORMERS:
        return any(value is not UNSET and not _is_choice(key, value, candidate) for key, value in edits.items())
    no_integer = any(type_of(key) == "integer" and isinstance(value, float) for key, value in edits.items())
    outside = any(not below < number < above for key, (below, above) in BETWEEN.items() for number in _numbers(edits.get(key)))
    if no_integer or outside or (any(edits.get(key) is True for key in COMPRESSED) and _takes_no_compressed_mask(candidate)):
        return True
    if not is_new(candidate):
        return False
    said = {name.removeprefix(MODEL): value.written for name, value in candidate.values.items()}
    said |= {name.removeprefix(MODEL): value for name, value in edits.items()}
    groups, chosen = said.get("n_group"), said.get("topk_group")
    too_many = isinstance(groups, int) and isinstance(chosen, int) and chosen > groups and not edits.keys().isdisjoint(GROUPED_EXPERTS)
    return too_many or any(refuses(family(candidate), key.removeprefix(MODEL), value, said) for key, value in edits.items())


def _takes_no_compressed_mask(candidate: Configuration) -> bool:
    """Return whether a sequence is known to be too short for a compressed mask, or no flash attention is known to read it."""
    try:
        return any(length < SHORTEST for length in _numbers(sequence(candidate))) or mindformers_flash(candidate) is False
    except Unknown:
        return False


def _numbers(value: Setting) -> list[float]:
    return [number for number in (value if isinstance(value, list) else [value]) if isinstance(number, int | float)]


def takes(key: str, value: Setting, candidate: Configuration, switch: bool = False) -> bool:
    """Return whether a key accepts a value; ``switch``: the key is on or off where neither its default nor its name says it."""
    if value is None:
        return True
    if isinstance(value, Meaning | Enum) or (isinstance(value, str) and re.search(r"[\s(]", value)):  # no key accepts a sentence
        return False
    if not _is_choice(key, value, candidate):
        return False
    kind = _kind(key, candidate, switch)
    if isinstance(value, bool) or kind == "nothing" or key == GROUPS:
        return isinstance(value, bool) and kind == "nothing"
    numbers = {"integer": isinstance(value, int), "number": isinstance(value, int | float), "float": isinstance(value, int | float)}
    return numbers.get(kind, not isinstance(value, list | frozenset))


def choices(key: str, candidate: Configuration) -> Sequence[str]:
    """Return all values that Megatron's parser accepts for an attribute; none where any is accepted, or of MindFormers."""
    flag = flag_of(key)[0].replace("_", "-")
    if candidate.side != MEGATRON or flag not in CHOICES:
        return ()
    return (*CHOICES[flag], *(mindspeed.CHOICES.get(flag, ()) if candidate.fork else ()))


def _is_choice(key: str, value: Setting, candidate: Configuration) -> bool:
    """Return whether a key's parser has a value among its choices; None leaves the key out."""
    known = choices(key, candidate)
    return value is None or not known or all(one in known for one in (value if isinstance(value, list) else [value]))


def _kind(key: str, candidate: Configuration, switch: bool) -> str:
    """Return the kind of value of a key by Megatron's parser; of MindFormers by its type, current value, default or name."""
    if candidate.side == MEGATRON:
        flag, constant = flag_of(key)
        return "nothing" if constant is not None else flags_of(candidate.fork).get(flag.replace("_", "-"), "text")
    if (checked := type_of(key)) is not None:
        return checked
    name, usual = key.rpartition(".")[2], known(candidate, key)
    usual = usual if usual is not None else next(iter(DEFAULTS.get(name, {}).values()), None)
    if isinstance(usual, bool) or (usual is None and (switch or name.startswith(SWITCH))):
        return "nothing"
    return "number" if isinstance(usual, int | float) else "text"


def type_of(key: str) -> str | None:
    """Return the type of number that MindFormers accepts for a key; None of anything else, or of a type that is not known."""
    return TYPES.get(key) or TYPES.get(key.rpartition(".")[2])


def as_taken(key: str, value: Setting, candidate: Configuration) -> Setting:
    """Return a value in the type that MindFormers accepts: not ``hidden_dropout: 0``, nor ``warmup_steps: 2.0``."""
    kind = type_of(key) if candidate.side == MINDFORMERS else None
    if isinstance(value, list) and kind is not None:
        return [as_taken(key, member, candidate) for member in value]
    number = plain(value)
    if kind is None or isinstance(number, bool) or not isinstance(number, int | float):
        return value
    return float(number) if kind == "float" else int(number) if kind == "integer" and number == int(number) else number
