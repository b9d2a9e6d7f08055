"""What to set in the candidate to make a row agree: tried on the candidate itself, and only what its framework takes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from align_hooks.checklist.defaults import DEFAULTS, LLAMA, LLAMA_KEYS, family
from align_hooks.checklist.held import ODD, Held, hold, same, written
from align_hooks.checklist.meaning import Meaning, Words
from align_hooks.checklist.newer_names import ignored, refused
from align_hooks.checklist.readings.said import Unknown
from align_hooks.checklist.readings.training import GROUPED
from align_hooks.checklist.row import MODEL, UNSET, Effect, Row, Says, is_new
from align_hooks.checklist.tables import ROWS
from align_hooks.configuration.megatron import FLAGS, RENAMED
from align_hooks.configuration.values import MEGATRON, MINDFORMERS, Configuration, ConfigurationError, Value
from align_hooks.messages import Argument, message, sentences

GROUPS = "grouped_lr_schedule.grouped"
"""A list of groups, each with its own parameters: no value for a single number."""
SWITCH = ("use_", "enable_", "is_", "no_", "has_")
"""How names of MindFormers' begin that take True and False."""
LONGEST = 128
"""Members of a list that are tried one by one: no model's setting has more."""


class Action(Enum):
    """What is to be done about a difference."""

    WRITE = "write"
    ADD = "add"
    LEAVE_OUT = "leave_out"
    COME_TO = "come_to"
    CHANGE_REFERENCE = "change_reference"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Change:
    """What to do in the candidate, or in the reference where the candidate's ``framework`` cannot be told.

    ``key`` is the candidate's setting as its framework names it, sections and dashes and all; ``value`` what is to be written, or what
    is to be come to. ``parts`` is the name of a row that agrees and would not any more; ``worth`` is False where that costs more than is
    mended.
    """

    action: Action
    framework: str
    key: str = ""
    value: Argument = None
    parts: Argument = None
    worth: bool = True

    @property
    def of_model(self) -> bool:
        """Whether the setting stands under MindFormers' ``model_config``."""
        return self.key.startswith(MODEL)

    @property
    def setting(self) -> str:
        """The setting as people write it."""
        return self.key.removeprefix(MODEL)

    @property
    def words(self) -> Argument:
        """As a report shows it."""
        if self.parts is None:
            return self._done()
        moved = sentences(self._done(), message("change.moves", row=self.parts))
        return moved if self.worth else message("change.nothing_alone", change=moved)

    def _done(self) -> Argument:
        match self.action:
            case Action.WRITE:
                return f"{self.setting}: {self.value}" if self.framework == MINDFORMERS else f"{self.setting} {self.value}"
            case Action.ADD:
                return message("change.add", flag=self.setting)
            case Action.LEAVE_OUT:
                return message("change.leave_out", flag=self.setting)
            case Action.COME_TO:
                return message("change.come_to", value=self.value, name=self.setting)
            case Action.CHANGE_REFERENCE:
                return message("change.reference", framework=self.framework, value=self.value)
            case Action.NONE:
                return message("change.no_setting", framework=self.framework, value=self.value)


def change(row: Row, reference: Configuration, candidate: Configuration, held: Mapping[str, tuple[Held, Held]]) -> Change:
    """What to set in the candidate to make it agree with the reference: tried on the candidate itself before it is said."""
    says, (one, other) = row.says(candidate), held[row.id]
    if says.fixed is not UNSET:
        return Change(Action.CHANGE_REFERENCE, candidate.side, value=other.shown)
    fit, parting = usable(says.keys, candidate), None
    for key in fit:
        for value in (*_copied(key, reference, candidate), *_tried(key, says, candidate, one, other)):
            changed = replace(candidate, values={**candidate.values, key: Value(value)}, facts=None, used=set())
            if same(hold(row, changed).meaning, one.meaning):
                parted = _parts(key, row, reference, changed, held)
                if parted is None:
                    return _setting(key, value, candidate)
                parting = parting or replace(_setting(key, value, candidate), parts=parted.name, worth=row.effect is not Effect.ROUNDING)
    if parting is not None:
        return parting
    if not fit or says.choices or isinstance(one.meaning, bool):  # all that may be written was tried
        return Change(Action.NONE, candidate.side, value=one.shown)
    return Change(Action.COME_TO, candidate.side, _key(fit[0], candidate), one.shown)


def harmless(row: Row, reference: Configuration, candidate: Configuration) -> Words | None:
    """Why a difference does no harm to these two; None where it does, or where that cannot be told."""
    try:
        return row.unless(reference, candidate) if row.unless is not None else None
    except (Unknown, ConfigurationError, *ODD):
        return None


def _copied(key: str, reference: Configuration, candidate: Configuration) -> Iterator[Any]:
    """The number that the reference itself has for a key, where both are of one framework: rows that live on it are mended alike."""
    found = reference.values.get(key)
    if reference.side == candidate.side and found is not None and isinstance(found.value, int) and takes(key, found.value, candidate):
        yield found.value


def _parts(key: str, row: Row, reference: Configuration, changed: Configuration, held: Mapping[str, tuple[Held, Held]]) -> Row | None:
    """A row that agrees, changes the result, and would differ after this change; None where there is none."""
    for other in ROWS:
        if other.effect is not Effect.RESULT or other is row or other.id not in held or key not in other.says(changed).keys:
            continue
        one, before = held[other.id]
        agreed = UNSET not in (one.meaning, before.meaning) and same(one.meaning, before.meaning)
        if agreed and not same(hold(other, changed).meaning, one.meaning) and harmless(other, reference, changed) is None:
            return other
    return None


def _tried(key: str, says: Says, candidate: Configuration, one: Held, other: Held) -> Iterator[Any]:
    """Values that may mean what the reference means, and that the key takes: its own, a switch, what stands for nothing, a number of
    what is meant."""
    standing = candidate.values[key].value if key in candidate.values else None
    if says.choices:
        yield from says.choices
    elif isinstance(standing, list):
        yield from ([*standing[:at], one.meaning, *standing[at + 1 :]] for at in range(min(len(standing), LONGEST)))
    else:
        numbers = one.meaning.numbers if isinstance(one.meaning, Meaning) else (1, 0) if one.meaning is None else ()
        meaning = int(one.meaning) if key.endswith("_steps") and _is_whole(one.meaning) else one.meaning
        yield from (value for value in (meaning, True, False, *numbers) if takes(key, value, candidate))


def _is_whole(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer()


def takes(key: str, value: Any, candidate: Configuration) -> bool:
    """Whether a key may be given such a value: switches take True and False, numbers a number, and no key a sentence."""
    if value is None:
        return True
    if isinstance(value, Meaning | Enum):
        return False
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
    return _key(key, candidate).removeprefix(MODEL)


def _key(key: str, candidate: Configuration) -> str:
    """A key as the candidate's framework names it."""
    return key if candidate.side == MINDFORMERS else "--" + key.replace("_", "-")


def _setting(key: str, value: Any, candidate: Configuration) -> Change:
    """A key with its value as the candidate's framework wants it written."""
    if candidate.side == MINDFORMERS:
        return Change(Action.WRITE, candidate.side, key, in_yaml(value))
    return _flag(key, value, candidate)


def in_yaml(value: Any) -> str:
    """A value as YAML 1.1 reads it back: numbers with a point where Python leaves it out."""
    shown = "null" if value is None else written(value)
    if isinstance(value, float) and "." not in shown and shown.lstrip("-")[:1].isdigit():
        digits, mark, power = shown.partition("e")
        return f"{digits}.0{mark}{power}"
    return shown


def _flag_of(attribute: str) -> tuple[str, Any]:
    """The flag of Megatron's that gives an attribute a value, with dashes for blanks, and the value where the flag itself is one."""
    found = [(flag, constant) for flag, (name, constant) in RENAMED.items() if name == attribute]
    return found[0] if found else (attribute, None)


def _flag(attribute: str, value: Any, candidate: Configuration) -> Change:
    """A flag of Megatron's as it is written to give an attribute a value."""
    flag, constant = _flag_of(attribute)
    dashed = _key(flag, candidate)
    if value is None or (isinstance(value, bool) and value is not (True if constant is None else constant)):
        return Change(Action.LEAVE_OUT, candidate.side, dashed)
    return (
        Change(Action.ADD, candidate.side, dashed)
        if isinstance(value, bool)
        else Change(Action.WRITE, candidate.side, dashed, written(value))
    )
