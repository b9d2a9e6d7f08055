"""What one side holds of a row, whether two meanings are the same, and how a value is shown."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from enum import Enum

from align_hooks.checklist.meaning import Meaning, ValueOrigin
from align_hooks.checklist.row import UNSET, CheckRow
from align_hooks.configuration.values import Configuration, Setting, SourceLocation, Unknown, Value
from align_hooks.messages import Argument, message, terms

SAME_NUMBER = 1e-6
"""Relative difference of two numbers that count as one: 0.1 in float32 is 0.1."""
LONGEST_SHOWN = 2_000
"""Letters of a value that a report shows."""
ODD = (TypeError, ValueError, ArithmeticError, AttributeError, LookupError)
"""What a value of a wrong kind raises in a reading, wherever it is."""


@dataclass(frozen=True, slots=True)
class SideValue:
    """What one side holds: the meaning, as it is shown, the place where it was set, None where it is not known, and why it is not."""

    meaning: Setting
    shown: Argument
    place: SourceLocation | ValueOrigin | None
    why: Argument = None

    @property
    def where(self) -> str | ValueOrigin:
        """The place in words, empty where there is none."""
        return self.place if isinstance(self.place, ValueOrigin) else str(self.place or "")

    def place_beside(self, source: str) -> Argument:
        """The place as short as it is clear: without the option that stands there, and of the file ``source`` itself the line alone."""
        if not isinstance(self.place, SourceLocation):
            return self.where
        in_source = self.place.line is not None and self.place.source == source
        return message("place.line", line=str(self.place.line)) if in_source else str(replace(self.place, name=""))


def read_row(row: CheckRow, configuration: Configuration) -> SideValue:
    """What one side holds of a row."""
    says = row.says(configuration)
    asked = replace(configuration, used=set())
    why: Argument = None
    written: Setting = UNSET
    try:
        written = _written(row, asked)
    except Unknown as unknown:
        why = unknown.why
    except ODD as odd:
        why = message("held.odd", source=configuration.source, error=str(odd))
    configuration.used.update((*says.keys, *says.beside, *asked.used))
    deciding = _deciding(row, asked, written)
    fact = configuration.fact(row.fact) if row.fact else None
    if fact is not None:
        written, deciding, why = fact, deciding or Value(fact, configuration.account), None
    try:
        meaning = written if written is UNSET or row.form is None else row.form(written)
    except ODD:
        meaning = written
    if isinstance(meaning, float) and not math.isfinite(meaning):
        source = deciding.where if deciding is not None else configuration.source
        meaning, why = UNSET, message("held.not_finite", place=source, value=str(written))
    place: SourceLocation | ValueOrigin | None = None
    if meaning is not UNSET and deciding is not None:
        place = deciding.place
    elif meaning is not UNSET and configuration.facts is not None:
        place = configuration.account
    elif meaning is not UNSET:
        place = ValueOrigin.NOT_CONFIGURABLE if says.fixed is not UNSET else ValueOrigin.DEFAULT
    return SideValue(meaning, show(meaning), place, why)


def _deciding(row: CheckRow, configuration: Configuration, written: Setting) -> Value | None:
    """The value that makes the meaning what it is: the one without which it would be another, else the first of the row's keys that is
    set. A reading whose row names no keys has ``used`` those that count."""
    says, values = row.says(configuration), configuration.values
    keys = [key for key in says.keys or sorted(configuration.used) if key in values and key not in configuration.passed_over]
    if says.read is not None and (len(keys) > 1 or not says.keys) and configuration.facts is None:
        itself = next((key for key in keys if not values[key].unknown and same(values[key].value, written)), None)
        if itself is not None:
            return values[itself]
        for key in keys:
            without = {name: value for name, value in values.items() if name != key}
            try:
                if not same(_written(row, replace(configuration, values=without, used=set())), written):
                    return values[key]
            except (Unknown, *ODD):
                return values[key]
    return values[keys[0]] if keys and says.keys else None


def _written(row: CheckRow, configuration: Configuration) -> Setting:
    """What a side says of a row, before it is brought to its meaning."""
    says = row.says(configuration)
    if says.fixed is not UNSET:
        return says.fixed
    if says.read is not None:
        return says.read(configuration)
    value = configuration.find(says.keys)
    if value is not None:
        return value.value
    return says.default(configuration) if callable(says.default) else says.default


def same(a: Setting, b: Setting) -> bool:
    """Whether two meanings are the same."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        try:
            return a == b or abs(a - b) <= SAME_NUMBER * max(abs(a), abs(b))
        except OverflowError:
            return False  # a whole number that no float holds
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def show(value: Setting) -> Argument:
    """A value as people write it, or its words where nobody wrote it; of several, how often each occurs, the commonest first."""
    if value is UNSET:
        return "–"
    if isinstance(value, Meaning):
        return value.words
    if isinstance(value, Enum):
        return value
    if isinstance(value, frozenset):
        return message("meaning.weights", count=len(value))
    if isinstance(value, dict):
        counts = Counter(map(str, value.values())).most_common()
        if len(counts) < 2:
            return counts[0][0] if counts else "–"
        return terms(message("meaning.of", value=name, count=count) for name, count in counts)
    written = as_written(value)
    return written if len(written) <= LONGEST_SHOWN else f"{written[:LONGEST_SHOWN]}…"


def as_written(value: Setting) -> str:
    """A value as somebody wrote it."""
    if isinstance(value, float):
        return f"{value:.7g}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(as_written, value)) + "]"
    return str(value)
