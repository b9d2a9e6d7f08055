"""What to set in the candidate to make a row agree: tried on the candidate itself, and only what its framework takes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from align_hooks.checklist.defaults import DEFAULTS, LLAMA, LLAMA_KEYS, family
from align_hooks.checklist.meaning import Meaning, Words
from align_hooks.checklist.newer_names import ignored, refused
from align_hooks.checklist.readings.lookup import NotTold, has
from align_hooks.checklist.readings.training import GROUPED
from align_hooks.checklist.row import MODEL, UNSET, Effect, Row, Says, is_new
from align_hooks.checklist.side_value import ODD, SideValue, as_written, read_row, same
from align_hooks.checklist.tables import ROWS
from align_hooks.configuration import mindspeed
from align_hooks.configuration.megatron import RENAMED, defaults_of, flags_of
from align_hooks.configuration.values import MEGATRON, MINDFORMERS, Configuration, ConfigurationError, Setting, Value
from align_hooks.messages import Argument, message, sentences

GROUPS = "grouped_lr_schedule.grouped"
"""A list of groups, each with its own parameters: no value for a single number."""
SWITCH = ("use_", "enable_", "is_", "no_", "has_")
"""How names of MindFormers' begin that take True and False."""
LONGEST = 128
"""Members of a list that are tried one by one: no model's setting has more."""
Values: TypeAlias = Mapping[str, tuple[SideValue, SideValue]]
"""Row to what reference and candidate hold of it."""


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
    """What to do in the candidate, or in the reference where the candidate's ``framework`` has no setting.

    ``key`` is the candidate's setting as its framework names it, with sections and dashes. ``value`` is what to write, or what to come to.
    ``parts`` is the name of a row that agrees and would not after the change. ``worth`` is False where that costs more than it mends.
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
        written = f"{self.setting}: {self.value}" if self.framework == MINDFORMERS else f"{self.setting} {self.value}"
        actions: Mapping[Action, Argument] = {
            Action.WRITE: written,
            Action.ADD: message("change.add", flag=self.setting),
            Action.LEAVE_OUT: message("change.leave_out", flag=self.setting),
            Action.COME_TO: message("change.come_to", value=self.value, name=self.setting),
            Action.CHANGE_REFERENCE: message("change.reference", framework=self.framework, value=self.value),
            Action.NONE: message("change.no_setting", framework=self.framework, value=self.value),
        }
        done = actions[self.action]
        moved = done if self.parts is None else sentences(done, message("change.moves", row=self.parts))
        return moved if self.worth else message("change.nothing_alone", change=moved)


def change(row: Row, reference: Configuration, candidate: Configuration, values: Values) -> Change:
    """What to set in the candidate to make it agree with the reference: each change is tried on the candidate itself first."""
    says, (wanted, present) = row.says(candidate), values[row.id]
    if says.fixed is not UNSET:
        return Change(Action.CHANGE_REFERENCE, candidate.side, value=present.shown)
    keys, parting = usable(says.keys, candidate), None
    for key in keys:
        for value in (*_copied(key, reference, candidate), *_tried(key, says, candidate, wanted.meaning)):
            changed = replace(candidate, values={**candidate.values, key: Value(value)}, facts=None, used=set())
            if same(read_row(row, changed).meaning, wanted.meaning):
                mended, parted = _setting(key, value, candidate), _parts(key, row, reference, changed, values)
                if parted is None:
                    return mended
                parting = parting or replace(mended, parts=parted.name, worth=row.effect is not Effect.ROUNDING)
    if parting is not None:
        return parting
    if not keys or says.choices or isinstance(wanted.meaning, bool):  # all that may be written was tried
        return Change(Action.NONE, candidate.side, value=wanted.shown)
    return Change(Action.COME_TO, candidate.side, _key(keys[0], candidate), wanted.shown)


def harmless(row: Row, reference: Configuration, candidate: Configuration) -> Words | None:
    """Why a difference does no harm to these two sides; None where it does, or where that cannot be told."""
    try:
        return row.unless(reference, candidate) if row.unless is not None else None
    except (NotTold, ConfigurationError, *ODD):
        return None


def _copied(key: str, reference: Configuration, candidate: Configuration) -> Iterator[Setting]:
    """The number that the reference has for a key, where both sides are of one framework: all rows that read the key are mended alike."""
    value = reference.values[key].value if reference.side == candidate.side and key in reference.values else None
    if isinstance(value, int) and takes(key, value, candidate):
        yield value


def _parts(key: str, row: Row, reference: Configuration, changed: Configuration, values: Values) -> Row | None:
    """A row that agrees, changes the result, and would differ after this change; None where there is none."""
    for neighbour in ROWS:
        if neighbour.effect is Effect.RESULT and neighbour is not row and neighbour.id in values and key in neighbour.says(changed).keys:
            ours, theirs = (value.meaning for value in values[neighbour.id])
            if UNSET in (ours, theirs) or not same(ours, theirs) or same(read_row(neighbour, changed).meaning, ours):
                continue
            if harmless(neighbour, reference, changed) is None:
                return neighbour
    return None


def _tried(key: str, says: Says, candidate: Configuration, meaning: Setting) -> Iterator[Setting]:
    """Values that may have the meaning and that the key takes: the meaning, a switch, what stands for nothing, a number of the meaning."""
    standing = candidate.values[key].value if key in candidate.values else None
    if says.choices:
        both = isinstance(standing, list)  # what stands in the list stays
        yield from ([*(standing or ()), *choice] if both and isinstance(choice, list) else choice for choice in says.choices)
    elif isinstance(standing, list):
        yield from [meaning] if isinstance(meaning, list) else []
        yield from ([*standing[:at], meaning, *standing[at + 1 :]] for at in range(min(len(standing), LONGEST)))
    else:
        numbers = meaning.numbers if isinstance(meaning, Meaning) else (1, 0) if meaning is None else ()
        whole = key.endswith("_steps") and isinstance(meaning, float) and meaning.is_integer()
        yield from (value for value in (int(meaning) if whole else meaning, True, False, *numbers) if takes(key, value, candidate))


def takes(key: str, value: Setting, candidate: Configuration) -> bool:
    """Whether a key may be given such a value: switches take True and False, numbers a number, and no key a sentence."""
    if value is None:
        return True
    if isinstance(value, Meaning | Enum) or (isinstance(value, str) and re.search(r"[\s(]", value)):
        return False
    kind = _kind(key, candidate)
    if isinstance(value, bool) or kind == "nothing" or key == GROUPS:
        return isinstance(value, bool) and kind == "nothing"
    return {"integer": isinstance(value, int), "number": isinstance(value, int | float)}.get(kind, True)


def _kind(key: str, candidate: Configuration) -> str:
    """What a key takes, as its parser says it; of MindFormers by what stands there, by its default, or by its name."""
    if candidate.side == MEGATRON:
        flag, constant = _flag_of(key)
        return "nothing" if constant is not None else flags_of(candidate.fork).get(flag.replace("_", "-"), "text")
    name = key.rpartition(".")[2]
    standing = candidate.values[key].value if key in candidate.values else None
    usual = standing if standing is not None else next(iter(DEFAULTS.get(name, {}).values()), None)
    if isinstance(usual, bool) or (usual is None and name.startswith(SWITCH)):
        return "nothing"
    return "number" if isinstance(usual, int | float) else "text"


def usable(keys: Sequence[str], candidate: Configuration) -> list[str]:
    """Names that a candidate may be given: what it has set first, of newer models only those that MindFormers 1.9 reads, and of Megatron-LM
    none that only a fork of it has."""
    newer = candidate.side == MINDFORMERS and is_new(candidate)
    model = family(candidate) if candidate.side == MINDFORMERS else None
    unfit = {f"{MODEL}{name}" for name in ignored(model) | refused(model)} if newer else set()
    grouped = GROUPS in candidate.values or has(candidate, GROUPED)  # MindFormers wants a whole group then

    def fits(key: str) -> bool:
        if candidate.side == MEGATRON:
            return key not in mindspeed.ARGUMENTS or key in defaults_of(candidate.fork)
        if key in unfit or (newer and key.startswith("moe_config.")) or (key.startswith(GROUPED) and not grouped):
            return False
        unread = model == LLAMA and key.startswith(MODEL) and key.removeprefix(MODEL) not in LLAMA_KEYS
        return key in candidate.values or not unread

    return sorted(filter(fits, keys), key=lambda key: key not in candidate.values)


def named(key: str, candidate: Configuration) -> str:
    """A key as people of the candidate's framework write it."""
    return _key(key, candidate).removeprefix(MODEL)


def _key(key: str, candidate: Configuration) -> str:
    """A key as the candidate's framework names it."""
    return key if candidate.side == MINDFORMERS else "--" + key.replace("_", "-")


def _setting(key: str, value: Setting, candidate: Configuration) -> Change:
    """A key with its value as the candidate's framework wants it written: of Megatron a flag that gives the attribute the value."""
    if candidate.side == MINDFORMERS:
        return Change(Action.WRITE, candidate.side, key, in_yaml(value))
    flag, constant = _flag_of(key)
    dashed = _key(flag, candidate)
    if value is None or (isinstance(value, bool) and value is not (True if constant is None else constant)):
        return Change(Action.LEAVE_OUT, candidate.side, dashed)
    if isinstance(value, bool):
        return Change(Action.ADD, candidate.side, dashed)
    return Change(Action.WRITE, candidate.side, dashed, as_written(value))


def in_yaml(value: Setting) -> str:
    """A value as YAML 1.1 reads it back: numbers with a point where Python leaves it out."""
    shown = "null" if value is None else as_written(value)
    if isinstance(value, float) and "." not in shown and shown.lstrip("-")[:1].isdigit():
        digits, mark, power = shown.partition("e")
        return f"{digits}.0{mark}{power}"
    return shown


def _flag_of(attribute: str) -> tuple[str, Setting]:
    """The flag of Megatron's that sets an attribute, with underscores for dashes, and the value where the flag itself is the value."""
    return next(((flag, constant) for flag, (name, constant) in RENAMED.items() if name == attribute), (attribute, None))
