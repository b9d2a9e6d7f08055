"""What to set in the candidate to make a row agree: tried on the candidate itself, and only what its framework takes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from align_hooks.checklist.defaults import DEFAULTS, LLAMA, LLAMA_KEYS, family
from align_hooks.checklist.held import ODD, Held, hold, same, show
from align_hooks.checklist.newer_names import ignored, refused
from align_hooks.checklist.readings.said import Unknown
from align_hooks.checklist.readings.training import GROUPED
from align_hooks.checklist.row import MODEL, UNSET, Effect, Row, Says, is_new
from align_hooks.checklist.tables import ROWS
from align_hooks.configuration.megatron import FLAGS, RENAMED
from align_hooks.configuration.values import MEGATRON, MINDFORMERS, Configuration, ConfigurationError, Value

GROUPS = "grouped_lr_schedule.grouped"
"""A list of groups, each with its own parameters: no value for a single number."""
SWITCH = ("use_", "enable_", "is_", "no_", "has_")
"""How names of MindFormers' begin that take True and False."""
LONGEST = 128
"""Members of a list that are tried one by one: no model's setting has more."""


def change(row: Row, reference: Configuration, candidate: Configuration, held: Mapping[str, tuple[Held, Held]]) -> str:
    """What to set in the candidate to make it agree with the reference: tried on the candidate itself before it is said."""
    says, (one, other) = row.says(candidate), held[row.name]
    if says.fixed is not UNSET:
        return f"{candidate.side} cannot be told: change the reference to {other.shown}"
    fit, parting = usable(says.keys, candidate), ""
    for key in fit:
        for value in (*_copied(key, reference, candidate), *_tried(key, says, candidate, one, other)):
            changed = replace(candidate, values={**candidate.values, key: Value(value)}, facts=None, used=set())
            if same(hold(row, changed).meaning, one.meaning):
                parted = _parts(key, row, reference, changed, held)
                if not parted:
                    return _setting(key, value, candidate)
                moved = f"{_setting(key, value, candidate)}; {parted} moves with it"
                parting = parting or (f"nothing alone: {moved}" if row.effect is Effect.ROUNDING else moved)
    if parting:
        return parting
    if not fit or says.choices or isinstance(one.meaning, bool):  # all that may be written was tried
        return f"{candidate.side} has no setting that makes it {one.shown}"
    return f"make it come to {one.shown} by {named(fit[0], candidate)}"


def harmless(row: Row, reference: Configuration, candidate: Configuration) -> str:
    """Why a difference does no harm to these two; empty where it does, or where that cannot be told."""
    try:
        return row.unless(reference, candidate) if row.unless is not None else ""
    except (Unknown, ConfigurationError, *ODD):
        return ""


def _copied(key: str, reference: Configuration, candidate: Configuration) -> Iterator[Any]:
    """The number that the reference itself has for a key, where both are of one framework: rows that live on it are mended alike."""
    found = reference.values.get(key)
    if reference.side == candidate.side and found is not None and isinstance(found.value, int) and takes(key, found.value, candidate):
        yield found.value


def _parts(key: str, row: Row, reference: Configuration, changed: Configuration, held: Mapping[str, tuple[Held, Held]]) -> str:
    """The row that a change parts while it mends another: one that changes the result and agrees as it is; empty where there is none."""
    for other in ROWS:
        if other.effect is not Effect.RESULT or other is row or other.name not in held or key not in other.says(changed).keys:
            continue
        one, before = held[other.name]
        agreed = UNSET not in (one.meaning, before.meaning) and same(one.meaning, before.meaning)
        if agreed and not same(hold(other, changed).meaning, one.meaning) and not harmless(other, reference, changed):
            return other.name
    return ""


def _tried(key: str, says: Says, candidate: Configuration, one: Held, other: Held) -> Iterator[Any]:
    """Values that may mean what the reference means, and that the key takes: its own, a switch, what stands for nothing, a number that
    its words hold."""
    standing = candidate.values[key].value if key in candidate.values else None
    if says.choices:
        yield from says.choices
    elif isinstance(standing, list):
        yield from ([*standing[:at], one.meaning, *standing[at + 1 :]] for at in range(min(len(standing), LONGEST)))
    else:
        digits = (
            map(int, re.findall(r"(?<!\d)\d{1,18}(?!\d)", one.meaning))
            if isinstance(one.meaning, str)
            else (1, 0)
            if one.meaning is None
            else ()
        )
        meaning = int(one.meaning) if key.endswith("_steps") and _is_whole(one.meaning) else one.meaning
        yield from (value for value in (meaning, True, False, *digits) if takes(key, value, candidate))


def _is_whole(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer()


def takes(key: str, value: Any, candidate: Configuration) -> bool:
    """Whether a key may be given such a value: switches take True and False, numbers a number, and no key a sentence."""
    if value is None:
        return True
    if isinstance(value, str) and re.search(r"[\s(]", value):
        return False
    wanted = _megatron_takes(key) if candidate.side == MEGATRON else _mindformers_takes(key, candidate)
    if wanted == "nothing":
        return isinstance(value, bool)
    if isinstance(value, bool) or key == GROUPS:
        return False
    return {"integer": isinstance(value, int), "number": isinstance(value, int | float)}.get(wanted, True)


def _megatron_takes(key: str) -> str:
    flag, constant = _flag_of(key)
    return "nothing" if constant is not None else FLAGS.get(flag.replace("_", "-"), "text")


def _mindformers_takes(key: str, candidate: Configuration) -> str:
    """What a key takes, by what stands there, by its default, or by its name."""
    name = key.rpartition(".")[2]
    standing = candidate.values[key].value if key in candidate.values else None
    usual = standing if standing is not None else next(iter(DEFAULTS.get(name, {}).values()), None)
    if isinstance(usual, bool) or (usual is None and name.startswith(SWITCH)):
        return "nothing"
    return "number" if isinstance(usual, int | float) else "text"


def usable(keys: Sequence[str], candidate: Configuration) -> list[str]:
    """Names that a candidate may be given: what it has set first, and of newer models only those that MindFormers 1.9 reads."""
    newer = candidate.side == MINDFORMERS and is_new(candidate)
    known = family(candidate) if candidate.side == MINDFORMERS else None
    unfit = {f"{MODEL}{name}" for name in ignored(known) | refused(known)} if newer else set()
    older = known == LLAMA
    fit = [key for key in keys if key not in unfit and not (newer and key.startswith("moe_config."))]
    grouped = GROUPS in candidate.values or any(key.startswith(GROUPED) for key in candidate.values)  # MindFormers wants a whole one then
    fit = [key for key in fit if grouped or not key.startswith(GROUPED)]
    unread = [key for key in fit if older and key.startswith(MODEL) and key.removeprefix(MODEL) not in LLAMA_KEYS]
    fit = [key for key in fit if key in candidate.values or key not in unread]
    return sorted(fit, key=lambda key: key not in candidate.values)


def named(key: str, candidate: Configuration) -> str:
    """A key as people of the candidate's framework write it."""
    return key.removeprefix(MODEL) if candidate.side == MINDFORMERS else "--" + key.replace("_", "-")


def _setting(key: str, value: Any, candidate: Configuration) -> str:
    """A key with its value as the candidate's framework wants it written."""
    if candidate.side == MINDFORMERS:
        return f"{named(key, candidate)}: {written(value)}"
    return _flag(key, value)


def written(value: Any) -> str:
    """A value as YAML 1.1 reads it back: numbers with a point where Python leaves it out."""
    shown = "null" if value is None else show(value)
    if isinstance(value, float) and "." not in shown and shown.lstrip("-")[:1].isdigit():
        digits, mark, power = shown.partition("e")
        return f"{digits}.0{mark}{power}"
    return shown


def _flag_of(attribute: str) -> tuple[str, Any]:
    """The flag of Megatron's that gives an attribute a value, with dashes for blanks, and the value where the flag itself is one."""
    found = [(flag, constant) for flag, (name, constant) in RENAMED.items() if name == attribute]
    return found[0] if found else (attribute, None)


def _flag(attribute: str, value: Any) -> str:
    """A flag of Megatron's as it is written to give an attribute a value."""
    flag, constant = _flag_of(attribute)
    dashed = "--" + flag.replace("_", "-")
    if isinstance(value, bool):
        return f"add {dashed}" if value is (True if constant is None else constant) else f"leave {dashed} out"
    return f"leave {dashed} out" if value is None else f"{dashed} {show(value)}"
