"""What one side holds of a row, whether two meanings are one, and how a value is shown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from align_hooks.checklist.meaning import Meaning, Origin
from align_hooks.checklist.readings.said import Unknown
from align_hooks.checklist.row import UNSET, Row, Says
from align_hooks.configuration.values import Configuration, ConfigurationError, Contradiction, Value
from align_hooks.messages import Argument, message, terms

SAME_NUMBER = 1e-6
"""Relative difference of two numbers that are one: float32's view of 0.1 is 0.1."""
ODD = (TypeError, ValueError, ArithmeticError, AttributeError, LookupError)
"""What a value of a wrong kind raises in a reading, wherever it is."""


@dataclass(frozen=True, slots=True)
class Held:
    """What one side holds: the meaning, as it is shown, where it was set, empty where it is not known, and why it is not."""

    meaning: Any
    shown: Argument
    where: str | Origin
    why: Argument = None


def hold(row: Row, configuration: Configuration) -> Held:
    """What one side holds of a row."""
    says = row.says(configuration)
    configuration.used.update((*says.keys, *says.beside))
    why: Argument = None
    try:
        found = _meaning(row, says, configuration)
    except Unknown as unknown:
        found, why = UNSET, unknown.why
    except Contradiction as conflict:
        found, why = UNSET, conflict.why
    except ODD as odd:
        found, why = UNSET, message("held.odd", source=configuration.source, error=str(odd))
    first = _deciding(row, says, configuration, found)
    fact = configuration.fact(row.fact) if row.fact else None
    if fact is not None:
        found, first = fact, first or Value(fact, configuration.account)
    try:
        meaning = found if found is UNSET or row.form is None else row.form(found)
    except ODD:
        meaning = found
    if isinstance(meaning, float) and not math.isfinite(meaning):
        place = first.where if first is not None else configuration.source
        meaning, why = UNSET, message("held.not_finite", place=place, value=str(found))
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


def _unsaid(says: Says, configuration: Configuration) -> str | Origin:
    if configuration.facts is not None:
        return configuration.account
    return Origin.NOT_CONFIGURABLE if says.fixed is not UNSET else Origin.DEFAULT


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


def show(value: Any) -> Argument:
    """A value as people write it, or its words where nobody wrote it."""
    if value is UNSET:
        return "–"
    if isinstance(value, Meaning):
        return value.words
    if isinstance(value, Enum):
        return value
    if isinstance(value, frozenset):
        return message("meaning.weights", count=len(value))
    if isinstance(value, dict):
        return _most(list(value.values()))
    return written(value)


def written(value: Any) -> str:
    """A value as somebody wrote it."""
    if isinstance(value, float):
        return f"{value:.7g}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(written, value)) + "]"
    return str(value)


def _most(values: Sequence[Any]) -> Argument:
    """How often each of some values occurs, the commonest first."""
    counts = Counter(map(str, values)).most_common()
    if len(counts) < 2:
        return counts[0][0] if counts else "–"
    return terms(message("meaning.of", value=value, count=count) for value, count in counts)
