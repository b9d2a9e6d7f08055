"""Two configurations held against every row of the CheckList."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from align_hooks.checklist.defaults import DEFAULTS, LLAMA, LLAMA_KEYS, family
from align_hooks.checklist.newer_names import ignored, refused
from align_hooks.checklist.readings.said import Unknown
from align_hooks.checklist.row import UNSET, Effect, Row, Says, is_new
from align_hooks.checklist.tables import ROWS
from align_hooks.checklist.traps import MODEL
from align_hooks.configuration.megatron import FLAGS, RENAMED
from align_hooks.configuration.values import MEGATRON, MINDFORMERS, Configuration, ConfigurationError, Value

SAME_NUMBER = 1e-6
"""Relative difference of two numbers that are one: float32's view of 0.1 is 0.1."""
ODD = (TypeError, ValueError, ArithmeticError, AttributeError, LookupError)
"""What a value of a wrong kind raises in a reading, wherever it is."""
SWITCH = ("use_", "enable_", "is_", "no_", "has_")
"""How names of MindFormers' begin that take True and False."""
NOT_WORTH = ("", None, False, 0, "none", UNSET)


class Outcome(Enum):
    """How a row came out; the value is what people read."""

    DIFFERENT = "differs"
    NOT_TOLD = "not told"
    ROUNDING = "differs in rounding"
    HARMLESS = "differs, without harm"
    SAME = "same"
    ALONE = "one side only"
    BY_HAND = "check by hand"
    UNUSED = "not used"


@dataclass(frozen=True, slots=True)
class Held:
    """What one side holds: the meaning, as it is shown, where it was set, and why it is not known."""

    meaning: Any
    shown: str
    where: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Checked:
    """One row, both sides, and how it came out. ``why`` says what makes a difference harmless, or what is not told; ``change`` what to
    set where; ``advised`` is the guide's recommendation that a side does not keep to, with the sides that do not."""

    row: Row
    outcome: Outcome
    reference: Held
    candidate: Held
    why: str = ""
    change: str = ""
    advised: str = ""


def judge(reference: Configuration, candidate: Configuration, rows: Sequence[Row] = ROWS) -> tuple[Checked, ...]:
    """Every row, in the order of the CheckList."""
    held = {row.name: (hold(row, reference), hold(row, candidate)) for row in rows}
    return tuple(_judge(row, reference, candidate, held) for row in rows)


def hold(row: Row, configuration: Configuration) -> Held:
    """What one side holds of a row."""
    says = row.says(configuration)
    configuration.used.update((*says.keys, *says.beside))
    why = ""
    try:
        found = _meaning(row, says, configuration)
    except Unknown as unknown:
        found, why = UNSET, str(unknown)
    except ConfigurationError as conflict:
        found, why = UNSET, str(conflict)
    except ODD as odd:
        found, why = UNSET, f"{configuration.source} says what cannot be worked out ({odd})"
    first = _deciding(row, says, configuration, found)
    fact = configuration.fact(row.fact) if row.fact else None
    if fact is not None:
        found, first = fact, first or Value(fact, "run.json")
    try:
        meaning = found if found is UNSET or row.form is None else row.form(found)
    except ODD:
        meaning = found
    if isinstance(meaning, float) and not math.isfinite(meaning):
        meaning, why = UNSET, f"{first.where if first is not None else configuration.source} says {found}, which is no number to train with"
    where = "" if meaning is UNSET else first.where if first is not None else _unsaid(says, configuration)
    return Held(meaning, show(meaning), where, why)


def _deciding(row: Row, says: Says, configuration: Configuration, found: Any) -> Value | None:
    """The value that makes the meaning what it is: the one without which it would be another, else the first that is set."""
    given = [key for key in says.keys if key in configuration.values and key not in configuration.passed_over]
    if says.read is not None and len(given) > 1 and configuration.facts is None:
        itself = next((key for key in given if same(configuration.values[key].value, found)), None)
        if itself is not None:
            return configuration.values[itself]
        for key in given:
            without = {name: value for name, value in configuration.values.items() if name != key}
            try:
                if not same(_meaning(row, says, replace(configuration, values=without, used=set())), found):
                    return configuration.values[key]
            except (Unknown, ConfigurationError, *ODD):
                return configuration.values[key]
    return configuration.values[given[0]] if given else None


def _unsaid(says: Says, configuration: Configuration) -> str:
    return "run.json" if configuration.facts is not None else "not configurable" if says.fixed is not UNSET else "default"


def _meaning(row: Row, says: Says, configuration: Configuration) -> Any:
    if says.fixed is not UNSET:
        return says.fixed
    if says.read is not None:
        return says.read(configuration)
    found = configuration.find(says.keys)
    if found is not None and found.unknown:
        raise Unknown(found.unknown)
    if found is not None:
        return found.value
    return says.default(configuration) if callable(says.default) else says.default


def _judge(row: Row, reference: Configuration, candidate: Configuration, held: Mapping[str, tuple[Held, Held]]) -> Checked:
    one, other = held[row.name]
    if not _used(row, held):
        return Checked(row, Outcome.UNUSED, one, other)
    advised = _advised(row, (reference, one), (candidate, other))
    if row.alone and reference.side != candidate.side:
        spoken = next((side for side in (one, other) if side.meaning is not UNSET), None)
        outcome = (
            Outcome.BY_HAND if row.by_hand and (spoken is None or spoken.meaning is None) else Outcome.ALONE if spoken else Outcome.UNUSED
        )
        return Checked(row, outcome, one, other, advised=advised)
    told = UNSET not in (one.meaning, other.meaning)
    if told and same(one.meaning, other.meaning):
        return Checked(row, Outcome.SAME, one, other, advised=advised)
    why = _harmless(row, reference, candidate)
    if not told and not why:
        return _untold(row, (reference, one), (candidate, other), advised)
    if why or row.effect is Effect.NOTHING:
        return Checked(row, Outcome.HARMLESS, one, other, why or "no number depends on it", "", advised)
    change = _change(row, candidate, held)
    told_apart = row.tell(one.meaning, other.meaning) if row.tell is not None else ""
    outcome = Outcome.ROUNDING if row.effect is Effect.ROUNDING else Outcome.DIFFERENT
    return Checked(row, outcome, one, other, told_apart, change, advised)


def _harmless(row: Row, reference: Configuration, candidate: Configuration) -> str:
    """Why a difference does no harm to these two; empty where it does, or where that cannot be told."""
    try:
        return row.unless(reference, candidate) if row.unless is not None else ""
    except (Unknown, ConfigurationError, *ODD):
        return ""


def _untold(row: Row, left: tuple[Configuration, Held], right: tuple[Configuration, Held], advised: str) -> Checked:
    (reference, one), (candidate, other) = left, right
    why = one.why or other.why
    if not why and one.meaning is UNSET and other.meaning is UNSET:
        return Checked(row, Outcome.BY_HAND if row.by_hand else Outcome.UNUSED, one, other, advised=advised)
    if row.by_hand:
        return Checked(row, Outcome.BY_HAND, one, other, why, advised=advised)
    if row.effect is not Effect.RESULT:
        return Checked(row, Outcome.HARMLESS, one, other, why or "one side does not say it, and no result depends on it", advised=advised)
    side, silent = ("reference", reference) if one.meaning is UNSET else ("candidate", candidate)
    names = _usable(row.says(silent).keys, silent)
    how = f"; {_named(names[0], silent)} would" if names else ""
    return Checked(row, Outcome.NOT_TOLD, one, other, why or f"the {side} does not say it{how}", advised=advised)


def _used(row: Row, held: Mapping[str, tuple[Held, Held]]) -> bool:
    name, _, wanted = row.when.partition("=")
    if not name:
        return True
    meanings = [one.meaning for one in held[name]]
    if wanted:
        return wanted in meanings
    return any(one not in NOT_WORTH for one in meanings)


def _advised(row: Row, *sides: tuple[Configuration, Held]) -> str:
    """The recommendation, and who does not keep to it; empty where all do, or nothing is known."""
    if row.advice is None:
        return ""
    named = zip(("reference", "candidate"), sides, strict=True)
    against = [name for name, (_, held) in named if held.meaning is not UNSET and not _keeps(row, held.meaning)]
    return f"{row.advice.text} (not so: {' and '.join(against)})" if against else ""


def _keeps(row: Row, meaning: Any) -> bool:
    assert row.advice is not None
    try:
        return bool(row.advice.keeps(meaning))
    except ODD:
        return False


def same(one: Any, other: Any) -> bool:
    """Whether two meanings are one."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        try:
            return one == other or abs(one - other) <= SAME_NUMBER * max(abs(one), abs(other))
        except OverflowError:
            return False  # a whole number that no float holds
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def show(value: Any) -> str:
    """A value as people write it."""
    if value is UNSET:
        return "–"
    if isinstance(value, float):
        return f"{value:.7g}"
    if isinstance(value, frozenset):
        return f"{len(value)} weights"
    if isinstance(value, dict):
        return _most(list(value.values()))
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(show, value)) + "]"
    return str(value)


def _most(values: Sequence[Any]) -> str:
    """How often each of some values occurs, the commonest first."""
    counts = Counter(map(str, values)).most_common()
    return ", ".join(f"{value} of {count}" for value, count in counts) if len(counts) > 1 else str(counts[0][0]) if counts else "–"


def _change(row: Row, candidate: Configuration, held: Mapping[str, tuple[Held, Held]]) -> str:
    """What to set in the candidate to make it agree with the reference: tried on the candidate itself before it is said."""
    says, (one, other) = row.says(candidate), held[row.name]
    if says.fixed is not UNSET:
        return f"{candidate.side} cannot be told: change the reference to {other.shown}"
    usable, parting = _usable(says.keys, candidate), ""
    for key in usable:
        for value in _tried(key, says, candidate, one, other):
            changed = replace(candidate, values={**candidate.values, key: Value(value)}, facts=None, used=set())
            if same(hold(row, changed).meaning, one.meaning):
                parted = _parts(key, row, changed, held)
                if not parted:
                    return _setting(key, value, candidate)
                parting = parting or f"{_setting(key, value, candidate)}; {parted} moves with it"
    if parting:
        return parting
    if not usable or says.choices or isinstance(one.meaning, bool):  # all that may be written was tried
        return f"{candidate.side} has no setting that makes it {one.shown}"
    return f"make it come to {one.shown} by {_named(usable[0], candidate)}"


def _parts(key: str, row: Row, changed: Configuration, held: Mapping[str, tuple[Held, Held]]) -> str:
    """The row that a change parts while it mends another: one that changes the result and agrees as it is; empty where there is none."""
    for other in ROWS:
        if other.effect is not Effect.RESULT or other is row or other.name not in held or key not in other.says(changed).keys:
            continue
        one, before = held[other.name]
        agreed = UNSET not in (one.meaning, before.meaning) and same(one.meaning, before.meaning)
        if agreed and not same(hold(other, changed).meaning, one.meaning):
            return other.name
    return ""


def _tried(key: str, says: Says, candidate: Configuration, one: Held, other: Held) -> Iterator[Any]:
    """Values that may mean what the reference means, and that the key takes: its own, a switch, what stands for nothing, a number that
    its words hold."""
    standing = candidate.values[key].value if key in candidate.values else None
    if says.choices:
        yield from says.choices
    elif isinstance(standing, list):
        yield from ([*standing[:at], one.meaning, *standing[at + 1 :]] for at in range(len(standing)))
    else:
        named = map(int, re.findall(r"\d+", one.meaning)) if isinstance(one.meaning, str) else (1, 0) if one.meaning is None else ()
        yield from (value for value in (one.meaning, True, False, *named) if takes(key, value, candidate))


def takes(key: str, value: Any, candidate: Configuration) -> bool:
    """Whether a key may be given such a value: switches take True and False, numbers a number, and no key a sentence."""
    if value is None:
        return True
    if isinstance(value, str) and re.search(r"[\s(]", value):
        return False
    wanted = _megatron_takes(key) if candidate.side == MEGATRON else _mindformers_takes(key, candidate)
    if wanted == "nothing":
        return isinstance(value, bool)
    if isinstance(value, bool):
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


def _usable(keys: Sequence[str], candidate: Configuration) -> list[str]:
    """Names that a candidate may be given: what it has set first, and of newer models only those that MindFormers 1.9 reads."""
    newer = candidate.side == MINDFORMERS and is_new(candidate)
    known = family(candidate) if candidate.side == MINDFORMERS else None
    unfit = {f"{MODEL}{name}" for name in ignored(known) | refused(known)} if newer else set()
    older = known == LLAMA
    fit = [key for key in keys if key not in unfit and not (newer and key.startswith("moe_config."))]
    unread = [key for key in fit if older and key.startswith(MODEL) and key.removeprefix(MODEL) not in LLAMA_KEYS]
    fit = [key for key in fit if key in candidate.values or key not in unread]
    return sorted(fit, key=lambda key: key not in candidate.values)


def _named(key: str, candidate: Configuration) -> str:
    return key.removeprefix("model.model_config.") if candidate.side == MINDFORMERS else "--" + key.replace("_", "-")


def _setting(key: str, value: Any, candidate: Configuration) -> str:
    """A key with its value as the candidate's framework wants it written."""
    if candidate.side == MINDFORMERS:
        return f"{_named(key, candidate)}: {written(value)}"
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
    named = [(flag, constant) for flag, (name, constant) in RENAMED.items() if name == attribute]
    return named[0] if named else (attribute, None)


def _flag(attribute: str, value: Any) -> str:
    """A flag of Megatron's as it is written to give an attribute a value."""
    flag, constant = _flag_of(attribute)
    dashed = "--" + flag.replace("_", "-")
    if isinstance(value, bool):
        return f"add {dashed}" if value is (True if constant is None else constant) else f"leave {dashed} out"
    return f"leave {dashed} out" if value is None else f"{dashed} {show(value)}"
